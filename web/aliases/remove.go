package aliases

import (
	"errors"
	"fmt"
	"net/http"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/draft"
	"gatehouse/web/page"
)

// remover is the page that asks what becomes of those who use an alias.
type remover struct {
	draft.Editor
	Alias firewall.Alias
	Uses  []use
	By    string        // the alias that was chosen
	Able  []page.Option // aliases that can take its place
}

// delete removes an alias that nobody uses; else it asks what should take its place.
func (p *pages) delete(w http.ResponseWriter, r *http.Request, v commit.View, name firewall.Name, hash string) error {
	old, there := v.Config.Alias(name)
	if !there {
		return page.NotFound{What: "This alias"}
	}
	toast, err := p.Put(r, v, draft.Edit{Changes: []firewall.Change{firewall.DeleteAlias{Name: name}}, Hash: hash, Stale: stale(""),
		Said: "Deleted: " + string(name) + "."})
	if ps, ok := errors.AsType[firewall.Problems](err); ok {
		return p.ask(w, r, v, old, "", elsewhere(v.Config, ps))
	}
	if err != nil {
		return err
	}
	page.Say(w, toast)
	return page.Go(w, r, at(name))
}

// askDelete shows who uses an alias, and what could take its place.
func (p *pages) askDelete(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	old, ok := v.Config.Alias(firewall.Name(r.PathValue("name")))
	if !ok {
		return page.NotFound{What: "This alias"}
	}
	return p.ask(w, r, v, old, "", nil)
}

func (p *pages) ask(w http.ResponseWriter, r *http.Request, v commit.View, old firewall.Alias, by string, ps firewall.Problems) error {
	d := remover{Alias: old, By: by, Uses: uses(v.Config, v.Config.AliasUses()[old.Name]), Able: able(v.Config, old)}
	d.Hash, d.Problems = v.Config.Hash(ref(old.Name)), ps
	d.Open(r, v, ref(old.Name), "Delete alias "+string(old.Name), "/aliases")
	status := http.StatusOK
	if len(ps) > 0 {
		status = http.StatusUnprocessableEntity
	}
	return page.Render(w, r, status, removePage(d))
}

// able is the aliases that can take the place of another: of its kind, and not
// around it.
func able(c firewall.Config, old firewall.Alias) (list []page.Option) {
	for _, a := range c.Aliases {
		if _, err := (firewall.ReplaceAlias{Old: old.Name, New: a.Name}).Apply(c); err != nil {
			continue
		}
		label := fmt.Sprintf("%s (%s)", a.Name, entries(len(a.Addrs)+len(a.Ports)))
		list = append(list, page.Option{Value: string(a.Name), Label: label})
	}
	return list
}

// replace puts another alias in the place of one everywhere, and deletes it.
func (p *pages) replace(w http.ResponseWriter, r *http.Request) error {
	in, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	hash, by := in.Get("hash"), in.Get("by")
	if err := in.Done(); err != nil {
		return err
	}
	v := p.View(r)
	old, ok := v.Config.Alias(firewall.Name(r.PathValue("name")))
	if !ok {
		return page.NotFound{What: "This alias"}
	}
	if by == "" {
		return p.ask(w, r, v, old, by, firewall.Problems{{Field: "by", Text: "Choose the alias that takes its place."}})
	}
	change := firewall.ReplaceAlias{Old: old.Name, New: firewall.Name(by)}
	along := counted(uses(v.Config, v.Config.AliasUses()[old.Name]))
	toast, err := p.Put(r, v, draft.Edit{Changes: []firewall.Change{change}, Hash: hash, Stale: stale(""),
		Said: fmt.Sprintf("%s took the place of %s in %s; %s is deleted.", by, old.Name, along, old.Name)})
	if ps, ok := errors.AsType[firewall.Problems](err); ok {
		return p.ask(w, r, v, old, by, besideBy(v.Config, change, ps))
	}
	if err != nil {
		return err
	}
	page.Say(w, toast)
	return page.Go(w, r, at(firewall.Name(by)))
}

// besideBy puts what the change itself cannot do beside the choice.
func besideBy(c firewall.Config, change firewall.Change, ps firewall.Problems) firewall.Problems {
	if _, err := change.Apply(c); err != nil {
		return firewall.Problems{{Field: "by", Text: page.Sentence(err)}}
	}
	return elsewhere(c, ps)
}
