package measure

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const tail = " S 7 1 1 0 -1 4194560 100 200 0 0 150 50 9 9 20 0 1 0 100 1000 10"
	for name, c := range map[string]struct {
		line string
		bad  bool
	}{
		"plain":         {"12 (nginx)" + tail, false},
		"a hostile one": {"12 (a) S 1 (b c)" + tail, false},
		"no name":       {"12 nginx", true},
		"cut":           {"12 (nginx) S 7", true},
		"no number":     {"12 (nginx) S x 1 1 0 -1 4194560 100 200 0 0 150 50 9", true},
		"no time":       {"12 (nginx) S 7 1 1 0 -1 4194560 100 200 0 0 x 50 9", true},
	} {
		got, err := ParseStat([]byte(c.line))
		if (err != nil) != c.bad {
			t.Errorf("%s: %v", name, err)
		}
		if want := (Stat{Parent: 7, CPU: 2 * time.Second}); err == nil && got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestParseOthers(t *testing.T) {
	if got := parseSchedstat([]byte("1500000 20 3\n")); got != 1500*time.Microsecond {
		t.Errorf("schedstat: %v", got)
	}
	if got := parseBusy([]byte("cpu  100 10 50 9000 77 5 15 20 100 0\ncpu0 1 1 1\n")); got != 2*time.Second {
		t.Errorf("busy: %v", got)
	}
	if got := kib([]byte("Name:\tx\nVmHWM:\t 9 kB\nVmRSS:\t  2048 kB\n"), "VmRSS:"); got != 2048 {
		t.Errorf("resident: %v", got)
	}
}

// TestOwn: what is read of this process and of a child is there.
func TestOwn(t *testing.T) {
	before := CPU(os.Getpid())
	for sum, end := 0, time.Now().Add(50*time.Millisecond); time.Now().Before(end); sum++ {
	}
	if CPU(os.Getpid()) <= before {
		t.Error("work has cost nothing")
	}
	if RSS(os.Getpid()) < 100 || Busy() <= 0 {
		t.Error("nothing is known of this process or machine")
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tree := Tree(os.Getpid())
	found := false
	for _, pid := range tree {
		found = found || pid == cmd.Process.Pid
	}
	if !found {
		t.Errorf("child %d is not in %v", cmd.Process.Pid, tree)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(time.Minute); !Gone(cmd.Process.Pid) && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if !Gone(cmd.Process.Pid) {
		t.Error("the child is there although it was killed")
	}
	_ = cmd.Wait() // it was killed
	if !Gone(cmd.Process.Pid) {
		t.Error("the child is still there")
	}
}
