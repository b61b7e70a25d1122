package tables

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/services/quarantine"
	"gatehouse/web/draft"
	"gatehouse/web/page"
)

// neverMark stands before the token of an undo that also takes the draft back.
const neverMark = "never-"

var neverRef = firewall.Ref{Kind: "alias", Key: string(firewall.NeverQuarantine)}

// never releases a source, exempts it for a day, and writes it into the alias
// NEVER_QUARANTINE of the draft, so that it stays exempt after the next Apply.
func (p *pages) never(ctx context.Context, r *http.Request, o op) (done, error) {
	v := p.View(r)
	e, _ := p.Lists.Get(o.src)
	changes, said := exempting(v.Config, o.src, e.Rule)
	if len(changes) > 0 {
		err := p.Drafts.Save(r.Context(), p.Who(r), v.Config.Hash(changes[0].Ref()), changes...)
		if s, ok := errors.AsType[*commit.StaleError](err); ok {
			return done{}, staleAlias(s)
		}
		if err != nil {
			return done{}, err
		}
	}
	// What was in the draft before is nobody's to take back here.
	alone := len(changes) > 0 && !slices.ContainsFunc(refs(changes), func(ref firewall.Ref) bool { return pending(v, ref) })
	d, err := p.release(ctx, r, o, []netip.Prefix{o.src}, quarantine.Options{Exempt: exemptFor})
	if err != nil {
		if alone {
			err = errors.Join(err, p.Drafts.Discard(r.Context(), p.Who(r), refs(changes)...))
		}
		return d, err
	}
	d.toast.Text += " " + said
	d.ghost.Text = d.toast.Text
	if alone && d.toast.With != "" { // Undo takes the draft back, too
		d.toast.With, d.ghost.Op = neverMark+d.toast.With, "undo:"+neverMark+strings.TrimPrefix(d.ghost.Op, "undo:")
	}
	return d, nil
}

// exempting is what makes a source exempt in a configuration, with a sentence: a
// line of the alias and, when the limit that caught it exempts nobody yet, the
// alias in that limit.
func exempting(c firewall.Config, src netip.Prefix, by firewall.ID) (changes []firewall.Change, said string) {
	said = fmt.Sprintf("It is exempt for 24 hours, and after the next Apply as long as it is in %s.", firewall.NeverQuarantine)
	if change := inAlias(c, src); change != nil {
		changes = append(changes, change)
	}
	rule, ok := c.Rule(by)
	switch l := rule.Limit; {
	case !ok || l.Never == firewall.NeverQuarantine:
	case l.Never == "":
		l.Never = firewall.NeverQuarantine
		changes = append(changes, firewall.SetLimit{Rule: rule.ID, Limit: l, Descr: rule.Descr})
	default:
		said = fmt.Sprintf("It is exempt for 24 hours. The rule exempts %s, not %s: write it there too.", l.Never, firewall.NeverQuarantine)
	}
	if len(changes) == 0 && ok {
		said = fmt.Sprintf("It is exempt for 24 hours; your draft has it in %s already.", firewall.NeverQuarantine)
	}
	return changes, said
}

// inAlias puts a source into the alias, which it makes when there is none; nil
// when the source is in it.
func inAlias(c firewall.Config, src netip.Prefix) firewall.Change {
	for _, in := range c.AliasAddrs(firewall.NeverQuarantine) {
		if whole := firewall.PrefixRange(src); in.Contains(whole.From) && in.Contains(whole.To) {
			return nil
		}
	}
	end := firewall.End{Kind: firewall.EndNet, Net: src}
	if src.IsSingleIP() {
		end = firewall.End{Kind: firewall.EndAddr, Addr: src.Addr()}
	}
	entry := firewall.Entry{End: end, Note: "released, never again"}
	a, ok := c.Alias(firewall.NeverQuarantine)
	if !ok {
		return firewall.AddAlias{Alias: firewall.Alias{Name: firewall.NeverQuarantine, Kind: firewall.Addresses,
			Descr: "Limited like all others, but never locked out", Addrs: []firewall.Entry{entry}}}
	}
	a.Addrs = append(slices.Clone(a.Addrs), entry)
	return firewall.UpdateAlias{Name: a.Name, Alias: a}
}

// forget takes the change of the alias out of the draft again, when it is the
// only one there.
func (p *pages) forget(r *http.Request) string {
	v := p.View(r)
	var mine []firewall.Ref
	for _, i := range v.Items {
		if i.Ref == neverRef || i.Ref.Kind == "rule" && onlyNever(v, i.Ref) {
			mine = append(mine, i.Ref)
		}
	}
	if len(mine) == 0 {
		return ""
	}
	if err := p.Drafts.Discard(r.Context(), p.Who(r), mine...); err != nil {
		return fmt.Sprintf("Your draft still has it in %s.", firewall.NeverQuarantine)
	}
	return "Your draft is as it was."
}

// onlyNever reports whether all that the draft does to a rule is to exempt the alias.
func onlyNever(v commit.View, ref firewall.Ref) bool {
	was, there := v.Head.Rule(firewall.ID(ref.Key))
	is, ok := v.Config.Rule(firewall.ID(ref.Key))
	if !there || !ok || was.Limit.Never != "" || is.Limit.Never != firewall.NeverQuarantine {
		return false
	}
	was.Limit.Never = is.Limit.Never
	return was.Hash() == is.Hash()
}

func pending(v commit.View, ref firewall.Ref) bool {
	return slices.ContainsFunc(v.Items, func(i commit.Item) bool { return i.Ref == ref })
}

func refs(cs []firewall.Change) (out []firewall.Ref) {
	for _, c := range cs {
		out = append(out, c.Ref())
	}
	return out
}

func staleAlias(err *commit.StaleError) page.StaleError {
	return draft.Kind[firewall.Alias, firewall.Name]{Word: "Alias", Home: "/aliases", Path: "/aliases/", Get: firewall.Config.Alias,
		Name: func(a firewall.Alias) string { return "Alias " + string(a.Name) },
		Line: func(a firewall.Alias) string { return page.Count(len(a.Addrs), "line") },
		Fields: func(theirs, yours firewall.Alias) []page.Stale {
			return page.Differ([]string{"Lines"}, []string{fmt.Sprint(len(theirs.Addrs))}, []string{fmt.Sprint(len(yours.Addrs))})
		}}.Stale(err)
}
