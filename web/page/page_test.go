package page

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"

	"gatehouse/assets"
	"gatehouse/firewall"
)

func render(t *testing.T, c templ.Component) string {
	t.Helper()
	var b strings.Builder
	if err := c.Render(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func form(t *testing.T, body string) *Form {
	t.Helper()
	r := httptest.NewRequest("POST", "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	f, err := ReadForm(r)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFormKnowsWhatNobodyAskedFor(t *testing.T) {
	f := form(t, "name=+web+&pass=+x+&tag=a&tag=&tag=+b&on=&role=root&x=1")
	if f.Get("name") != "web" || f.Raw("pass") != " x " || !slices.Equal(f.All("tag"), []string{"a", "b"}) || !f.On("on") || f.On("off") {
		t.Error("a field reads wrong")
	}
	unknown, ok := errors.AsType[UnknownField](f.Done())
	if !ok || !slices.Equal(unknown.Names, []string{"role", "x"}) {
		t.Errorf("unknown: %v", f.Done())
	}
	if f.Get("role"); f.On("x") && f.Done() != nil {
		t.Errorf("all was asked for: %v", f.Done())
	}
}

func TestFormIgnoresTheAddress(t *testing.T) {
	r := httptest.NewRequest("POST", "/?name=evil", strings.NewReader("a=1"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	f, err := ReadForm(r)
	if err != nil || f.Get("name") != "" {
		t.Errorf("a field comes from the address: %v", err)
	}
}

func TestLocalLeadsNowhereElse(t *testing.T) {
	for _, next := range []string{"/", "/rules", "/rules/01J?x=/a&b=//c", "/a%2f%2fb"} {
		if got := Local(next); got != next {
			t.Errorf("%q becomes %q", next, got)
		}
	}
}

func FuzzLocalStaysHere(f *testing.F) {
	f.Add("//evil")
	f.Add("/\\evil")
	f.Add("/\t/evil")
	f.Fuzz(func(t *testing.T, next string) {
		got := Local(next)
		base, _ := url.Parse("https://fw1/")
		u, err := base.Parse(got)
		if err != nil {
			return // no browser goes there
		}
		if u.Host != "fw1" || u.Scheme != "https" || strings.ContainsAny(got, "\r\n\\") {
			t.Errorf("%q leads to %s", next, u)
		}
	})
}

func TestInputTiesItsTexts(t *testing.T) {
	h := render(t, Input(Field{Name: "dport", Label: "Port", Value: `"><b>`, Hint: "One.", Error: "Two."}))
	for _, want := range []string{
		`<label for="f-dport">Port</label>`, `id="f-dport"`, `aria-describedby="f-dport-error f-dport-hint"`, `aria-invalid="true"`,
		`id="f-dport-error">Two.`, `id="f-dport-hint">One.`, `&#34;&gt;&lt;b&gt;`,
	} {
		if !strings.Contains(h, want) {
			t.Errorf("%s is missing in %s", want, h)
		}
	}
	h = render(t, Input(Field{Name: "proto", Label: "Protocol", Value: "UDP", Options: Options("TCP", "UDP")}))
	if !strings.Contains(h, `<option value="UDP" selected>`) || strings.Contains(h, `value="TCP" selected`) {
		t.Errorf("the choice is lost: %s", h)
	}
}

func TestSummaryLinksToItsFields(t *testing.T) {
	ref := firewall.Ref{Kind: "rule", Key: "01J"}
	ps := Beside(firewall.Problems{{Field: "forward/9.to", Text: "Other."}, {Field: "rule/01J.dport", Text: "Port must be 1–65535."}}, ref)
	h := render(t, Summary(ps))
	if !strings.Contains(h, `<a href="#f-dport">Port must be`) || !strings.Contains(h, "Other.") || strings.Contains(h, "forward/9") {
		t.Errorf("summary: %s", h)
	}
	if ErrorOf(ps, "dport") != "Port must be 1–65535." || ErrorOf(ps, "src") != "" {
		t.Error("the texts are beside the wrong field")
	}
}

func TestBarSaysTheState(t *testing.T) {
	for _, x := range []struct {
		bar       Bar
		has, lack []string
	}{
		{Bar{}, nil, []string{"bar-line"}},
		{Bar{Pending: 1, Draft: "d7"}, []string{"1 pending change<", `action="/apply"`, `name="draft" value="d7"`, `href="/review"`, `action="/discard"`}, []string{"disabled"}},
		{Bar{Testing: Testing{Revision: 7, Mine: true, Left: 46500 * time.Millisecond, Token: "t"}}, []string{"Keep these changes?", ">0:47<", `action="/confirm"`, `action="/undo"`, `name="token" value="t"`}, []string{"data-auto"}},
		{Bar{Pending: 2, Testing: Testing{Revision: 7, Account: "berta", Left: 47 * time.Second}}, []string{"berta", "is testing revision 7", ">0:47<", "disabled"}, []string{`action="/confirm"`, "token"}},
		{Bar{Undo: Undo{Revision: 7, Left: 10 * time.Minute}}, []string{"Revision 7", ">10:00<", `action="/undo"`}, []string{`action="/confirm"`}},
		{Bar{Problems: []string{"DHCP is off."}}, []string{"Applied with 1 problem", "DHCP is off."}, nil},
		{Bar{Pending: 2, Misfits: []string{"Gone."}}, []string{"1 pending change no longer fits", "Gone.", "disabled"}, []string{`action="/apply"`}},
		{Bar{Safe: "Read-only."}, []string{"SAFE MODE", "Read-only.", `role="alert"`}, nil},
		{Bar{Testing: Testing{Revision: 7, Mine: true, Token: "t0k", URLs: []string{"https://192.168.77.1"}}}, []string{`href="https://192.168.77.1/confirm#c=t0k"`}, nil},
	} {
		h := render(t, BarView(x.bar))
		for _, s := range x.has {
			if !strings.Contains(h, s) {
				t.Errorf("%+v: %q is missing in\n%s", x.bar, s, h)
			}
		}
		for _, s := range x.lack {
			if strings.Contains(h, s) {
				t.Errorf("%+v: %q is there", x.bar, s)
			}
		}
	}
}

func TestPageCountsWhatIsPending(t *testing.T) {
	h := render(t, Page(Frame{Title: "Rules", Active: "/rules", Host: "fw1", User: "admin", Bar: Bar{Pending: 2}}))
	if !strings.Contains(h, "<title>(2) Rules · fw1</title>") || strings.Count(h, `aria-current="page"`) != 1 {
		t.Error("tab or menu is wrong")
	}
	if h = render(t, Page(Frame{Title: "Sign in", Bar: Bar{Pending: 2}})); strings.Contains(h, "pending") || strings.Contains(h, `class="menu"`) {
		t.Error("a stranger sees the menu or the draft")
	}
}

func TestMenuIconsExist(t *testing.T) {
	for _, e := range menu() {
		if !slices.Contains(assets.Icons(), e.icon) {
			t.Errorf("%s has no icon %q", e.label, e.icon)
		}
	}
}

func TestToastCookieOfAStrangerIsHarmless(t *testing.T) {
	for _, value := range []string{"x", "e30", strings.Repeat("A", 3000), "eyJ0IjoiYSIsInUiOiIvL2V2aWwifQ"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.AddCookie(&http.Cookie{Name: toastName, Value: value})
		if f := FrameFor(r, "x", ""); f.Toast.Undo != "" && f.Toast.Undo != "/" {
			t.Errorf("undo leads to %q", f.Toast.Undo)
		}
	}
}
