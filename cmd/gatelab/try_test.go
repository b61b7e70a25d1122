package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// standIn keeps the promises that try relies on and nothing else: console lines, a DHCP server on eth1, a page on port
// 443. GET /move takes the LAN to another address, as a wizard may.
const standIn = `package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
)

func sh(text string) *exec.Cmd {
	c := exec.Command("sh", "-ec", text)
	c.Stderr = os.Stderr
	return c
}

func lan(net string) *exec.Cmd {
	check(sh("ip link set dev eth1 up; ip addr flush dev eth1; ip addr add " + net + ".1/24 dev eth1").Run())
	c := exec.Command("dnsmasq", "-k", "--conf-file=/dev/null", "--user=root", "--port=0", "--pid-file=", "--no-ping", "--leasefile-ro",
		"--dhcp-range="+net+".100,"+net+".150,2m")
	check(c.Start())
	return c
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	server := lan("192.168.1")
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "page at %s for %s", r.Context().Value(http.LocalAddrContextKey), r.RemoteAddr) })
	http.HandleFunc("/move", func(w http.ResponseWriter, r *http.Request) {
		server.Process.Kill()
		server.Wait()
		server = lan("192.168.9")
	})
	fmt.Println("web page: https://192.168.1.1/")
	fmt.Println("setup code: ABCD-EFGH")
	check(http.ListenAndServe(":443", nil))
}
`

func TestTryPublishesThePageFollowsTheBoxAndTakesAllAway(t *testing.T) {
	root := scratch(t, map[string]string{"cmd/gatehouse/main.go": standIn})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ctrlC, press := context.WithCancel(ctx)
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := try(ctrlC, root, []string{"--listen", "127.0.0.1:0"}, w)
		w.Close()
		done <- err
	}()

	var text strings.Builder
	lines := bufio.NewScanner(r)
	for lines.Scan() && !strings.Contains(lines.Text(), "Ctrl-C") {
		fmt.Fprintln(&text, lines.Text())
	}
	url := regexp.MustCompile(`https://(127\.0\.0\.1:\d+)/`).FindStringSubmatch(text.String())
	if url == nil || !strings.Contains(text.String(), "setup code  ABCD-EFGH") {
		t.Fatalf("try said:\n%s\n%v", text.String(), <-done)
	}
	if got := get(ctx, t, url[1], "/"); !strings.Contains(got, "page at 192.168.1.1:443 for 192.168.1.1") {
		t.Errorf("the page says %q", got)
	}
	// The stand-in cuts its own branch: the answer to this one may never come.
	short, stop := context.WithTimeout(ctx, 5*time.Second)
	_, _ = fetch(short, url[1], "/move")
	stop()
	if got := get(ctx, t, url[1], "/"); !strings.Contains(got, "page at 192.168.9.1:443 for 192.168.9.1") {
		t.Errorf("after the move the page says %q", got)
	}

	pid := regexp.MustCompile(`nsenter -t (\d+)`).FindStringSubmatch(text.String())
	press()
	rest, _ := io.ReadAll(r)
	if err := <-done; err != nil {
		t.Errorf("try ended with %v after %s", err, rest)
	}
	if _, err := os.Stat("/proc/" + pid[1]); !os.IsNotExist(err) {
		t.Errorf("a machine of the lab is left: %v", err)
	}
	if c, err := net.Dial("tcp", url[1]); err == nil {
		c.Close()
		t.Error("the page is still published")
	}
}

func TestTryTellsWhyTheProductEnded(t *testing.T) {
	root := scratch(t, map[string]string{"cmd/gatehouse/main.go": "package main\n\nfunc main() { panic(\"no ports\") }\n"})
	err := try(t.Context(), root, []string{"--listen", "127.0.0.1:0"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "no ports") {
		t.Errorf("got %v", err)
	}
}

func fetch(ctx context.Context, host, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, nil)
	if err != nil {
		return "", err
	}
	req.Close = true // the next request makes a new connection
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func get(ctx context.Context, t *testing.T, host, path string) string {
	t.Helper()
	s, err := fetch(ctx, host, path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
