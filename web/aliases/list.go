package aliases

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/page"
)

// list is the page of aliases.
type list struct {
	Frame page.Frame
	Query string
	Rows  []row
	Total int // aliases, found or not
}

// row is one alias as it is shown.
type row struct {
	firewall.Alias
	State string        // "", new, changed, deleted
	Was   firewall.Name // what it is called now, when the draft renames it
	Hash  string        // only of one that nobody uses: what its Delete button carries
	Sizes []string      // how much it stands for, by family
	Uses  []use
}

// use is an object in which an alias stands.
type use struct {
	Kind string // Rule, Forward, Alias
	Text string // "“Web servers”", or the name
	Path string
	As   string // what for, where that is not plain: "never locked out"
}

// find puts the rows together, with the aliases that the draft deletes.
func find(v commit.View, query string) list {
	l := list{Query: query, Total: len(v.Config.Aliases)}
	renamed, stands := renames(v), v.Config.AliasUses()
	for _, a := range v.Config.Aliases {
		if !matches(v.Config, a, query) {
			continue
		}
		r := row{Alias: a, Was: renamed[a.Name], Sizes: sizes(v.Config, a), Uses: uses(v.Config, stands[a.Name])}
		switch old, there := v.Head.Alias(cmp.Or(r.Was, a.Name)); {
		case !there:
			r.State = "new"
		case r.Was != "" || !reflect.DeepEqual(old, a): // one that is untouched shares its list
			r.State = "changed"
		}
		if len(r.Uses) == 0 {
			r.Hash = v.Config.Hash(ref(a.Name))
		}
		l.Rows = append(l.Rows, r)
	}
	for _, a := range v.Head.Aliases {
		_, there := v.Config.Alias(a.Name)
		moved := slices.ContainsFunc(l.Rows, func(r row) bool { return r.Was == a.Name })
		if !there && !moved && matches(v.Head, a, query) {
			l.Rows = append(l.Rows, row{Alias: a, State: "deleted", Sizes: sizes(v.Head, a)})
		}
	}
	return l
}

// renames is what aliases of the draft are called in what runs, when a change
// of the draft says so.
func renames(v commit.View) map[firewall.Name]firewall.Name {
	out := map[firewall.Name]firewall.Name{}
	for _, it := range v.Items {
		if it.Ref.Kind != "alias" {
			continue
		}
		old := firewall.Name(it.Ref.Key)
		if _, ran := v.Head.Alias(old); !ran {
			continue
		}
		for _, a := range v.Config.Aliases {
			if it.Sentence == (firewall.UpdateAlias{Name: old, Alias: a}).String() && a.Name != old {
				out[a.Name] = old
			}
		}
	}
	return out
}

// matches reports whether a search finds an alias: by name, description, value
// or note, and by any address that it stands for.
func matches(c firewall.Config, a firewall.Alias, query string) bool {
	if query == "" {
		return true
	}
	if addr, err := firewall.ParseAddr(query); err == nil {
		return slices.ContainsFunc(c.AliasAddrs(a.Name), func(r firewall.AddrRange) bool { return r.Contains(addr) })
	}
	low := strings.ToLower(query)
	return strings.Contains(strings.ToLower(string(a.Name)+"\n"+a.Descr), low) || strings.Contains(strings.ToLower(a.Lines()), low)
}

// uses is the objects of the places where an alias stands, each once.
func uses(c firewall.Config, places []firewall.Use) (list []use) {
	last := firewall.Ref{}
	for _, u := range places {
		if u.Ref != last {
			list, last = append(list, used(c, u.Ref)), u.Ref
			if u.Field == "never" {
				list[len(list)-1].As = "never locked out"
			}
		}
	}
	return list
}

// used is an object as the pages call it; without Text when it is not there.
func used(c firewall.Config, r firewall.Ref) use {
	switch r.Kind {
	case "rule":
		if v, ok := c.Rule(firewall.ID(r.Key)); ok {
			return use{Kind: "Rule", Text: "“" + cmp.Or(v.Descr, v.String()) + "”", Path: "/rules/" + r.Key}
		}
	case "forward":
		if v, ok := c.Forward(firewall.ID(r.Key)); ok {
			return use{Kind: "Forward", Text: "“" + cmp.Or(v.Descr, v.String()) + "”", Path: "/forwards/" + r.Key}
		}
	case "alias":
		if _, ok := c.Alias(firewall.Name(r.Key)); ok {
			return use{Kind: "Alias", Text: r.Key, Path: "/aliases/" + r.Key}
		}
	}
	return use{}
}

// counted is "2 rules, 1 forward".
func counted(list []use) string {
	n := map[string]int{}
	for _, u := range list {
		n[u.Kind]++
	}
	var parts []string
	for _, k := range []string{"Rule", "Forward"} {
		if n[k] > 0 {
			parts = append(parts, page.Count(n[k], strings.ToLower(k)))
		}
	}
	switch {
	case n["Alias"] == 1:
		parts = append(parts, "1 other alias")
	case n["Alias"] > 1:
		parts = append(parts, fmt.Sprintf("%d other aliases", n["Alias"]))
	}
	return strings.Join(parts, ", ")
}

func (r row) class() string {
	return map[string]string{"new": "new", "changed": "changed", "deleted": "gone"}[r.State]
}

func (r row) entries() string { return digits(uint64(len(r.Addrs) + len(r.Ports))) }

// warning is what the owner of an alias may not expect.
func (r row) warning() string {
	if len(r.Sizes) > 0 || r.State == "deleted" || len(r.Uses) == 0 {
		return ""
	}
	if r.Kind == firewall.PortList {
		return "Empty: no port matches where it is used."
	}
	return "Empty: nobody matches where it is used."
}

// toast is what is said when the alias was saved.
func (e editor) toast(c firewall.Config, value firewall.Alias, it firewall.Items) string {
	inside := len(value.Redundant())
	text := "Saved: " + string(value.Name) + ", " + head(firewall.Items{Addrs: it.Addrs, Ports: it.Ports, Twice: it.Twice}, inside)
	if n := len(it.Bad); n > 0 {
		text += ", " + number(n, "bad line") + " skipped"
	}
	text += "."
	if e.Old.Name != "" && e.Old.Name != value.Name {
		if along := uses(c, c.AliasUses()[e.Old.Name]); len(along) > 0 {
			text += " The new name was put into " + counted(along) + "."
		}
	}
	for _, s := range remarks(it) {
		text += " " + strings.ReplaceAll(s, "`", "")
	}
	if long := []rune(text); len(long) > 250 { // a toast is read at a glance, and travels in a cookie
		return string(long[:249]) + "…"
	}
	return text
}
