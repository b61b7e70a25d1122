package dhcp

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"gatehouse/firewall"
)

// noRows is a store without a disk.
type noRows struct{}

func (noRows) All(context.Context) ([]Lease, error)       { return nil, nil }
func (noRows) Put(context.Context, []Lease) error         { return nil }
func (noRows) Delete(context.Context, []netip.Addr) error { return nil }

func TestServerGivesShortLeasesWhileAResolverMayCome(t *testing.T) {
	c := firewall.Factory()
	c.Interfaces = []firewall.Interface{{Name: "LAN", Device: "eth1", Role: firewall.LAN, On: true,
		V4: firewall.V4{Mode: firewall.Static, Addr: netip.MustParsePrefix("192.168.1.1/24")}}}
	c.Scopes = []firewall.Scope{{In: "LAN", On: true, From: netip.MustParseAddr("192.168.1.10"), To: netip.MustParseAddr("192.168.1.20"), Lease: 7200}}
	s := New(slog.New(slog.DiscardHandler), noRows{}, UsualLimits(), nil)
	if err := s.Reload(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	ask := func() time.Duration {
		d, ok := s.decide("eth1", Message{Type: dhcpv4.MessageTypeDiscover, MAC: "02:00:00:00:00:01", Client: "hw:02:00:00:00:00:01"}, time.Now())
		if !ok || d.v.Answer != Offer {
			t.Fatalf("no offer: %+v", d)
		}
		return d.v.Lease
	}
	for _, when := range []struct {
		what    string
		dns     []netip.Addr
		waiting bool
		want    time.Duration
	}{
		{"while the WAN asks for its lease", nil, true, 2 * time.Minute},
		{"with the provider's resolver", []netip.Addr{netip.MustParseAddr("203.0.113.1")}, false, 2 * time.Hour},
		{"when nobody will ever name one", nil, false, 2 * time.Hour},
	} {
		s.SetResolvers(when.dns, when.waiting)
		if got := ask(); got != when.want {
			t.Errorf("%s the lease is %s, want %s", when.what, got, when.want)
		}
	}
}
