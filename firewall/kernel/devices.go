package kernel

import (
	"context"
	"slices"

	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

// Attach puts the ingress chains of rs that are missing to their devices, and
// touches nothing else: for a device that has appeared, after rs was applied. On
// kernel 6.1 such a chain ends with its device; 6.18 keeps it for the next of that
// name (kernel fact 2). Until it is called the prerouting chain does the same.
func (k *Kernel) Attach(ctx context.Context, rs ruleset.Ruleset) error {
	return k.whileDevicesStay(rs, func() error {
		return k.transact(ctx, true, func(generation uint32) (*batch, error) {
			now, err := k.look(func(*liveSet) bool { return false })
			if err != nil {
				return nil, err
			}
			if now.generation != generation {
				return nil, unix.ERESTART
			}
			return k.attach(rs, now)
		})
	})
}

func (k *Kernel) attach(rs ruleset.Ruleset, now *live) (*batch, error) {
	b := &batch{}
	if !now.table {
		return b, nil // then more is missing than this
	}
	for _, c := range rs.Chains {
		old := now.chains[c.Name]
		if !byDevice(c) || !k.present(c.Hook.Device) || old != nil && movable(old.hook, c.Hook) {
			continue
		}
		b.chain(c, old)
		for i, r := range c.Rules {
			b.rule(c.Name, i+1, r)
		}
	}
	return b, b.problem()
}

// byDevice reports whether the chain needs a device to stand on.
func byDevice(c ruleset.Chain) bool { return c.Hook != nil && c.Hook.Device != "" }

// chainsFor is the chains of rs that can stand now: an ingress chain whose device
// is absent only where the kernel has kept it.
func (k *Kernel) chainsFor(rs ruleset.Ruleset, now *live) (out []ruleset.Chain) {
	for _, c := range rs.AllChains() {
		old := now.chains[c.Name]
		if !byDevice(c) || k.present(c.Hook.Device) || old != nil && movable(old.hook, c.Hook) {
			out = append(out, c)
		}
	}
	return out
}

// whileDevicesStay does what depends on the devices of rs again if it failed and
// one of them came or went meanwhile.
func (k *Kernel) whileDevicesStay(rs ruleset.Ruleset, do func() error) error {
	for n := 1; ; n++ {
		there := k.devices(rs)
		err := do()
		if err == nil || n == attempts || slices.Equal(there, k.devices(rs)) {
			return err
		}
	}
}

// devices is which devices of the ingress chains of rs are there.
func (k *Kernel) devices(rs ruleset.Ruleset) (there []string) {
	for _, c := range rs.Chains {
		if byDevice(c) && k.present(c.Hook.Device) {
			there = append(there, c.Hook.Device)
		}
	}
	return there
}
