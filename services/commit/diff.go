package commit

import (
	"fmt"
	"slices"
	"strings"

	"gatehouse/firewall"
)

// Word is one object that differs between two configurations.
type Word struct {
	Op   string // added, changed, removed, moved
	Ref  firewall.Ref
	Text string // the object, as a sentence; before an arrow and after it when changed
}

// words lists the objects that differ, in the order of the documents.
func words(a, b firewall.Config) []Word {
	was, is := objects(a), objects(b)
	before, after := index(was), index(is)
	var ws []Word
	for _, o := range is {
		old, ok := before[o.ref]
		switch {
		case !ok:
			ws = append(ws, Word{"added", o.ref, o.text})
		case a.Hash(o.ref) != b.Hash(o.ref) && old == o.text:
			ws = append(ws, Word{"changed", o.ref, o.text})
		case a.Hash(o.ref) != b.Hash(o.ref):
			ws = append(ws, Word{"changed", o.ref, old + " → " + o.text})
		}
	}
	for _, o := range was {
		if _, ok := after[o.ref]; !ok {
			ws = append(ws, Word{"removed", o.ref, o.text})
		}
	}
	return append(ws, moves(a, b, after)...)
}

// moves lists the fewest rules whose moving explains the new order.
func moves(a, b firewall.Config, after map[firewall.Ref]string) []Word {
	ids := func(c, other firewall.Config) (list []string) {
		there := map[firewall.ID]bool{}
		for _, r := range other.Rules {
			there[r.ID] = true
		}
		for _, r := range c.Rules {
			if there[r.ID] {
				list = append(list, string(r.ID))
			}
		}
		return list
	}
	var ws []Word
	for _, e := range lineDiff(ids(a, b), ids(b, a)) {
		if e.op == '+' {
			ref := firewall.Ref{Kind: "rule", Key: e.text}
			ws = append(ws, Word{"moved", ref, after[ref]})
		}
	}
	return ws
}

type object struct {
	ref  firewall.Ref
	text string
}

func index(list []object) map[firewall.Ref]string {
	m := make(map[firewall.Ref]string, len(list))
	for _, o := range list {
		m[o.ref] = o.text
	}
	return m
}

// objects lists everything in a configuration that can be changed by itself.
func objects(c firewall.Config) []object {
	list := []object{
		{firewall.Ref{Kind: "system"}, firewall.SetSystem{System: c.System}.String()},
		{firewall.Ref{Kind: "admin"}, firewall.SetAdmin{Admin: c.Admin}.String()},
		{firewall.Ref{Kind: "sources"}, firewall.SetSources{Sources: c.Sources}.String()},
	}
	add := func(kind, key, text string) { list = append(list, object{firewall.Ref{Kind: kind, Key: key}, text}) }
	for _, i := range c.Interfaces {
		add("interface", string(i.Name), "interface "+i.String())
	}
	for _, a := range c.Aliases {
		add("alias", string(a.Name), "alias "+a.String())
	}
	for _, r := range c.Rules {
		add("rule", string(r.ID), titled(r.Descr, "rule "+r.String()))
	}
	for _, f := range c.Forwards {
		add("forward", string(f.ID), titled(f.Descr, "forward "+f.String()))
	}
	for _, s := range c.Scopes {
		add("scope", string(s.In), firewall.PutScope{Scope: s}.String())
		for _, m := range s.Statics {
			add("static", string(m.ID), fmt.Sprintf("static mapping %s of %s", m.Addr, m.MAC))
		}
	}
	return list
}

// refs lists everything in a configuration that can appear and go.
func refs(c firewall.Config) []firewall.Ref {
	list := make([]firewall.Ref, 0, len(c.Rules)+len(c.Forwards)+len(c.Aliases)+len(c.Interfaces)+len(c.Scopes))
	for _, i := range c.Interfaces {
		list = append(list, firewall.Ref{Kind: "interface", Key: string(i.Name)})
	}
	for _, a := range c.Aliases {
		list = append(list, firewall.Ref{Kind: "alias", Key: string(a.Name)})
	}
	for _, r := range c.Rules {
		list = append(list, firewall.Ref{Kind: "rule", Key: string(r.ID)})
	}
	for _, f := range c.Forwards {
		list = append(list, firewall.Ref{Kind: "forward", Key: string(f.ID)})
	}
	for _, s := range c.Scopes {
		list = append(list, firewall.Ref{Kind: "scope", Key: string(s.In)})
		for _, m := range s.Statics {
			list = append(list, firewall.Ref{Kind: "static", Key: string(m.ID)})
		}
	}
	return list
}

