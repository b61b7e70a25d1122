package web

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

func TestCertCoversNamesAndAddresses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	c, err := OpenCert(dir)
	if err != nil {
		t.Fatal(err)
	}
	lan := netip.MustParseAddr("192.168.1.1")
	if err := c.Cover([]string{"fw1", "fw1.home.arpa"}, []netip.Addr{lan}); err != nil {
		t.Fatal(err)
	}
	first := c.Fingerprint()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.Authority()) {
		t.Fatal("no authority")
	}
	good := func(name string) {
		t.Helper()
		cert, err := c.Get(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"fw1", "fw1.home.arpa", "localhost", "192.168.1.1", "127.0.0.1", "::1"} {
		good(name)
	}
	if err := c.Cover([]string{"fw1.home.arpa", "fw1"}, []netip.Addr{lan}); err != nil || c.Fingerprint() != first {
		t.Errorf("issued again for the same names: %v", err)
	}
	if err := c.Cover([]string{"fw1", "fw1.home.arpa"}, []netip.Addr{lan, netip.MustParseAddr("192.168.77.1")}); err != nil {
		t.Fatal(err)
	}
	good("192.168.77.1")
	good("192.168.1.1")
	if c.Fingerprint() == first {
		t.Error("the same certificate covers a new address")
	}
}

func TestCertSurvivesRestartAndDamage(t *testing.T) {
	dir := t.TempDir()
	open := func() *Cert {
		t.Helper()
		c, err := OpenCert(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Cover([]string{"fw1"}, nil); err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := open()
	if again := open(); again.Fingerprint() != first.Fingerprint() {
		t.Error("a restart changes the certificate")
	}
	for _, key := range []string{"ca.key", "box.key"} {
		info, err := os.Stat(filepath.Join(dir, key))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", key, info.Mode(), err)
		}
	}
	for _, name := range []string{"ca.key", "ca.pem", "box.key", "box.pem"} {
		for _, damage := range []string{"", "-----BEGIN X-----\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(damage), 0o600); err != nil {
				t.Fatal(err)
			}
			c := open()
			cert, err := c.Get(nil)
			if err != nil {
				t.Fatalf("%s damaged: %v", name, err)
			}
			if cert.Leaf.CheckSignatureFrom(c.ca) != nil || !signedBy(cert.Leaf, c.leafKey) {
				t.Errorf("%s damaged: certificate and key do not fit", name)
			}
		}
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*.*.*"))
	if len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}
