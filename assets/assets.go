// Package assets is the style sheet, the scripts and the icons of the web
// pages, embedded in the program. Every file is served under a URL that holds
// the hash of its content, so a browser may keep it for ever.
package assets

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Prefix is where Handler expects to be mounted.
const Prefix = "/assets/"

//go:embed css/*.css js/*.js vendor/*.js icons/*.svg mark.svg
var embedded embed.FS

// file is one asset, ready to be sent.
type file struct {
	url  string
	kind string
	body []byte
	gz   []byte // empty when compression does not pay
}

// set is every asset by name and by the last part of its URL.
type set struct {
	byName map[string]*file
	byPath map[string]*file
}

// all is computed once from the embedded bytes and never changes.
var all = sync.OnceValue(load)

// URL returns the address of the asset with a name such as "app.css",
// "htmx.min.js" or "icons.svg". An unknown name gives an address that
// answers 404, and fails the tests of this package.
func URL(name string) string {
	if f := all().byName[name]; f != nil {
		return f.url
	}
	return Prefix + "missing-" + name
}

// Size returns how many bytes the asset costs on the wire, compressed; 0 when
// there is no such asset.
func Size(name string) int {
	f := all().byName[name]
	switch {
	case f == nil:
		return 0
	case len(f.gz) > 0:
		return len(f.gz)
	default:
		return len(f.body)
	}
}

// Icons returns the names that the icon sheet holds.
func Icons() []string {
	names, err := fs.Glob(embedded, "icons/*.svg")
	if err != nil {
		return nil // the pattern is a constant and well formed
	}
	for i, n := range names {
		names[i] = strings.TrimSuffix(path.Base(n), ".svg")
	}
	return names
}

// Handler serves the assets under Prefix: GET and HEAD only, gzip when the
// browser takes it, to be kept for a year (RFC 8246, immutable).
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := all().byPath[r.URL.Path]
		if f == nil {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", f.kind)
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		h.Set("Vary", "Accept-Encoding")
		body := f.body
		if len(f.gz) > 0 && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			body = f.gz
		}
		h.Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(http.StatusOK)
		if r.Method != http.MethodHead {
			_, _ = w.Write(body) // a reader that went away is not our fault
		}
	})
}

func load() set {
	s := set{byName: map[string]*file{}, byPath: map[string]*file{}}
	for _, pattern := range []string{"css/*.css", "js/*.js", "vendor/*.js", "mark.svg"} {
		names, _ := fs.Glob(embedded, pattern) // constant, well-formed patterns
		for _, name := range names {
			body, _ := embedded.ReadFile(name) // embedded: it is there
			s.add(path.Base(name), lean(name, body))
		}
	}
	s.add("icons.svg", sheet())
	return s
}

// lean takes from our own files what only their reader needs: indentation, lines
// that are comments, the space around punctuation, and in style sheets the line
// breaks. It asks for strings, comments and declarations that end on their line,
// and in scripts for regular expressions without quotes.
func lean(name string, body []byte) []byte {
	dir, ext := path.Dir(name), path.Ext(name)
	if dir != "css" && dir != "js" {
		return body
	}
	tight := strings.NewReplacer(": ", ":", "; ", ";", ", ", ",", " {", "{", "{ ", "{", "; }", "}", ";}", "}", " }", "}", " > ", ">")
	var b bytes.Buffer
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "//") || strings.HasPrefix(line, "/*") && strings.HasSuffix(line, "*/"):
		case ext == ".css":
			b.WriteString(tight.Replace(line))
		default: // a line break may end a statement
			b.WriteString(spaced.ReplaceAllStringFunc(line, func(s string) string {
				if s[0] == '"' || s[0] == '`' {
					return s
				}
				return strings.TrimSpace(s)
			}) + "\n")
		}
	}
	return b.Bytes()
}

// spaced is a string of a script, or punctuation with the space around it.
var spaced = regexp.MustCompile("\"[^\"]*\"|`[^`]*`| *[=<>!&|?:,;{}()]+ *")

func (s set) add(name string, body []byte) {
	sum := sha256.Sum256(body)
	ext := path.Ext(name)
	f := &file{
		url:  Prefix + strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(sum[:6]) + ext,
		body: body,
	}
	switch ext { // never by the machine's own mime tables
	case ".css":
		f.kind = "text/css; charset=utf-8"
	case ".js":
		f.kind = "text/javascript; charset=utf-8"
	case ".svg":
		f.kind = "image/svg+xml"
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // a valid level
	_, _ = z.Write(body)
	_ = z.Close() // a bytes.Buffer takes everything
	if b.Len() < len(body) {
		f.gz = b.Bytes()
	}
	s.byName[name], s.byPath[f.url] = f, f
}

// sheet joins the icon files to one SVG of symbols, so that a page names an
// icon in one short element and the drawing is loaded once.
func sheet() []byte {
	var b bytes.Buffer
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg">`)
	for _, name := range Icons() {
		body, _ := embedded.ReadFile("icons/" + name + ".svg")
		_, inner, _ := strings.Cut(string(body), "<svg")
		_, inner, _ = strings.Cut(inner, ">")
		inner, _, _ = strings.Cut(inner, "</svg>")
		fmt.Fprintf(&b, `<symbol id="%s" viewBox="0 0 24 24">%s</symbol>`, name, strings.Join(strings.Fields(inner), " "))
	}
	b.WriteString(`</svg>`)
	return b.Bytes()
}
