package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// idle measures the size of the binary, the time from start to a verified ruleset (median of five starts on the same
// state), and the memory it holds after ten quiet seconds.
func idle(ctx context.Context, m *measurement) error {
	st, err := os.Stat(m.Binary)
	if err != nil {
		return err
	}
	m.figure("binary", float64(st.Size())/1e6, 30, "MB")
	state := filepath.Join(m.Dir, "state")
	var starts []time.Duration
	for last := 4; last >= 0; last-- {
		began := time.Now()
		p, err := m.Lab.Box.Start(ctx, m.Binary, "serve", "--state", state)
		if err != nil {
			return err
		}
		if _, err := say(ctx, p, `(verified: .*)`); err != nil {
			return err
		}
		starts = append(starts, time.Since(began))
		if last == 0 {
			select { // ten seconds are part of what is measured
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
				return ctx.Err()
			}
			mem, err := resident(p.Pid())
			if err != nil {
				return err
			}
			m.figure("idle memory", mem, 40, "MB")
		}
		stop, cancel := context.WithTimeout(ctx, 10*time.Second)
		p.Stop(stop)
		cancel()
	}
	slices.Sort(starts)
	m.figure("start to verified", starts[len(starts)/2].Seconds(), 1, "s")
	return nil
}

// resident returns VmRSS of a process in MB, proc(5).
func resident(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	f := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	if f == nil {
		return 0, fmt.Errorf("no VmRSS of process %d", pid)
	}
	kb, err := strconv.ParseFloat(string(f[1]), 64)
	return kb * 1024 / 1e6, err
}
