package web

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	caYears  = 20
	leafDays = 397 // browsers refuse more
	renewAt  = 30 * 24 * time.Hour
)

// Cert is the certificate of the box, signed by a small authority of its own.
// It is issued again, with the same key, when a name or address changes; the
// listener takes the new one at the next handshake.
type Cert struct {
	dir     string
	ca      *x509.Certificate
	caKey   crypto.Signer
	leafKey crypto.Signer

	mu    sync.Mutex // guards names, and lets one issue at a time
	names sans

	now atomic.Pointer[tls.Certificate]
}

// sans is what a certificate is for.
type sans struct {
	hosts []string
	addrs []netip.Addr
}

func (s sans) equal(c *x509.Certificate) bool {
	var addrs []netip.Addr
	for _, ip := range c.IPAddresses {
		if a, ok := netip.AddrFromSlice(ip); ok {
			addrs = append(addrs, a.Unmap())
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	hosts := slices.Sorted(slices.Values(c.DNSNames))
	return slices.Equal(hosts, s.hosts) && slices.Equal(addrs, s.addrs)
}

// OpenCert reads authority, keys and certificate from dir (mode 0700), and
// makes what is missing or unreadable: there is never plain HTTP instead.
// Files: ca.pem, ca.key, box.pem, box.key; keys have mode 0600.
func OpenCert(dir string) (*Cert, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make key folder: %w", err)
	}
	c := &Cert{dir: dir}
	var err error
	if c.caKey, err = c.key("ca.key"); err != nil {
		return nil, err
	}
	if c.leafKey, err = c.key("box.key"); err != nil {
		return nil, err
	}
	if c.ca, err = c.read("ca.pem"); err != nil || !signedBy(c.ca, c.caKey) {
		if c.ca, err = c.makeCA(); err != nil {
			return nil, err
		}
	}
	leaf, err := c.read("box.pem")
	if err == nil && signedBy(leaf, c.leafKey) && leaf.CheckSignatureFrom(c.ca) == nil {
		c.use(leaf)
	}
	return c, nil
}

// Cover makes the certificate good for these host names and addresses and
// localhost. It issues a new one only when they changed, the old one ends
// within 30 days, or the clock says it is not valid yet. Call it at start, on
// every change of name or address, and once a day.
func (c *Cert) Cover(hosts []string, addrs []netip.Addr) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	want := sans{}
	for _, h := range append([]string{"localhost"}, hosts...) {
		if h = strings.TrimSuffix(strings.ToLower(h), "."); h != "" {
			want.hosts = append(want.hosts, h)
		}
	}
	for _, a := range append([]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, addrs...) {
		if a = a.Unmap().WithZone(""); a.IsValid() {
			want.addrs = append(want.addrs, a)
		}
	}
	slices.Sort(want.hosts)
	want.hosts = slices.Compact(want.hosts)
	slices.SortFunc(want.addrs, netip.Addr.Compare)
	want.addrs = slices.Compact(want.addrs)
	if have := c.now.Load(); have != nil {
		t := time.Now()
		if want.equal(have.Leaf) && t.After(have.Leaf.NotBefore) && t.Add(renewAt).Before(have.Leaf.NotAfter) {
			return nil
		}
	}
	c.names = want
	return c.issue()
}

// Get is tls.Config.GetCertificate.
func (c *Cert) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if cert := c.now.Load(); cert != nil {
		return cert, nil
	}
	return nil, errors.New("no certificate yet")
}

// Fingerprint returns the SHA-256 of the certificate as browsers show it,
// "AB:CD:…" (32 bytes); empty before the first Cover.
func (c *Cert) Fingerprint() string {
	cert := c.now.Load()
	if cert == nil {
		return ""
	}
	sum := sha256.Sum256(cert.Certificate[0])
	return strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")
}

// Authority returns the authority's certificate as PEM, to be trusted once.
func (c *Cert) Authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.ca.Raw})
}

func (c *Cert) issue() error {
	name := "gatehouse"
	if i := slices.IndexFunc(c.names.hosts, func(h string) bool { return h != "localhost" }); i >= 0 {
		name = c.names.hosts[i]
	}
	var ips []net.IP
	for _, a := range c.names.addrs {
		ips = append(ips, a.AsSlice())
	}
	start := time.Now().Add(-24 * time.Hour)
	leaf, err := c.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: []string{"gatehouse"}},
		NotBefore:   start,
		NotAfter:    start.AddDate(0, 0, leafDays),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    c.names.hosts,
		IPAddresses: ips,
	}, c.ca, c.leafKey.Public())
	if err != nil {
		return err
	}
	c.use(leaf)
	// Last: a full disk must not stop the pages that help to make room.
	return c.write("box.pem", "CERTIFICATE", leaf.Raw, 0o644)
}

func (c *Cert) use(leaf *x509.Certificate) {
	c.now.Store(&tls.Certificate{Certificate: [][]byte{leaf.Raw, c.ca.Raw}, PrivateKey: c.leafKey, Leaf: leaf})
}

func (c *Cert) makeCA() (*x509.Certificate, error) {
	start := time.Now().Add(-24 * time.Hour)
	tmpl := &x509.Certificate{
		// A name of its own, so that two boxes are told apart in a trust store.
		Subject:               pkix.Name{CommonName: "gatehouse authority " + rand.Text()[:6], Organization: []string{"gatehouse"}},
		NotBefore:             start,
		NotAfter:              start.AddDate(caYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}
	ca, err := c.sign(tmpl, tmpl, c.caKey.Public())
	if err != nil {
		return nil, err
	}
	return ca, c.write("ca.pem", "CERTIFICATE", ca.Raw, 0o644)
}

func (c *Cert) sign(tmpl, parent *x509.Certificate, public crypto.PublicKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw serial number: %w", err)
	}
	tmpl.SerialNumber = serial
	raw, err := x509.CreateCertificate(rand.Reader, tmpl, parent, public, c.caKey)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	return x509.ParseCertificate(raw)
}

func (c *Cert) read(name string) (*x509.Certificate, error) {
	b, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("%s is damaged", name)
	}
	return x509.ParseCertificate(block.Bytes)
}

// key reads a private key, and makes a new one when the file is missing or
// damaged. Anything else (no right to read) is an error.
func (c *Cert) key(name string) (crypto.Signer, error) {
	b, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if block, _ := pem.Decode(b); block != nil {
		if k, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			if s, ok := k.(crypto.Signer); ok {
				return s, nil
			}
		}
	}
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", name, err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	return k, c.write(name, "PRIVATE KEY", raw, 0o600)
}

// write replaces a file whole: after a power cut there is the old or the new.
func (c *Cert) write(name, kind string, raw []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(c.dir, name+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	err = errors.Join(
		pem.Encode(f, &pem.Block{Type: kind, Bytes: raw}),
		f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(c.dir, name))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

func signedBy(c *x509.Certificate, k crypto.Signer) bool {
	p, ok := c.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return ok && p.Equal(k.Public())
}
