package commit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// patch rebuilds both texts from a diff.
func patch(edits []edit) (a, b []string) {
	for _, e := range edits {
		if e.op != '+' {
			a = append(a, e.text)
		}
		if e.op != '-' {
			b = append(b, e.text)
		}
	}
	return a, b
}

// shortest is the number of edits by the textbook table.
func shortest(a, b []string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j := range b {
			next := min(row[j], row[j+1]) + 1
			if a[i] == b[j] {
				next = diagonal
			}
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}

func TestLineDiffIsRightAndShortest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 30)
		a, b := lines.Draw(t, "a"), lines.Draw(t, "b")
		edits := lineDiff(a, b)
		if gotA, gotB := patch(edits); !slices.Equal(gotA, a) || !slices.Equal(gotB, b) {
			t.Fatalf("%v", edits)
		}
		if _, plus, minus := unified(edits); plus+minus != shortest(a, b) {
			t.Fatalf("%d edits, %d would do", plus+minus, shortest(a, b))
		}
	})
}

func TestLineDiffOfTwoStrangersIsBounded(t *testing.T) {
	var a, b []string
	for i := range 20_000 {
		a, b = append(a, fmt.Sprint("a", i)), append(b, fmt.Sprint("b", i))
	}
	edits := lineDiff(a, b)
	if gotA, gotB := patch(edits); !slices.Equal(gotA, a) || !slices.Equal(gotB, b) {
		t.Fatal("wrong")
	}
}

func TestUnifiedShowsThreeLinesAround(t *testing.T) {
	old := strings.Split("1 2 3 4 5 6 7 8 9", " ")
	new := strings.Split("1 2 3 4 five 6 7 8 9", " ")
	text, plus, minus := unified(lineDiff(old, new))
	want := "@@ -2 +2 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
	if text != want || plus != 1 || minus != 1 {
		t.Fatalf("%s", text)
	}
}

func TestNewIDIsAULID(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := string(NewID())
		if len(id) != 26 || strings.Trim(id, "0123456789ABCDEFGHJKMNPQRSTVWXYZ") != "" || id[0] > '7' || seen[id] {
			t.Fatal(id)
		}
		seen[id] = true
	}
}
