package firewall

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
)

// mutated gives c with its n-th leaf changed, and what was changed; "" after the last.
func mutated(t *testing.T, n int) (Config, string) {
	c := sample()
	where := ""
	walk(reflect.ValueOf(&c).Elem(), "", func(path string, v reflect.Value) {
		if n--; n != -1 {
			return
		}
		where = path
		switch x := v.Addr().Interface().(type) {
		case *netip.Addr:
			*x = netip.MustParseAddr("198.51.100.77")
		case *netip.Prefix:
			*x = netip.MustParsePrefix("198.51.100.77/27")
		case *End:
			*x = other(*x)
		case *PortEnd:
			x.Range.To++
			if x.Alias != "" {
				x.Alias += "X"
			}
		default:
			switch v.Kind() {
			case reflect.String:
				v.SetString(v.String() + "x")
			case reflect.Bool:
				v.SetBool(!v.Bool())
			case reflect.Int:
				v.SetInt(v.Int() + 1)
			case reflect.Uint16:
				v.SetUint(v.Uint() + 1)
			default:
				t.Fatalf("%s: nothing is known of %s", path, v.Type())
			}
		}
	})
	return c, where
}

// other is the least change of an End: one bit of its last part.
func other(e End) End {
	switch e.Kind {
	case EndAddr:
		e.Addr = e.Addr.Next()
	case EndNet:
		e.Net = netip.PrefixFrom(e.Net.Addr(), e.Net.Bits()+1)
	case EndRange:
		e.Last = e.Last.Next()
	case EndAny, EndSelf:
		e.Kind = EndAny + EndSelf - e.Kind
	default:
		e.Name += "X"
	}
	return e
}

// C29: two configurations that differ in one field, be it the end of a range,
// are told apart: by the stamp, and by the hash of exactly the object concerned.
func TestHashC29EveryFieldCounts(t *testing.T) {
	was := sample()
	refs := refsOf(was)
	seen := map[string]string{was.Stamp(): "the sample"}
	leaves := 0
	for ; ; leaves++ {
		c, where := mutated(t, leaves)
		if where == "" {
			break
		}
		if twin, ok := seen[c.Stamp()]; ok {
			t.Errorf("%s (leaf %d) has the stamp of %s", where, leaves, twin)
		}
		seen[c.Stamp()] = where
		var differ []string
		for _, r := range refs {
			if c.Hash(r) != was.Hash(r) {
				differ = append(differ, r.String())
			}
		}
		if len(differ) != 1 && where != ".Schema" {
			t.Errorf("%s: the hashes of %v changed", where, differ)
		}
	}
	if leaves < 150 {
		t.Errorf("only %d leaves were tried", leaves)
	}
}

func refsOf(c Config) []Ref {
	refs := []Ref{{Kind: "system"}, {Kind: "admin"}, {Kind: "sources"}}
	for _, r := range c.Rules {
		refs = append(refs, Ref{"rule", string(r.ID)})
	}
	for _, f := range c.Forwards {
		refs = append(refs, Ref{"forward", string(f.ID)})
	}
	for _, a := range c.Aliases {
		refs = append(refs, Ref{"alias", string(a.Name)})
	}
	for _, i := range c.Interfaces {
		refs = append(refs, Ref{"interface", string(i.Name)})
	}
	for _, s := range c.Scopes {
		refs = append(refs, Ref{"scope", string(s.In)})
		for _, st := range s.Statics {
			refs = append(refs, Ref{"static", string(st.ID)})
		}
	}
	return refs
}

func TestHashOfWhatIsNotThereIsEmpty(t *testing.T) {
	for _, r := range []Ref{{"rule", "01Z"}, {"forward", "01A"}, {"alias", "LAN"}, {"interface", "WEB"}, {"scope", "WAN"}, {"static", "01A"}, {"nonsense", ""}} {
		if h := sample().Hash(r); h != "" {
			t.Errorf("%s has the hash %s", r, h)
		}
	}
	if sample().Hash(Ref{Kind: "all"}) != sample().Stamp() || len(sample().Stamp()) != 32 {
		t.Error("the hash of everything is the stamp")
	}
}

// C29: rules that differ only in the end of a range, or only in log, all stay.
func TestHashC29RulesThatDifferLittle(t *testing.T) {
	rule := Rule{On: true, Action: Pass, In: "WAN", Family: IPv4, Proto: TCP, Dst: Anyone(), DstPorts: Ports{{Range: PortRange{22, 22}}}}
	c := sample()
	for i, src := range []string{"192.0.2.10-192.0.2.20", "192.0.2.10-192.0.2.21", "192.0.2.50-192.0.2.60", "192.0.2.50-192.0.2.60"} {
		rule.ID, rule.Log = ID([]string{"01W", "01X", "01Y", "01Z"}[i]), i == 3
		rule.Src, _ = ParseEnds(src)
		var err error
		if c, err = (AddRule{Rule: rule}).Apply(c); err != nil {
			t.Fatal(err)
		}
	}
	if ps := c.Validate(); ps != nil {
		t.Fatal(ps)
	}
	bodies := map[string]bool{}
	for _, id := range []ID{"01W", "01X", "01Y", "01Z"} {
		r, ok := c.Rule(id)
		if !ok {
			t.Fatalf("%s is gone", id)
		}
		r.ID = ""
		b, _ := json.Marshal(r)
		bodies[string(b)] = true
	}
	if len(bodies) != 4 {
		t.Errorf("four rules became %d", len(bodies))
	}
}

func TestRuleNumbersAreUniqueAndStable(t *testing.T) {
	var c Config
	for i := range 3000 {
		c.Rules = append(c.Rules, Rule{ID: ID(fmtID(i))})
	}
	before := c.RuleNumbers()
	owner := map[uint32]ID{0: "the automatic rules"}
	for id, n := range before {
		if who, ok := owner[n]; ok {
			t.Fatalf("%s has the number %d of %s", id, n, who)
		}
		owner[n] = id
	}
	for i, j := 0, len(c.Rules)-1; i < j; i, j = i+1, j-1 { // another order, some rules gone
		c.Rules[i], c.Rules[j] = c.Rules[j], c.Rules[i]
	}
	c.Rules = c.Rules[:1500]
	for id, n := range c.RuleNumbers() {
		if n != before[id] {
			t.Errorf("%s changed its number from %d to %d", id, before[id], n)
		}
	}
}

func fmtID(n int) string {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	b := []byte("01JRULE0000000000000000000")
	for i := len(b) - 1; n > 0; i, n = i-1, n/32 {
		b[i] = digits[n%32]
	}
	return string(b)
}
