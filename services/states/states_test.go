package states_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"gatehouse/firewall"
	"gatehouse/services/states"
)

// table is a connection table; its flows are told by their keys.
type table struct {
	flows []firewall.Flow
	cut   []string
	err   error
}

func (t *table) Flows(_ context.Context, f func(firewall.Flow) error) error {
	for _, one := range t.flows {
		if err := f(one); err != nil {
			return err
		}
	}
	return t.err
}

func (t *table) Cut(_ context.Context, flows []firewall.Flow) (int, error) {
	for _, f := range flows {
		t.cut = append(t.cut, string(f.Key))
	}
	return len(flows), nil
}

func flow(key, src string, mark uint32) firewall.Flow {
	return firewall.Flow{Packet: firewall.Packet{In: "eth1", Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr("9.9.9.9"),
		Proto: 6, SrcPort: 40000, DstPort: 443}, Mark: mark, Key: []byte(key)}
}

// C10: an apply cuts what the policy denies, who is shut out by then, and what a
// limit refused; it leaves the others alone, and touches nothing when there are none.
func TestCutC10EndsWhatIsDeniedShutOutOrRefused(t *testing.T) {
	cfg := firewall.Factory()
	cfg.Interfaces = []firewall.Interface{{Name: "LAN", Device: "eth1", Role: firewall.LAN, On: true,
		V4: firewall.V4{Mode: firewall.Static, Addr: netip.MustParsePrefix("192.168.1.1/24")}, V6: firewall.V6{Mode: firewall.None}}}
	deny, _ := firewall.ParseEnds("192.168.1.66")
	cfg.Rules = []firewall.Rule{
		{ID: "01B", On: true, In: "LAN", Action: firewall.Block, Family: firewall.Both, Proto: firewall.AnyProto, Src: deny, Dst: firewall.Anyone()},
		{ID: "01P", On: true, In: "LAN", Action: firewall.Pass, Family: firewall.Both, Proto: firewall.TCP, Src: firewall.Anyone(), Dst: firewall.Anyone(),
			Limit: firewall.Limit{Open: 1, Over: firewall.DropExcess}}}
	if ps := cfg.Validate(); ps != nil {
		t.Fatal(ps)
	}
	facts := firewall.Facts{Addrs: map[string][]netip.Prefix{"eth1": {netip.MustParsePrefix("192.168.1.1/24")}},
		Routes: []firewall.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Device: "eth0"}}}
	number := cfg.LimitNumbers()["01P"] << firewall.MarkShift
	kernel := &table{flows: []firewall.Flow{flow("one", "192.168.1.5", number), flow("two", "192.168.1.5", number),
		flow("refused", "192.168.1.5", number|firewall.MarkRefused), flow("denied", "192.168.1.66", 0), flow("shut out", "192.168.1.77", number)}}
	var log strings.Builder
	c := states.New(slog.New(slog.NewTextHandler(&log, nil)), kernel, func() firewall.Facts { return facts })

	for _, want := range []struct {
		blocked []netip.Prefix
		cut     []string
	}{
		{nil, []string{"refused", "denied"}},
		{[]netip.Prefix{netip.MustParsePrefix("192.168.1.77/32")}, []string{"refused", "denied", "shut out"}},
	} {
		facts.Blocked, kernel.cut = want.blocked, nil // asked anew each time
		if err := c.Cut(t.Context(), cfg); err != nil || !slices.Equal(kernel.cut, want.cut) {
			t.Errorf("blocked %v: cut %q, %v", want.blocked, kernel.cut, err)
		}
	}
	if !strings.Contains(log.String(), "count=3") {
		t.Errorf("log: %s", &log)
	}

	kernel.flows, kernel.cut = kernel.flows[:2], nil
	if err := c.Cut(t.Context(), cfg); err != nil || kernel.cut != nil {
		t.Errorf("nothing to cut: %q, %v", kernel.cut, err)
	}
	kernel.err = errors.New("table is busy")
	if err := c.Cut(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "table is busy") {
		t.Errorf("the table cannot be read: %v", err)
	}
}
