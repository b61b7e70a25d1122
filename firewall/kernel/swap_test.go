package kernel_test

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"gatehouse/firewall/kernel"
	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

// A packet whose source stays in a set must be found there at every moment
// while other members come and go, by applies and by fills.
func TestChangingASetLosesNoOtherMember(t *testing.T) {
	for name, set := range map[string]ruleset.Set{
		"hash":      {Key: []ruleset.Type{ruleset.IPv4Addr}},
		"intervals": {Key: []ruleset.Type{ruleset.IPv4Addr}, Interval: true},
	} {
		for _, runtime := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " filled"}[runtime], func(t *testing.T) {
				set.Name, set.Runtime = "s", runtime
				inside(t, func(t *testing.T) { changeUnderFlood(t, set) })
			})
		}
	}
}

func changeUnderFlood(t *testing.T, set ruleset.Set) {
	client, _ := lab(t)
	k := open(t)
	el := func(address string) ruleset.Element { return ruleset.Element{Key: []ruleset.Range{one(address)}} }
	members := [][]ruleset.Element{{el("10.1.0.2")}, {el("10.0.0.1"), el("10.1.0.2"), el("10.3.0.1")}}
	if set.Interval { // it grows on both sides, and shrinks
		members[1][1].Key[0] = span("10.1.0.1", "10.1.0.9")
	}
	ruled := func(i int) ruleset.Ruleset {
		s := set
		s.Elements = members[i%2]
		return ruleset.Ruleset{
			Counters: []ruleset.Counter{{Name: "found"}, {Name: "lost"}}, Sets: []ruleset.Set{s},
			Chains: []ruleset.Chain{{Name: "forward", Hook: &ruleset.Hook{Type: "filter", Name: "forward"}, Rules: []ruleset.Rule{
				rule(v4, in(ruleset.IPSaddr, "s"), ruleset.Count{Name: "found"}, accept),
				rule(udp, ruleset.Count{Name: "lost"}, drop)}}},
		}
	}
	apply(t, k, ruled(0))
	flood := client.dial(t, "10.2.0.2:9")
	stop := make(chan struct{})
	var flooding sync.WaitGroup
	flooding.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = flood.Write([]byte("x"))
			}
		}
	})
	times := 50
	if set.Runtime {
		times = 1000 // one fill is quick
	}
	for i := range times {
		if set.Runtime {
			if err := k.Fill(t.Context(), "s", members[i%2]); err != nil {
				t.Error(err)
			}
			continue
		}
		apply(t, k, ruled(i))
	}
	close(stop)
	flooding.Wait()
	counts := counters(t, k)
	if counts["lost"] != 0 {
		t.Errorf("%d of %d packets were not found in the set", counts["lost"], counts["found"]+counts["lost"])
	}
	if counts["found"] < 100 {
		t.Errorf("only %d packets: no flood", counts["found"])
	}
}

func counters(t *testing.T, k *kernel.Kernel) map[string]uint64 {
	t.Helper()
	list, err := k.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	packets := map[string]uint64{}
	for _, c := range list {
		packets[c.Name] = c.Packets
	}
	return packets
}

// Another program that changes its own tables all the time must neither spoil
// an apply nor keep it from happening.
func TestApplyWhileOthersChangeTheRuleset(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		stop := make(chan struct{})
		var busy sync.WaitGroup
		defer busy.Wait()
		defer close(stop)
		space := fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("nsenter", "--net="+space, "nft", "add table inet theirs; delete table inet theirs").Run()
				}
			}
		})
		for i := range 30 {
			apply(t, k, []ruleset.Ruleset{filter(rule(drop)), everything()}[i%2])
		}
	})
}
