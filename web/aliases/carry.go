package aliases

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"gatehouse/firewall"
	"gatehouse/web/page"
)

// fileLimit is the largest file that is taken in.
const fileLimit = 5 << 20

// What a file does to the list.
const (
	modeAdd  = "add"
	modeSwap = "replace"
)

// brought is what an imported file would do to the alias as it is in the draft.
type brought struct {
	File  string
	Said  summary  // of the file alone
	Plus  []string // lines that would come
	Minus []string // lines that would go
	Same  int      // lines that stay
}

// shown is how many lines that come, and that go, the page lists.
const shown = 200

// carryIn reads a file into the list of the editor and shows what it would do;
// nothing is saved.
func (p *pages) carryIn(w http.ResponseWriter, r *http.Request) error {
	in, file, err := page.ReadUpload(r, fileLimit)
	if err != nil {
		return err
	}
	v, e, err := p.sent(r, in)
	if err != nil {
		return err
	}
	text, wrong := content(file)
	if e.Mode != modeAdd && e.Mode != modeSwap {
		wrong = "Choose whether the file adds to the list or replaces it."
	}
	if e.File = ""; wrong != "" {
		e.Problems = firewall.Problems{{Field: "file", Text: wrong}}
		return p.editor(w, r, http.StatusUnprocessableEntity, v, e)
	}
	known := e.known(v.Config)
	lists := []string{text}
	if e.Mode == modeAdd {
		lists = []string{e.Items, text}
	}
	var bad, good strings.Builder
	for _, list := range lists {
		it := firewall.ParseItems(e.kind(), list, known)
		for _, b := range it.Bad {
			bad.WriteString(b.Again(e.kind(), known))
		}
		good.WriteString(firewall.Alias{Addrs: it.Addrs, Ports: it.Ports}.Lines())
	}
	all := firewall.ParseItems(e.kind(), good.String(), known)
	now := firewall.Alias{Addrs: all.Addrs, Ports: all.Ports}.Lines()
	e.Brought = brought{File: file.Name, Said: form{Kind: e.Kind, Items: text, Name: e.Name}.say(v.Config)}
	e.Brought.Minus, e.Brought.Plus = difference(e.Old.Lines(), now)
	e.Brought.Same = len(all.Addrs) + len(all.Ports) - len(e.Brought.Plus)
	e.Items = bad.String() + now // what is wrong first: there it is found
	return p.editor(w, r, http.StatusOK, v, e)
}

// content is the text of a file, or why it has none.
func content(f page.File) (text, wrong string) {
	body := bytes.TrimSpace(f.Body)
	switch {
	case f.Large:
		return "", "The file is larger than 5 MiB."
	case f.Name == "":
		return "", "Choose a file."
	case len(body) == 0:
		return "", "The file is empty."
	case bytes.IndexByte(body, 0) >= 0:
		return "", "This is not a text file. Save it as text, in UTF-8."
	case body[0] == '{':
		return fromJSON(body)
	}
	return string(f.Body), ""
}

// document is what an export as JSON holds.
type document struct {
	Name    firewall.Name      `json:"name"`
	Kind    firewall.AliasKind `json:"kind"`
	Descr   string             `json:"descr,omitempty"`
	Entries []line             `json:"entries"`
}

type line struct {
	Value string `json:"value"`
	Note  string `json:"note,omitempty"`
}

// fromJSON writes the entries of an export as lines.
func fromJSON(b []byte) (text, wrong string) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var doc document
	if err := d.Decode(&doc); err != nil {
		return "", "This is not the JSON that an export holds."
	}
	var out strings.Builder
	for _, l := range doc.Entries {
		out.WriteString(plain(l.Value))
		if l.Note != "" {
			out.WriteString("  # " + plain(l.Note))
		}
		out.WriteByte('\n')
	}
	return out.String(), ""
}

// plain is a text on one line.
func plain(s string) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(s) }

// carryOut sends the alias as it is in the draft: as text, CSV or JSON.
func (p *pages) carryOut(w http.ResponseWriter, r *http.Request) error {
	a, ok := p.View(r).Config.Alias(firewall.Name(r.PathValue("name")))
	if !ok {
		return page.NotFound{What: "This alias"}
	}
	kinds := map[string]string{"txt": "text/plain", "csv": "text/csv", "json": "application/json"}
	as := r.URL.Query().Get("as")
	var body string
	switch as {
	case "txt":
		body = a.Lines()
	case "csv":
		body = a.CSV()
	case "json":
		b, err := json.MarshalIndent(export(a), "", "  ")
		if err != nil {
			return fmt.Errorf("export alias: %w", err)
		}
		body = string(b) + "\n"
	default:
		return page.NotFound{What: "This kind of export"}
	}
	h := w.Header()
	h.Set("Content-Type", kinds[as]+"; charset=utf-8")
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s.%s"`, a.Name, as)) // a name is letters, digits and _
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte(body)) // a reader that went away is not our fault
	return nil
}

func export(a firewall.Alias) document {
	d := document{Name: a.Name, Kind: a.Kind, Descr: a.Descr, Entries: []line{}}
	d.Entries = slices.Grow(d.Entries, len(a.Addrs)+len(a.Ports))
	for _, e := range a.Addrs {
		d.Entries = append(d.Entries, line{e.End.String(), e.Note})
	}
	for _, e := range a.Ports {
		d.Entries = append(d.Entries, line{e.End.String(), e.Note})
	}
	return d
}
