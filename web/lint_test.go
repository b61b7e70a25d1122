package web

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gatehouse/assets"
)

// banned is what the content security policy would stop, or what breaks a
// promise of every page: (what, why).
var banned = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`hx-on|data-hx-on`), "code in an attribute needs eval"},
	{regexp.MustCompile(`hx-(vals|headers|vars)=["']?\s*js:|javascript:|["']js:`), "code in an attribute needs eval"},
	{regexp.MustCompile(`hx-live`), "code in an attribute needs eval"},
	{regexp.MustCompile(`hx-trigger="[^"]*\[`), "a trigger filter needs eval"},
	{regexp.MustCompile(`[\s"]style\s*=`), "inline style is blocked"},
	{regexp.MustCompile(`\son[a-z]+\s*=`), "inline handlers are blocked"},
	{regexp.MustCompile(`<style|^\s*(css|script)\s+\w+\(`), "inline style or script is blocked"},
	{regexp.MustCompile(`<script(>|\s[^>]*>)`), "script without a file"}, // those with src are taken out first
	{regexp.MustCompile(`templ\.(Raw|JSFuncCall|JSUnsafeFuncCall|ComponentScript|SafeCSS|SafeURL\("?javascript)`), "raw output is not escaped"},
	{regexp.MustCompile(`type="number"`), "the wheel changes it; use inputmode"},
	{regexp.MustCompile(`(src|href|action)="(https?:)?//`), "nothing is loaded from elsewhere"},
	{regexp.MustCompile(`<button[^>]*/>`), "an empty button"},
}

var (
	scriptFile = regexp.MustCompile(`<script[^>]*\ssrc=[^>]*></script>`)
	button     = regexp.MustCompile(`(?s)<button\b.*?</button>`)
	hxPost     = regexp.MustCompile(`(?s)<(\w+)[^<>]*\shx-(post|put|patch|delete)=[^<>]*>`)
	iconName   = regexp.MustCompile(`Icon\("([\w-]+)"\)`)
	comments   = regexp.MustCompile(`(?m)^\s*//.*$`)
)

func TestTemplatesKeepThePolicy(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".templ" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen++
		for _, fault := range lint(string(b)) {
			t.Errorf("%s: %s", path, fault)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 3 {
		t.Errorf("only %d templates were found", seen)
	}
}

// lint returns what is wrong with a template.
func lint(src string) (faults []string) {
	src = scriptFile.ReplaceAllString(comments.ReplaceAllString(src, ""), "")
	for _, b := range banned {
		if m := b.pattern.FindString(src); m != "" {
			faults = append(faults, strings.TrimSpace(m)+": "+b.why)
		}
	}
	for _, b := range button.FindAllString(src, -1) {
		head, inner, _ := strings.Cut(b, ">")
		if !strings.Contains(head, "type=") {
			faults = append(faults, head+": a button without a type")
		}
		inner = strings.TrimSuffix(inner, "</button>")
		words := strings.TrimSpace(regexp.MustCompile(`@(page\.)?Icon\([^)]*\)`).ReplaceAllString(inner, ""))
		if words == "" && !strings.Contains(b, "aria-label") {
			faults = append(faults, head+": a button without a name")
		}
	}
	for _, m := range hxPost.FindAllStringSubmatch(src, -1) {
		if m[1] != "form" || m[2] != "post" || !strings.Contains(m[0], "action=") {
			faults = append(faults, m[0]+": does nothing without script; put it on a form with an action")
		}
	}
	for _, m := range iconName.FindAllStringSubmatch(src, -1) {
		if !slices.Contains(assets.Icons(), m[1]) {
			faults = append(faults, m[1]+": there is no such icon")
		}
	}
	return faults
}

func TestLintFindsWhatItIsFor(t *testing.T) {
	for _, bad := range []string{
		`<p hx-on:click="x()">`, `<p hx-vals="js:{}">`, `<p hx-trigger="click[ctrlKey]">`, `<p style="color:red">`, `<p style={ x }>`,
		`<a onclick="x()">`, `<script>x()</script>`, `<style>p{}</style>`, "css red() {", `@templ.Raw(x)`, `<input type="number">`,
		`<button>Go</button>`, `<button type="button">@Icon("x")</button>`, `<button hx-post="/a" type="submit">Go</button>`,
		`<form hx-post="/a"></form>`, `@Icon("nothing")`, `<img src="https://evil.example/x.png">`, `<a href="javascript:x">`,
	} {
		if len(lint(bad)) == 0 {
			t.Errorf("%s passes", bad)
		}
	}
	for _, good := range []string{
		`<script defer src={ assets.URL("app.js") }></script>`, `<button type="submit">Go</button>`,
		`<button type="submit" aria-label="Go">@Icon("x")</button>`, `<form method="post" action="/a" hx-post="/a"></form>`, `<p hx-trigger="load, bar from:body">`,
	} {
		if f := lint(good); len(f) > 0 {
			t.Errorf("%s: %v", good, f)
		}
	}
}
