package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A lab's name carries the process id and the start time of the process that made it: the id alone may be in use again.
const namePrefix = "gatehouse-lab-"

var nameForm = regexp.MustCompile(`^` + namePrefix + `(\d+)-(\d+)-\d+$`)

// claimName finds a free name and makes its folder.
func claimName() (name, dir string, err error) {
	start, ok := startTime(os.Getpid())
	if !ok {
		return "", "", errors.New("netlab: /proc does not know this process")
	}
	for n := 1; ; n++ {
		name = fmt.Sprintf("%s%d-%s-%d", namePrefix, os.Getpid(), start, n)
		dir = filepath.Join(os.TempDir(), name)
		if err := os.Mkdir(dir, 0o755); err == nil || !errors.Is(err, os.ErrExist) {
			return name, dir, err
		}
	}
}

// Sweep ends the machines and removes the folders of labs whose maker is dead. New calls it.
func Sweep() error {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", p.Name(), "cmdline"))
		if err != nil {
			continue // it ended while we looked
		}
		title, _, _ := bytes.Cut(line, []byte{0})
		if lab, _, ok := strings.Cut(string(title), "/"); ok && abandoned(lab) {
			_ = unix.Kill(pid, unix.SIGKILL) // only ESRCH is possible for root
		}
	}
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), namePrefix+"*"))
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if abandoned(filepath.Base(d)) {
			if err := os.RemoveAll(d); err != nil {
				return fmt.Errorf("netlab: remove what a dead run left: %w", err)
			}
		}
	}
	return nil
}

// abandoned reports whether name is that of a lab whose maker is no more.
func abandoned(name string) bool {
	m := nameForm.FindStringSubmatch(name)
	if m == nil {
		return false
	}
	pid, err := strconv.Atoi(m[1])
	if err != nil {
		return false
	}
	start, alive := startTime(pid)
	return !alive || start != m[2]
}

// startTime returns field 22 of /proc/PID/stat (proc(5)), in clock ticks since boot; false when the process is dead
// or a zombie.
func startTime(pid int) (string, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	// Field 2 is the name in brackets and may hold anything, so count from the last bracket.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return "", false
	}
	return fields[19], true
}
