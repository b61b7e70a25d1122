// Package forwards is the pages of the port forwards: their list and editor.
package forwards

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/draft"
	"gatehouse/web/page"
)

// Host is a machine inside that a forward can lead to.
type Host struct {
	Addr netip.Addr
	Name string // as leases or static mappings know it; empty: unknown
}

// Deps is what the pages need; Hits and Hosts may be nil.
type Deps struct {
	draft.Desk
	Hits  func() map[firewall.ID]uint64 // packets by forward
	Hosts func() []Host                 // leases and the like, for suggestions
}

// New returns the routes of the forwards.
func New(d Deps) []page.Route {
	p := &pages{d}
	return []page.Route{
		{Method: http.MethodGet, Path: "/forwards", Serve: p.list},
		{Method: http.MethodPost, Path: "/forwards", Serve: p.act},
		{Method: http.MethodGet, Path: "/forwards/new", Serve: p.new},
		{Method: http.MethodPost, Path: "/forwards/new", Serve: p.save},
		{Method: http.MethodGet, Path: "/forwards/{id}", Serve: p.edit},
		{Method: http.MethodPost, Path: "/forwards/{id}", Serve: p.save},
	}
}

type pages struct{ Deps }

func ref(id firewall.ID) firewall.Ref { return firewall.Ref{Kind: "forward", Key: string(id)} }

func (p *pages) list(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	l := p.find(v)
	l.Frame = page.FrameFor(r, "Port forwards", "/forwards")
	return page.Render(w, r, http.StatusOK, listPage(l))
}

// act does what a row's button asks for: verb:id:hash.
func (p *pages) act(w http.ResponseWriter, r *http.Request) error {
	op, err := draft.ReadOp(r)
	if err != nil {
		return err
	}
	v, id := p.View(r), firewall.ID(op.Key)
	old, there := v.Config.Forward(id)
	name := "“" + title(old) + "”"
	edit := draft.Edit{Hash: op.Hash, Stale: stale}
	var toast page.Toast
	switch {
	case op.Verb == "undo":
		toast, err = p.Undo(r, ref(id))
	case !there:
		return page.NotFound{What: "This forward"}
	case op.Verb == "toggle":
		old.On = !old.On
		edit.Changes = []firewall.Change{firewall.UpdateForward{Forward: old}}
		edit.Said = map[bool]string{true: "Switched on: ", false: "Switched off: "}[old.On] + name
	case op.Verb == "delete":
		edit.Changes = []firewall.Change{firewall.DeleteForward{ID: id, Descr: title(old)}}
		edit.Said = "Deleted: " + name
	default:
		return op.Unknown()
	}
	if edit.Changes != nil {
		toast, err = p.Put(r, v, edit)
	}
	if err != nil {
		return err
	}
	page.Say(w, toast)
	return page.Go(w, r, at(id))
}

// at is where a forward stands in the list.
func at(id firewall.ID) string { return "/forwards#f-" + string(id) }

func (p *pages) new(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	f := blank(v.Config)
	if old, ok := v.Config.Forward(firewall.ID(r.URL.Query().Get("copy"))); ok {
		f = show(v.Config, old)
	}
	return p.editor(w, r, http.StatusOK, v, editor{form: f})
}

func (p *pages) edit(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	old, ok := v.Config.Forward(firewall.ID(r.PathValue("id")))
	if !ok {
		return page.NotFound{What: "This forward"}
	}
	e := editor{form: show(v.Config, old), Old: old, RuleHash: v.Config.Hash(ruleRef(old.Rule))}
	e.Hash = v.Config.Hash(ref(old.ID))
	return p.editor(w, r, http.StatusOK, v, e)
}

// save keeps a new forward, or one that is there, or shows the editor again
// with everything that is wrong.
func (p *pages) save(w http.ResponseWriter, r *http.Request) error {
	in, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	e := editor{form: read(in), Editor: draft.Read(in), RuleHash: in.Get("rule_hash")}
	if err := in.Done(); err != nil {
		return err
	}
	v := p.View(r)
	if id := firewall.ID(r.PathValue("id")); id != "" {
		var ok bool
		if e.Old, ok = v.Config.Forward(id); !ok {
			return page.NotFound{What: "This forward"}
		}
	}
	edit, value, ps := e.edit(v.Config)
	edit.Stale = func(err *commit.StaleError) page.StaleError {
		e.RuleHash = err.Theirs.Hash(ruleRef(e.Old.Rule))
		return stale(err)
	}
	if len(ps) > 0 {
		e.Problems = own(alsoWrong(ps, v.Config, edit.Changes), value.Rule)
		return p.editor(w, r, http.StatusUnprocessableEntity, v, e)
	}
	status, err := p.Save(w, r, v, &e.Editor, edit)
	if status != 0 {
		e.Problems = own(e.Problems, value.Rule)
		return p.editor(w, r, status, v, e)
	}
	return err
}

