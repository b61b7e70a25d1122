package kernel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

// Add puts members into their sets, all or none. One that is there already gets
// its timeout anew, or none any more, and goes on counting; no packet meets the
// set without it.
func (k *Kernel) Add(ctx context.Context, members ...ruleset.Member) error {
	return k.edit(ctx, members, true)
}

// Remove takes members out of their sets, all or none. One that is not there is no error.
func (k *Kernel) Remove(ctx context.Context, members ...ruleset.Member) error {
	return k.edit(ctx, members, false)
}

// edit is members on their way into their sets (keep) or out of them. Which of
// them are there already nobody knows before: rules add some and time takes some
// away. So it sends the batch as if none, or all, were; the kernel names every
// message of it that does not fit, and changes nothing; what was learned from
// that makes the next batch. Members share messages of up to 1,000, until one of
// them was in the way of the others: then each gets its own.
type edit struct {
	keep   bool
	units  []*unit
	shapes map[string]ruleset.Set // of the sets, as they are now
	sent   []sending              // the messages of the last batch
}

// unit is a member and what is known about it.
type unit struct {
	ruleset.Member
	there bool // it is in the set
	alone bool // it gets a message of its own
	asked bool // what it counted so far is in it

	keys, whole attrs // its elements as lists, encoded when they are first needed
}

// sending is a message: the members that it is about, and whether they must not be there.
type sending struct {
	units []*unit
	fresh bool
}

func (k *Kernel) edit(ctx context.Context, members []ruleset.Member, keep bool) (err error) {
	e := &edit{keep: keep}
	for _, m := range members {
		e.units = append(e.units, &unit{Member: m, there: !keep})
	}
	for range attempts {
		err = k.transact(ctx, true, func(uint32) (*batch, error) {
			if err := k.shapes(e); err != nil {
				return nil, err
			}
			if err := k.recall(e); err != nil {
				return nil, err
			}
			return e.batch()
		})
		if err == nil || !e.learn(err) {
			return err
		}
	}
	return err
}

// shapes looks at the sets.
func (k *Kernel) shapes(e *edit) error {
	e.shapes = map[string]ruleset.Set{}
	for _, u := range e.units {
		if _, ok := e.shapes[u.Set]; !ok {
			s, err := k.sock.lookSet(u.Set)
			if err != nil {
				return err
			}
			e.shapes[u.Set] = s.shape()
		}
	}
	return nil
}

// recall asks for what the members that are there counted, since to change a
// timeout is to put in anew (the kernel has done it by an update since 6.12 only).
func (k *Kernel) recall(e *edit) error {
	if !e.keep {
		return nil
	}
	bySet := map[string]map[string]*unit{} // and by key
	for _, u := range e.units {
		shape := e.shapes[u.Set]
		if !u.there || u.asked || !shape.Counter {
			continue
		}
		u.asked = true
		if bySet[u.Set] == nil {
			bySet[u.Set] = map[string]*unit{}
		}
		bySet[u.Set][string(keyOf(u.Element))] = u
	}
	for set, units := range bySet {
		for keys := range slices.Chunk(slices.Collect(maps.Keys(units)), maxElements) {
			body, list := setElems(set, 0), attrs{}
			for _, key := range keys {
				list.nest(unix.NFTA_LIST_ELEM, element{key: []byte(key)}.body())
			}
			body.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, list)
			err := k.sock.request(nft(unix.NFT_MSG_GETSETELEM), unix.NLM_F_ACK, unix.NFPROTO_INET, body, func(m message) error {
				return each(find(m.body, unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(_ uint16, b []byte) {
					now := readElement(b)
					if u := units[string(now.key)]; u != nil && now.member.Packets > u.Packets {
						u.Packets, u.Bytes, u.whole = now.member.Packets, now.member.Bytes, nil
					}
				})
			})
			if err != nil && !errors.Is(err, unix.ENOENT) { // one that has just gone
				return fmt.Errorf("read what set %s counted: %w", set, err)
			}
		}
	}
	return nil
}

// keyOf is the first value of a member as it lies in a register.
func keyOf(m ruleset.Element) []byte {
	lo := make([]ruleset.Value, len(m.Key))
	for i, r := range m.Key {
		lo[i] = r.Lo
	}
	return joinValues(lo)
}

// batch takes out what is there, and puts in what is to be kept.
func (e *edit) batch() (*batch, error) {
	b := &batch{}
	e.sent = nil
	there, absent := func(u *unit) bool { return u.there }, func(u *unit) bool { return !u.there }
	e.messages(b, unix.NFT_MSG_DELSETELEM, 0, there)
	if e.keep {
		e.messages(b, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, there)
		e.messages(b, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE|unix.NLM_F_EXCL, absent)
	}
	return b, b.problem()
}

// messages appends messages for the units that pick picks. The elements of one
// unit are never divided.
func (e *edit) messages(b *batch, msg, flags uint16, pick func(*unit) bool) {
	var list attrs
	var units []*unit
	flush := func() {
		if len(units) == 0 {
			return
		}
		shape := e.shapes[units[0].Set]
		body := setElems(shape.Name, 0)
		body.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, list)
		b.add(msg, flags, shape.Origin, "members of set "+shape.Name, body)
		e.sent = append(e.sent, sending{units, flags&unix.NLM_F_EXCL != 0})
		list, units = nil, nil
	}
	for _, u := range e.units {
		if !pick(u) {
			continue
		}
		shape := e.shapes[u.Set]
		one, err := u.body(shape, msg == unix.NFT_MSG_DELSETELEM)
		if err != nil {
			b.refuse(shape.Origin, "set "+shape.Name, err)
			continue
		}
		if len(units) == maxElements || len(list)+len(one) > maxElementBytes ||
			len(units) > 0 && (u.alone || units[0].alone || u.Set != units[0].Set) {
			flush()
		}
		list, units = append(list, one...), append(units, u)
	}
	flush()
}

// body is the elements of the member as a list of attributes, or only their keys.
func (u *unit) body(shape ruleset.Set, bare bool) (attrs, error) {
	list := &u.whole
	if bare {
		list = &u.keys
	}
	if *list != nil {
		return *list, nil
	}
	elements, err := elementsOf(shape, []ruleset.Element{u.Element})
	if len(elements) > 1 && elements[0].isEnd { // the end at zero is none of this member
		elements = elements[1:]
	}
	for _, e := range elements {
		if bare {
			e.counts, e.member = false, ruleset.Element{}
		}
		list.nest(unix.NFTA_LIST_ELEM, e.body())
	}
	return *list, err
}

// learn reports whether another batch may do, after the kernel refused this one:
// when all that it has against it is that some member was there, or was not.
func (e *edit) learn(err error) bool {
	refusals := []error{err}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		refusals = all.Unwrap()
	}
	for _, err := range refusals {
		if errors.Is(err, errUnheard) { // whatever came of it, the same again is no harm
			continue
		}
		r, ok := err.(*Refusal)
		if !ok || r.message == 0 || int(r.message) > len(e.sent) {
			return false
		}
		m := e.sent[r.message-1]
		there := r.Errno == unix.EEXIST
		if there != m.fresh || !there && r.Errno != unix.ENOENT {
			return false // a member overlaps another, the set is full ...
		}
		for _, u := range m.units {
			if u.alone = len(m.units) > 1; !u.alone {
				u.there = there
			}
		}
	}
	return true
}
