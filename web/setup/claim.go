package setup

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/auth"
	"gatehouse/web/page"
)

// claimForm is step 1 as it is shown and sent.
type claimForm struct {
	Code, Admin, Host, Domain, Zone string
	Problems                        firewall.Problems
}

func (w *wizard) showClaim(rw http.ResponseWriter, r *http.Request) error {
	if any, err := w.Accounts.Any(); err != nil || any {
		return errors.Join(err, gone(any))
	}
	sys := firewall.Factory().System
	return w.renderClaim(rw, r, http.StatusOK, claimForm{Admin: "admin", Host: sys.Host, Domain: sys.Domain, Zone: sys.Zone})
}

// gone is the answer to step 1 once there is an administrator.
func gone(any bool) error {
	if !any {
		return nil
	}
	return page.Refused{Status: http.StatusGone, Title: "This box has an owner",
		Text: "An administrator exists already. Sign in; the other steps of the wizard can be run again from the menu."}
}

func (w *wizard) renderClaim(rw http.ResponseWriter, r *http.Request, status int, f claimForm) error {
	return page.Render(rw, r, status, claimView(page.FrameFor(r, "Set up gatehouse", "/setup"), f))
}

// claim makes the first administrator. The code is looked at before anything
// else, and before any hash is computed.
func (w *wizard) claim(rw http.ResponseWriter, r *http.Request) error {
	if any, err := w.Accounts.Any(); err != nil || any {
		return errors.Join(err, gone(any))
	}
	form, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	f := claimForm{Code: form.Get("code"), Admin: form.Get("admin"), Host: form.Get("host"), Domain: form.Get("domain"), Zone: form.Get("zone")}
	password := form.Raw("password")
	if err := form.Done(); err != nil {
		return err
	}
	from := page.ConnOf(r.Context()).Peer
	if wait := w.Throttle.Try(from); wait > 0 {
		return auth.Throttled{Wait: wait}
	}
	f.check(w.Code(), password)
	if page.ErrorOf(f.Problems, "code") == "" {
		w.Throttle.Forgive(from) // only guesses at the code count
	}
	if len(f.Problems) > 0 {
		return w.renderClaim(rw, r, http.StatusUnprocessableEntity, f)
	}
	acc, err := w.Accounts.Create(r.Context(), f.Admin, password)
	if err != nil {
		return err
	}
	if _, err := w.Accounts.Begin(rw, r, acc, from); err != nil {
		return err
	}
	sys := firewall.System{Host: f.Host, Domain: f.Domain, Zone: f.Zone}
	if w.Drafts.View(acc.Name).Config.System != sys {
		by := commit.Who{Account: acc.Name, Door: "web", Addr: from}
		if err := w.Drafts.Save(r.Context(), by, commit.AnyHash, firewall.SetSystem{System: sys}); err != nil {
			return err
		}
	}
	return page.Go(rw, r, "/setup/2")
}

// check fills in every problem of the step.
func (f *claimForm) check(code, password string) {
	add := func(field, text string) {
		if text != "" {
			f.Problems = append(f.Problems, firewall.Problem{Field: field, Text: text})
		}
	}
	if !auth.SameCode(code, f.Code) {
		add("code", "The setup code does not match. It is on the screen connected to the box; the command “gatehouse setup-code” shows it again.")
	}
	add("admin", auth.NameProblem(f.Admin))
	add("password", auth.PasswordProblem(f.Admin, password))
	c := firewall.Factory()
	c.System = firewall.System{Host: f.Host, Domain: f.Domain, Zone: f.Zone}
	for _, p := range c.Validate() {
		add(strings.TrimPrefix(p.Field, "system."), p.Text)
	}
	if _, err := time.LoadLocation(f.Zone); err != nil && page.ErrorOf(f.Problems, "zone") == "" {
		add("zone", "There is no time zone of this name. Write for example Europe/Berlin.")
	}
}