// edit is what the form asks for: the forward as it should be, its linked
// rule's limit along with it, and what cannot be read of either.
func (e editor) edit(c firewall.Config) (draft.Edit, firewall.Forward, firewall.Problems) {
	value, ps := e.forward(e.Old, commit.NewID())
	was := ruleOf(c, e.Old).Limit
	limit, wrong := e.limit(c, was)
	var change firewall.Change = firewall.UpdateForward{Forward: value}
	if e.Old.ID == "" {
		value.ID = commit.NewID()
		change = firewall.AddForward{Forward: value}
	}
	out := draft.Edit{Changes: []firewall.Change{change}, Said: "Saved: “" + title(value) + "”", Back: at(value.ID)}
	if value.Rule != "" && limit != was {
		out.Changes = append(out.Changes, firewall.SetLimit{Rule: value.Rule, Limit: limit, Descr: title(value)})
	}
	// A limit that is set, or goes with its rule, must be the one that was seen;
	// the rest of the rule stays as it is.
	if e.Old.Rule != "" && (len(out.Changes) > 1 || value.Rule == "") {
		out.Along = commit.Along(ruleRef(e.Old.Rule), e.RuleHash)
	}
	return out, value, append(ps, wrong...)
}

// alsoWrong adds what validation finds in the fields that could be read.
func alsoWrong(ps firewall.Problems, c firewall.Config, changes []firewall.Change) firewall.Problems {
	next := c
	for _, change := range changes {
		var err error
		if next, err = change.Apply(next); err != nil {
			return append(ps, firewall.Problem{Text: page.Sentence(err)})
		}
	}
	return page.And(ps, page.Found(c, next, changes[0].Ref()))
}

// own puts the problems of the linked rule's limit beside the form's fields, and
// leaves out what else that rule repeats of its forward's problems.
func own(ps firewall.Problems, rule firewall.ID) firewall.Problems {
	told := map[string]bool{}
	for _, p := range ps {
		told[p.Field] = true
	}
	var mine, others firewall.Problems
	for _, p := range ps {
		field, linked := strings.CutPrefix(p.Field, ruleRef(rule).String()+".")
		switch {
		case linked && slices.Contains(page.LimitFields(), field) && told[field]: // one that could not be read
		case linked && slices.Contains(page.LimitFields(), field):
			mine = append(mine, firewall.Problem{Field: field, Text: p.Text})
		case strings.Contains(p.Field, "/"):
			others = append(others, p)
		default:
			mine = append(mine, p)
		}
	}
	if len(mine) == 0 {
		return others
	}
	return append(mine, slices.DeleteFunc(others, func(p firewall.Problem) bool { return strings.HasPrefix(p.Field, "rule/") })...)
}

// ruled is a forward with the limit of its linked rule.
type ruled struct {
	firewall.Forward
	Limit firewall.Limit
}

// String says what the forward does, and how much of it one source may use.
func (f ruled) String() string {
	if f.Limit.On() {
		return f.Forward.String() + ", at most " + f.Limit.String()
	}
	return f.Forward.String()
}

func withLimit(c firewall.Config, id firewall.ID) (ruled, bool) {
	f, ok := c.Forward(id)
	return ruled{f, ruleOf(c, f).Limit}, ok
}

// ruleOf is the linked rule of a forward; the zero value when it has none.
func ruleOf(c firewall.Config, f firewall.Forward) firewall.Rule {
	r, _ := c.Rule(f.Rule)
	return r
}

func ruleRef(id firewall.ID) firewall.Ref { return firewall.Ref{Kind: "rule", Key: string(id)} }

func stale(err *commit.StaleError) page.StaleError {
	return draft.Kind[ruled, firewall.ID]{Word: "Forward", Home: "/forwards", Path: "/forwards/", Get: withLimit,
		Name: func(f ruled) string { return "Forward “" + title(f.Forward) + "”" }, Line: ruled.String, Fields: fields}.Stale(err)
}

// editor is the page of one forward.
type editor struct {
	draft.Editor
	form
	Config   firewall.Config
	Old      firewall.Forward // as it is in the draft; without ID: a new one
	RuleHash string           // of its linked rule as it was shown
	Hosts    []Host
}

func (p *pages) editor(w http.ResponseWriter, r *http.Request, status int, v commit.View, e editor) error {
	name := "New port forward"
	if e.Old.ID != "" {
		name = "Edit port forward"
	}
	e.Open(r, v, ref(e.Old.ID), name, "/forwards")
	e.Config, e.Hosts = v.Config, p.hosts(v.Config)
	e.Warnings = warned(page.Warnings(v.Config), e.Old)
	return page.Render(w, r, status, editPage(e))
}

// hosts is who a forward can lead to: static mappings first, then leases.
func (p *pages) hosts(c firewall.Config) (list []Host) {
	for _, s := range c.Scopes {
		for _, m := range s.Statics {
			list = append(list, Host{m.Addr, m.Host})
		}
	}
	if p.Deps.Hosts == nil {
		return list
	}
	for _, h := range p.Deps.Hosts() {
		if !slices.ContainsFunc(list, func(o Host) bool { return o.Addr == h.Addr }) {
			list = append(list, h)
		}
	}
	return list
}

// warned is what a forward and its linked rule do that their owner may not expect.
func warned(all map[firewall.Ref][]string, f firewall.Forward) []string {
	list := slices.Clone(all[ref(f.ID)])
	for _, text := range all[ruleRef(f.Rule)] {
		if !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}
