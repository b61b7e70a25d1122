package assets

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestVendoredFilesAreAsListed(t *testing.T) {
	list, err := os.ReadFile("vendor.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := []string{"vendor/LICENSE.lucide"} // the text that the ISC licence wants beside the icons
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) != 4 {
			t.Fatalf("line %q does not have file, package, licence and sum", line)
		}
		files := []string{f[0]}
		if f[0] == "icons" {
			if files, err = filepath.Glob("icons/*.svg"); err != nil {
				t.Fatal(err)
			}
		}
		sum := sha256.New()
		for _, name := range files {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sum.Write(b)
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != f[3] {
			t.Errorf("%s has the sum %s, listed is %s", f[0], got, f[3])
		}
		listed = append(listed, f[0])
	}
	there, _ := filepath.Glob("vendor/*")
	for _, name := range there {
		if !slices.Contains(listed, name) {
			t.Errorf("%s is not in vendor.txt", name)
		}
	}
}

func TestEveryPageCostsAtMost25KB(t *testing.T) {
	total := 0
	for _, name := range []string{"app.css", "app.js", "htmx.min.js", "hx-sse.min.js"} {
		n := Size(name)
		if n == 0 {
			t.Errorf("%s is missing", name)
		}
		total += n
	}
	if t.Logf("%d bytes compressed", total); total > 25_000 {
		t.Errorf("style sheet and scripts cost %d bytes compressed", total)
	}
}

func TestHandlerServesForEverAndCompressed(t *testing.T) {
	for _, name := range []string{"app.css", "app.js", "icons.svg", "mark.svg"} {
		plain, zipped := httptest.NewRecorder(), httptest.NewRecorder()
		r := httptest.NewRequest("GET", URL(name), nil)
		Handler().ServeHTTP(plain, r)
		r.Header.Set("Accept-Encoding", "br, gzip")
		Handler().ServeHTTP(zipped, r)
		if plain.Code != 200 || !strings.Contains(plain.Header().Get("Cache-Control"), "immutable") || plain.Header().Get("Content-Type") == "" {
			t.Errorf("%s: %d %v", name, plain.Code, plain.Header())
		}
		if zipped.Header().Get("Content-Encoding") != "gzip" {
			continue // the mark is too small to pay
		}
		z, err := gzip.NewReader(zipped.Body)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(z); err != nil || !bytes.Equal(b, plain.Body.Bytes()) {
			t.Errorf("%s differs when compressed: %v", name, err)
		}
	}
	gone := httptest.NewRecorder()
	Handler().ServeHTTP(gone, httptest.NewRequest("GET", Prefix+"app.0.css", nil))
	if gone.Code != 404 {
		t.Errorf("an old address: %d", gone.Code)
	}
}

func TestIconSheetHoldsEveryIcon(t *testing.T) {
	b := all().byName["icons.svg"].body
	if len(Icons()) < 20 {
		t.Errorf("only %d icons", len(Icons()))
	}
	for _, name := range Icons() {
		_, after, ok := strings.Cut(string(b), `<symbol id="`+name+`" viewBox="0 0 24 24">`)
		if inner, _, _ := strings.Cut(after, "</symbol>"); !ok || len(inner) < 10 || strings.Contains(inner, "<svg") {
			t.Errorf("icon %s is not drawn", name)
		}
	}
}
