package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"gatehouse/firewall/netlab"
)

// pages measures ordinary pages of a box that was just claimed, as a browser on
// the LAN gets them over one connection: median of 21, TLS and network included.
func pages(ctx context.Context, m *measurement) error {
	if _, err := m.Lab.ServeDHCP(ctx, netlab.DHCP{}); err != nil { // so that eth1 is the first local port
		return err
	}
	box, err := m.Lab.Box.Start(ctx, m.Binary, "serve", "--state", filepath.Join(m.Dir, "state"))
	if err != nil {
		return err
	}
	defer box.Stop(ctx)
	code, err := say(ctx, box, `setup code:\s+(\S+)`)
	if err != nil {
		return err
	}
	if _, err := say(ctx, box, `(web page: https://192\.168\.1\.1/)`); err != nil {
		return err
	}
	if err := m.Lab.LAN1.SetUp("eth0", true); err != nil {
		return err
	}
	if err := m.Lab.LAN1.AddAddr("eth0", client+"/24"); err != nil {
		return err
	}
	jar, _ := cookiejar.New(nil) // never fails without options
	c := &http.Client{Jar: jar, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // self-made, and this is a lab
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return m.Lab.LAN1.Dial(ctx, "tcp", netip.MustParseAddrPort(addr))
		}}}
	base := "https://" + boxLAN + ":443"
	form := url.Values{"code": {code}, "admin": {"admin"}, "password": {"seven grey herons wade"}, "host": {"fw1"}, "domain": {"home.arpa"}, "zone": {"UTC"}}
	req, err := http.NewRequestWithContext(ctx, "POST", base+"/setup/1", strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if _, err := getPage(c, req); err != nil {
		return err
	}
	for _, path := range []string{"/", "/rules", "/rules/new", "/forwards", "/forwards/new", "/leases", "/revisions", "/review", "/setup/2"} {
		var took []float64
		size := 0
		for range 21 {
			req, err := http.NewRequestWithContext(ctx, "GET", base+path, nil)
			if err != nil {
				return err
			}
			began := time.Now()
			if size, err = getPage(c, req); err != nil {
				return err
			}
			took = append(took, float64(time.Since(began).Microseconds())/1000)
		}
		m.figure(fmt.Sprintf("page %s (%d bytes)", path, size), median(took), 20, "ms")
	}
	return nil
}

// getPage reads an answer whole and wants a page.
func getPage(c *http.Client, req *http.Request) (size int, err error) {
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", req.Method, req.URL.Path, resp.Status)
	}
	return len(b), err
}
