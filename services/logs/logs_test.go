package logs_test

import (
	"testing"

	"gatehouse/firewall"
	"gatehouse/services/logs"
)

func TestRingKeepsTheNewestLines(t *testing.T) {
	told := 0
	r := logs.New(3, func() { told++ })
	for i := range 5 {
		r.Add(logs.Line{Length: i, Action: firewall.Block})
	}
	var got []int
	for _, l := range r.Last(2, func(l logs.Line) bool { return l.Length != 3 }) {
		got = append(got, l.Length)
	}
	if len(got) != 2 || got[0] != 4 || got[1] != 2 {
		t.Errorf("got lines %v, want 4 then 2", got)
	}
	if told != 5 {
		t.Errorf("told %d times, want 5", told)
	}
	if all := r.Last(10, func(logs.Line) bool { return true }); len(all) != 3 {
		t.Errorf("the ring holds %d lines, want 3", len(all))
	}
}