func titled(descr, text string) string {
	if descr == "" {
		return text
	}
	return "“" + descr + "”: " + text
}

// edit is one line of a diff: ' ', '-' or '+'.
type edit struct {
	op   byte
	text string
}

// maxEdits bounds the work: two texts that differ in more lines than this are
// shown as one replaced by the other.
const maxEdits = 2000

// lineDiff is a shortest list of edits from a to b (E. Myers, "An O(ND)
// Difference Algorithm and Its Variations", 1986).
func lineDiff(a, b []string) []edit {
	lead := 0
	for lead < len(a) && lead < len(b) && a[lead] == b[lead] {
		lead++
	}
	tail := 0
	for tail < len(a)-lead && tail < len(b)-lead && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var out []edit
	for _, s := range a[:lead] {
		out = append(out, edit{' ', s})
	}
	out = append(out, middle(a[lead:len(a)-tail], b[lead:len(b)-tail])...)
	for _, s := range a[len(a)-tail:] {
		out = append(out, edit{' ', s})
	}
	return out
}

// middle finds the edits between two texts that differ at both ends. Row d of
// the trail holds how far in a one gets with d edits, for each diagonal
// k = -d, -d+2 ... d (x in a less y in b).
func middle(a, b []string) []edit {
	var trail [][]int32
	for d := 0; d <= min(len(a)+len(b), maxEdits); d++ {
		row := make([]int32, d+1)
		for i := range row {
			k, x := 2*i-d, 0
			if d > 0 {
				x, _ = step(trail[d-1], i)
			}
			for x < len(a) && x-k < len(b) && a[x] == b[x-k] {
				x++
			}
			row[i] = int32(x)
			if x >= len(a) && x-k >= len(b) {
				return walk(a, b, append(trail, row))
			}
		}
		trail = append(trail, row)
	}
	var out []edit
	for _, s := range a {
		out = append(out, edit{'-', s})
	}
	for _, s := range b {
		out = append(out, edit{'+', s})
	}
	return out
}

// step is where one more edit leads on diagonal i of the row after prev, and
// whether it takes a line of b (else it drops one of a).
func step(prev []int32, i int) (x int, insert bool) {
	if i == 0 || i < len(prev) && prev[i-1] < prev[i] {
		return int(prev[i]), true
	}
	return int(prev[i-1]) + 1, false
}

// walk goes back along the rows that led to the end.
func walk(a, b []string, trail [][]int32) []edit {
	var out []edit
	x, y := len(a), len(b)
	for d := len(trail) - 1; d > 0; d-- {
		from, insert := step(trail[d-1], (x-y+d)/2)
		for ; x > from; x, y = x-1, y-1 {
			out = append(out, edit{' ', a[x-1]})
		}
		if insert {
			y--
			out = append(out, edit{'+', b[y]})
		} else {
			x--
			out = append(out, edit{'-', a[x]})
		}
	}
	for ; x > 0; x-- {
		out = append(out, edit{' ', a[x-1]})
	}
	slices.Reverse(out)
	return out
}

// unified writes edits with three lines around each change, and counts.
func unified(edits []edit) (text string, added, removed int) {
	const around = 3
	show := make([]bool, len(edits))
	for i, e := range edits {
		switch e.op {
		case '+':
			added++
		case '-':
			removed++
		default:
			continue
		}
		for j := max(0, i-around); j < min(len(edits), i+around+1); j++ {
			show[j] = true
		}
	}
	var b strings.Builder
	left, right := 1, 1
	for i, e := range edits {
		if show[i] {
			if i == 0 || !show[i-1] {
				fmt.Fprintf(&b, "@@ -%d +%d @@\n", left, right)
			}
			b.WriteByte(e.op)
			b.WriteString(e.text)
			b.WriteByte('\n')
		}
		if e.op != '+' {
			left++
		}
		if e.op != '-' {
			right++
		}
	}
	return b.String(), added, removed
}

// textDiff is the unified diff of two texts.
func textDiff(a, b string) (text string, added, removed int) {
	return unified(lineDiff(strings.Split(a, "\n"), strings.Split(b, "\n")))
}
