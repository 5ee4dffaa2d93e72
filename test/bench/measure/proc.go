package measure

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is one unit of the times in /proc/PID/stat (USER_HZ, the same on every
// architecture that Go knows).
const tick = 10 * time.Millisecond

// Stat is what is read of /proc/PID/stat.
type Stat struct {
	Ended  bool // and not yet waited for
	Parent int
	CPU    time.Duration // user and system, of the process and not of its children
}

// ParseStat reads a line of /proc/PID/stat. The name in it may hold anything,
// brackets and spaces too.
func ParseStat(line []byte) (Stat, error) {
	end := bytes.LastIndexByte(line, ')')
	if end < 0 {
		return Stat{}, errors.New("stat: no name")
	}
	f := bytes.Fields(line[end+1:])
	if len(f) < 13 {
		return Stat{}, fmt.Errorf("stat: %d fields after the name", len(f))
	}
	parent, err := strconv.Atoi(string(f[1]))
	if err != nil {
		return Stat{}, fmt.Errorf("stat: parent: %w", err)
	}
	var ticks int64
	for _, field := range f[11:13] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return Stat{}, fmt.Errorf("stat: time: %w", err)
		}
		ticks += n
	}
	return Stat{Ended: string(f[0]) == "Z" || string(f[0]) == "X", Parent: parent, CPU: time.Duration(ticks) * tick}, nil
}

// Tree lists a process and those below it.
func Tree(pid int) []int {
	children := map[int][]int{}
	all, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well formed
	for _, path := range all {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		id, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if s, err := ParseStat(line); err == nil {
			children[s.Parent] = append(children[s.Parent], id)
		}
	}
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		out = append(out, children[out[i]]...)
	}
	return out
}

// CPU is the time that processes have used. /proc/PID/stat has all of it in
// steps of 10 ms, the threads' schedstat has nanoseconds but not the threads
// that have ended: neither is ever too much, so the larger is taken.
func CPU(pids ...int) time.Duration {
	var sum time.Duration
	for _, pid := range pids {
		var whole, threads time.Duration
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
			if s, err := ParseStat(line); err == nil {
				whole = s.CPU
			}
		}
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // well formed
		for _, path := range tasks {
			if line, err := os.ReadFile(path); err == nil {
				threads += parseSchedstat(line)
			}
		}
		sum += max(whole, threads)
	}
	return sum
}

// parseSchedstat reads the time on a CPU, the first field; 0 of what is none.
func parseSchedstat(line []byte) time.Duration {
	first, _, _ := bytes.Cut(line, []byte(" "))
	n, err := strconv.ParseInt(string(first), 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n)
}

// RSS is the resident memory of processes in KiB.
func RSS(pids ...int) float64 {
	var sum float64
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err == nil {
			sum += kib(text, "VmRSS:")
		}
	}
	return sum
}

// kib reads one field of /proc/PID/status; 0 if it is not there.
func kib(text []byte, field string) float64 {
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			if f := strings.Fields(rest); len(f) == 2 {
				n, _ := strconv.ParseFloat(f[0], 64) // 0 of what is no number
				return n
			}
		}
	}
	return 0
}

// Busy is the time that all CPUs of the machine have worked.
func Busy() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	return parseBusy(text)
}

// parseBusy sums the first line of /proc/stat but idle, iowait, and guests,
// which are counted in user.
func parseBusy(text []byte) time.Duration {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	var ticks int64
	for i, f := range bytes.Fields(line) {
		if i == 0 || i == 4 || i == 5 || i > 8 {
			continue
		}
		n, _ := strconv.ParseInt(string(f), 10, 64) // 0 of what is no number
		ticks += n
	}
	return time.Duration(ticks) * tick
}

// Load is the load average of the last minute.
func Load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := bytes.Cut(text, []byte(" "))
	n, _ := strconv.ParseFloat(string(first), 64) // 0 of what is no number
	return n
}

// Gone says that a process has ended.
func Gone(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
	}
	s, err := ParseStat(line)
	return err == nil && s.Ended
}
