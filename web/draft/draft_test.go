package draft

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/page"
)

// drafts answers every save with err.
type drafts struct{ err error }

func (d drafts) View(string) commit.View { return commit.View{} }
func (d drafts) Save(context.Context, commit.Who, string, ...firewall.Change) error {
	return d.err
}
func (d drafts) Discard(context.Context, commit.Who, ...firewall.Ref) error { return d.err }

func at(err error) Desk {
	return Desk{Drafts: drafts{err}, Who: func(*http.Request) commit.Who { return commit.Who{Account: "admin"} }}
}

func alias(name, descr string) firewall.Alias {
	return firewall.Alias{Name: firewall.Name(name), Kind: firewall.Addresses, Descr: descr}
}

func edit(names ...string) (e Edit) {
	for _, n := range names {
		e.Changes = append(e.Changes, firewall.AddAlias{Alias: alias(n, "")})
	}
	e.Said, e.Back, e.Stale = "Saved.", "/aliases", kind().Stale
	return e
}

func kind() Kind[firewall.Alias, firewall.Name] {
	return Kind[firewall.Alias, firewall.Name]{Word: "Alias", Home: "/aliases", Path: "/aliases/", Get: firewall.Config.Alias,
		Name: func(a firewall.Alias) string { return "Alias " + string(a.Name) }, Line: func(a firewall.Alias) string { return a.Descr },
		Fields: func(theirs, yours firewall.Alias) []page.Stale {
			return page.Differ([]string{"Description"}, []string{theirs.Descr}, []string{yours.Descr})
		}}
}

func TestUndoTakesNoMoreThanWasJustDone(t *testing.T) {
	before := commit.View{Items: []commit.Item{{Ref: edit("A").Changes[0].Ref()}}}
	for _, x := range []struct {
		what string
		v    commit.View
		e    Edit
		undo bool
	}{
		{"the first change of an object", commit.View{}, edit("A"), true},
		{"two changes of one object", commit.View{}, edit("A", "A"), true},
		{"beside changes of another object", before, edit("B"), true},
		{"an object that had changes before", before, edit("A"), false},
		{"an object with others along", commit.View{}, edit("A", "B"), false},
	} {
		toast, err := at(nil).Put(httptest.NewRequest("POST", "/", nil), x.v, x.e)
		if err != nil || toast.Text != "Saved." || (toast.With != "") != x.undo || (toast.Undo != "") != x.undo {
			t.Errorf("%s: %+v, %v", x.what, toast, err)
		}
	}
}

func TestSaveShowsTheEditorAgain(t *testing.T) {
	var has, lacks firewall.Config
	has.Aliases = []firewall.Alias{alias("A", "old")}
	mine := firewall.Config{Aliases: []firewall.Alias{alias("A", "new")}}
	ref := edit("A").Changes[0].Ref()
	save := func(err error) (*httptest.ResponseRecorder, Editor, int, error) {
		w, e := httptest.NewRecorder(), Editor{Hash: "old"}
		status, err := at(err).Save(w, httptest.NewRequest("POST", "/", nil), commit.View{}, &e, edit("A"))
		return w, e, status, err
	}
	if w, _, status, err := save(nil); status != 0 || err != nil || w.Header().Get("Location") != "/aliases" || !strings.Contains(w.Header().Get("Set-Cookie"), "toast") {
		t.Errorf("saved: %d, %v, %v", status, err, w.Header())
	}
	if _, e, status, err := save(firewall.Problems{{Field: ref.String() + ".descr", Text: "Long."}}); status != http.StatusUnprocessableEntity || err != nil || page.ErrorOf(e.Problems, "descr") != "Long." {
		t.Errorf("problems: %d, %v, %+v", status, err, e)
	}
	_, e, status, err := save(&commit.StaleError{Ref: ref, Yours: mine, Theirs: has})
	if status != http.StatusConflict || err != nil || e.Hash != has.Hash(ref) || len(e.Stale.Fields) != 1 || e.Stale.Fields[0] != (page.Stale{Field: "Description", Theirs: "old", Yours: "new"}) {
		t.Errorf("conflict: %d, %v, %+v", status, err, e)
	}
	_, _, status, err = save(&commit.StaleError{Ref: ref, Yours: mine, Theirs: lacks})
	if s, ok := errors.AsType[page.StaleError](err); status != 0 || !ok || s.Back != "/aliases" || s.Fields[0].Theirs != "deleted" {
		t.Errorf("deleted meanwhile: %d, %v", status, err)
	}
}

func TestOpWithoutAnObjectIsRefused(t *testing.T) {
	read := func(body string) (Op, error) {
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return ReadOp(r, "q")
	}
	if o, err := read("op=up:a:h:b&q=x"); err != nil || o.Verb != "up" || o.Key != "a" || o.Hash != "h" || o.Past != "b" || o.Also.Get("q") != "x" {
		t.Errorf("%+v, %v", o, err)
	}
	for _, body := range []string{"", "op=delete", "op=delete:", "op=a:b:c:d:e"} {
		if _, err := read(body); !errors.As(err, new(page.BadForm)) {
			t.Errorf("%q: %v", body, err)
		}
	}
	if _, err := read("op=a:b&position=3"); !errors.As(err, new(page.UnknownField)) {
		t.Errorf("a field that nobody knows: %v", err)
	}
}
