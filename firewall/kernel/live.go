package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

// live is our table as it is in the kernel.
type live struct {
	generation uint32 // of the whole namespace's rulesets
	table      bool
	dormant    bool // the table is there but does nothing
	counters   map[string]ruleset.Counter
	sets       map[string]*liveSet
	chains     map[string]*liveChain
}

type liveSet struct {
	name     string
	def      definition
	elements []element // only when they were asked for
}

type liveChain struct {
	hook  *ruleset.Hook
	rules []liveRule
}

type liveRule struct{ comment, hash string }

// generation is the number that every committed change in the namespace raises.
func (s *sock) generation() (uint32, error) {
	var gen uint32
	err := s.request(nft(unix.NFT_MSG_GETGEN), 0, unix.AF_UNSPEC, nil, func(m message) error {
		gen = uint32(num(find(m.body, unix.NFTA_GEN_ID)))
		return nil
	})
	return gen, err
}

// look reads the whole table, and of the sets that read picks the members. It
// is one state of the table, never a half-made change.
func (k *Kernel) look(read func(*liveSet) bool) (*live, error) {
	for range attempts {
		now, err := k.lookOnce(read)
		if err == nil {
			var gen uint32
			if gen, err = k.sock.generation(); err == nil && gen == now.generation {
				return now, nil
			}
		}
		// ENOENT: a set vanished between its listing and its reading.
		if err != nil && !errors.Is(err, errChanged) && !errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("read the table back: %w", err)
		}
	}
	return nil, fmt.Errorf("read the table back: %w", errChanged)
}

func (k *Kernel) lookOnce(read func(*liveSet) bool) (now *live, err error) {
	now = &live{sets: map[string]*liveSet{}, chains: map[string]*liveChain{}}
	if now.generation, err = k.sock.generation(); err != nil {
		return nil, err
	}
	if err := k.lookTable(now); err != nil || !now.table {
		return now, err
	}
	if now.counters, err = k.counters(); err != nil {
		return nil, err
	}
	if err := k.lookChains(now); err != nil {
		return nil, err
	}
	if err := k.lookSets(now); err != nil {
		return nil, err
	}
	for _, s := range now.sets {
		if read(s) {
			if s.elements, err = k.sock.elements(s.name); err != nil {
				return nil, err
			}
		}
	}
	return now, nil
}

func (k *Kernel) lookTable(now *live) error {
	const dormant = 1 // NFT_TABLE_F_DORMANT
	var a attrs
	a.text(unix.NFTA_TABLE_NAME, ruleset.Table)
	err := k.sock.request(nft(unix.NFT_MSG_GETTABLE), 0, unix.NFPROTO_INET, a, func(m message) error {
		now.table, now.dormant = true, num(find(m.body, unix.NFTA_TABLE_FLAGS))&dormant != 0
		return nil
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// dump asks for all objects of a kind in the family and calls fn for ours.
func (k *Kernel) dump(msg, tableAttr uint16, fn func(body []byte)) error {
	var a attrs
	a.text(tableAttr, ruleset.Table)
	return k.sock.request(nft(msg), unix.NLM_F_DUMP, unix.NFPROTO_INET, a, func(m message) error {
		if str(find(m.body, tableAttr)) == ruleset.Table {
			fn(m.body)
		}
		return nil
	})
}

func (k *Kernel) counters() (map[string]ruleset.Counter, error) {
	all := map[string]ruleset.Counter{}
	err := k.dump(unix.NFT_MSG_GETOBJ, unix.NFTA_OBJ_TABLE, func(b []byte) {
		if num(find(b, unix.NFTA_OBJ_TYPE)) != unix.NFT_OBJECT_COUNTER {
			return
		}
		data := find(b, unix.NFTA_OBJ_DATA)
		c := ruleset.Counter{
			Name:    str(find(b, unix.NFTA_OBJ_NAME)),
			Packets: num(find(data, unix.NFTA_COUNTER_PACKETS)),
			Bytes:   num(find(data, unix.NFTA_COUNTER_BYTES)),
		}
		all[c.Name] = c
	})
	return all, err
}

// hookNames is what the hook numbers of an inet table mean (kernel fact 2: ingress is 5).
var hookNames = []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}

func (k *Kernel) lookChains(now *live) error {
	err := k.dump(unix.NFT_MSG_GETCHAIN, unix.NFTA_CHAIN_TABLE, func(b []byte) {
		c := &liveChain{}
		if h := find(b, unix.NFTA_CHAIN_HOOK); h != nil {
			c.hook = &ruleset.Hook{
				Type:     str(find(b, unix.NFTA_CHAIN_TYPE)),
				Priority: int(int32(num(find(h, unix.NFTA_HOOK_PRIORITY)))),
				Drop:     num(find(b, unix.NFTA_CHAIN_POLICY)) == 0,
				Device:   hookDevice(h),
			}
			if n := int(num(find(h, unix.NFTA_HOOK_HOOKNUM))); n < len(hookNames) {
				c.hook.Name = hookNames[n]
			}
		}
		now.chains[str(find(b, unix.NFTA_CHAIN_NAME))] = c
	})
	if err != nil {
		return err
	}
	return k.dump(unix.NFT_MSG_GETRULE, unix.NFTA_RULE_TABLE, func(b []byte) {
		if c := now.chains[str(find(b, unix.NFTA_RULE_CHAIN))]; c != nil {
			c.rules = append(c.rules, readRule(b))
		}
	})
}

func readRule(b []byte) (r liveRule) {
	r.comment, r.hash = fromUserData(find(b, unix.NFTA_RULE_USERDATA))
	return r
}

// hookDevice is the device of an ingress hook, which newer kernels list under
// NFTA_HOOK_DEVS and not under NFTA_HOOK_DEV when the device is absent.
func hookDevice(hook []byte) string {
	const nftaHookDevs, nftaDeviceName = 4, 1
	if dev := find(hook, unix.NFTA_HOOK_DEV); dev != nil {
		return str(dev)
	}
	return str(find(hook, nftaHookDevs, nftaDeviceName))
}

func (k *Kernel) lookSets(now *live) error {
	return k.dump(unix.NFT_MSG_GETSET, unix.NFTA_SET_TABLE, func(b []byte) {
		s := &liveSet{name: str(find(b, unix.NFTA_SET_NAME)), def: readDefinition(b)}
		if s.def.flags&unix.NFT_SET_ANONYMOUS == 0 {
			now.sets[s.name] = s
		}
	})
}

func readDefinition(b []byte) definition {
	get := func(path ...uint16) uint32 { return uint32(num(find(b, path...))) }
	d := definition{
		flags:   get(unix.NFTA_SET_FLAGS),
		keyType: get(unix.NFTA_SET_KEY_TYPE), keyLen: get(unix.NFTA_SET_KEY_LEN),
		dataType: get(unix.NFTA_SET_DATA_TYPE), dataLen: get(unix.NFTA_SET_DATA_LEN),
		size: get(unix.NFTA_SET_DESC, unix.NFTA_SET_DESC_SIZE),
	}
	if d.flags&nftSetConcat != 0 {
		_ = each(find(b, unix.NFTA_SET_DESC, 2 /* NFTA_SET_DESC_CONCAT */), func(_ uint16, field []byte) {
			d.fields += string(rune(num(find(field, nftaFieldLen))))
		})
	}
	d.expr = str(find(b, nftaSetExpr, unix.NFTA_EXPR_NAME))
	if find(b, nftaSetExpressions) != nil {
		d.expr = "several" // nothing of ours has more than one
	}
	return d
}

// lookSet reads one set's definition; ENOENT when there is no such set.
func (s *sock) lookSet(name string) (*liveSet, error) {
	set := &liveSet{name: name}
	var a attrs
	a.text(unix.NFTA_SET_TABLE, ruleset.Table)
	a.text(unix.NFTA_SET_NAME, name)
	err := s.request(nft(unix.NFT_MSG_GETSET), 0, unix.NFPROTO_INET, a, func(m message) error {
		set.def = readDefinition(m.body)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("set %s: %w", name, err)
	}
	return set, nil
}

// shape is the set without its members.
func (s *liveSet) shape() ruleset.Set {
	shape := s.def.shape()
	shape.Name, shape.Origin = s.name, ruleset.Origin("set/"+s.name)
	return shape
}

// elements reads all elements of a set; ENOENT when there is no such set.
func (s *sock) elements(set string) ([]element, error) {
	var list []element
	err := s.eachElement(set, func(e element) {
		e.key, e.end, e.data = bytes.Clone(e.key), bytes.Clone(e.end), bytes.Clone(e.data)
		list = append(list, e)
	})
	return list, err
}

// eachElement calls fn for each element of a set, whose bytes are only there
// until it returns: a set may hold many.
func (s *sock) eachElement(set string, fn func(element)) error {
	return s.request(nft(unix.NFT_MSG_GETSETELEM), unix.NLM_F_DUMP, unix.NFPROTO_INET, setElems(set, 0), func(m message) error {
		return each(find(m.body, unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(_ uint16, b []byte) { fn(readElement(b)) })
	})
}

// readElement reads one element, whose bytes stay where they are.
func readElement(b []byte) (e element) {
	_ = each(b, func(typ uint16, v []byte) {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			e.key = find(v, unix.NFTA_DATA_VALUE)
		case nftaSetElemKeyEnd:
			e.end = find(v, unix.NFTA_DATA_VALUE)
		case unix.NFTA_SET_ELEM_DATA:
			e.data = find(v, unix.NFTA_DATA_VALUE)
		case unix.NFTA_SET_ELEM_FLAGS:
			e.isEnd = num(v)&unix.NFT_SET_ELEM_INTERVAL_END != 0
		case unix.NFTA_SET_ELEM_TIMEOUT:
			e.member.Timeout = time.Duration(num(v)) * time.Millisecond
		case unix.NFTA_SET_ELEM_EXPIRATION:
			e.member.Left = time.Duration(num(v)) * time.Millisecond
		case unix.NFTA_SET_ELEM_EXPR:
			if name := find(v, unix.NFTA_EXPR_NAME); string(name) == "counter\x00" {
				data := find(v, unix.NFTA_EXPR_DATA)
				e.counts = true
				e.member.Packets, e.member.Bytes = num(find(data, unix.NFTA_COUNTER_PACKETS)), num(find(data, unix.NFTA_COUNTER_BYTES))
			}
		}
	})
	return e
}

// shape is the set that the definition describes, without name and members. An
// unknown type of key or data is left out.
func (d definition) shape() ruleset.Set {
	return ruleset.Set{
		Key: typesOf(d.keyType), Data: typesOf(d.dataType), Size: d.size,
		Interval: d.flags&unix.NFT_SET_INTERVAL != 0,
		Timeout:  d.flags&unix.NFT_SET_TIMEOUT != 0,
		Dynamic:  d.flags&unix.NFT_SET_EVAL != 0,
		Counter:  d.expr == "counter",
	}
}

func typesOf(id uint32) []ruleset.Type {
	var types []ruleset.Type
	for ; id != 0; id >>= 6 {
		for t, n := range typeID {
			if n == id&0x3f {
				types = append([]ruleset.Type{t}, types...)
			}
		}
	}
	return types
}

// membersOf turns elements back into members, in the order of their keys.
func membersOf(shape ruleset.Set, list []element) []ruleset.Element {
	if !define(shape).paired() {
		var out []ruleset.Element
		for _, e := range list {
			out = append(out, e.whole(shape, string(e.key)))
		}
		return out
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b element) int {
		if c := bytes.Compare(a.key, b.key); c != 0 || a.isEnd == b.isEnd {
			return c
		}
		if a.isEnd {
			return -1
		}
		return 1
	})
	var out []ruleset.Element
	for i, e := range list {
		if e.isEnd {
			continue
		}
		hi := bytes.Repeat([]byte{0xff}, len(e.key))
		if i+1 < len(list) {
			hi = before(list[i+1].key)
		}
		m := e.member
		m.Key, m.Data = splitRange(shape.Key, string(e.key), string(hi)), splitValues(shape.Data, string(e.data))
		out = append(out, m)
	}
	return out
}

// whole is the member that an element of an unpaired set is; key is e.key.
func (e element) whole(shape ruleset.Set, key string) ruleset.Element {
	m, hi := e.member, key
	if e.end != nil {
		hi = string(e.end)
	}
	m.Key, m.Data = splitRange(shape.Key, key, hi), splitValues(shape.Data, string(e.data))
	return m
}

func splitRange(types []ruleset.Type, lo, hi string) []ruleset.Range {
	los := splitValues(types, lo)
	his := los
	if hi != lo {
		his = splitValues(types, hi)
	}
	out := make([]ruleset.Range, min(len(los), len(his)))
	for i := range out {
		out[i] = ruleset.Range{Lo: los[i], Hi: his[i]}
	}
	return out
}

// splitValues undoes joinValues.
func splitValues(types []ruleset.Type, s string) []ruleset.Value {
	var out []ruleset.Value
	for _, t := range types {
		n := t.Len()
		if len(s) < n {
			return nil
		}
		out = append(out, ruleset.Value(s[:n]))
		s = s[min((n+3)&^3, len(s)):]
	}
	return out
}
