//go:build linux

package audit_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"sallyport/audit"
	"sallyport/test/lab"
)

// frames is a receiver of octet-counted messages (RFC 6587).
type frames struct {
	mu   sync.Mutex
	got  [][]byte
	l    net.Listener
	open []net.Conn
}

func (f *frames) up(t *testing.T, address string) {
	t.Helper()
	l, err := world.lab.GW.Listen("tcp", address)
	must(t, err)
	f.l = l
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.open = append(f.open, c)
			f.mu.Unlock()
			go f.read(c)
		}
	}()
}

func (f *frames) read(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		size, err := r.ReadString(' ')
		if err != nil {
			return
		}
		n, err := strconv.Atoi(strings.TrimSpace(size))
		if err != nil || n > 1<<20 {
			return
		}
		msg := make([]byte, n)
		if _, err := io.ReadFull(r, msg); err != nil {
			return
		}
		f.mu.Lock()
		f.got = append(f.got, msg)
		f.mu.Unlock()
	}
}

func (f *frames) down() {
	_ = f.l.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		_ = c.Close()
	}
	f.open = nil
}

// lines are the records that came, without doubles.
func (f *frames) lines() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	seen := map[string]bool{}
	for _, m := range f.got {
		if line := strings.TrimRight(string(m), "\n"); !seen[line] {
			seen[line] = true
			out = append(out, line)
		}
	}
	slices.SortStableFunc(out, func(a, b string) int { return cmp.Compare(seqOf(a), seqOf(b)) }) // segments are read side by side
	return out
}

// seqOf is the place of a record in its log.
func seqOf(line string) uint64 {
	var e struct {
		Seq uint64 `json:"seq"`
	}
	_ = json.Unmarshal([]byte(line), &e) // what is no record has no place, and is found by the comparison
	return e.Seq
}

// records are the lines of the log in dir that are whole: one may be being
// written.
func records(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "audit-*.jsonl"))
	must(t, err)
	var all []byte
	for _, file := range files {
		b, err := os.ReadFile(file)
		must(t, err)
		all = append(all, b[:bytes.LastIndexByte(b, '\n')+1]...)
	}
	return strings.Split(strings.TrimSuffix(string(all), "\n"), "\n")
}

// TestShipWithRsyslog: the example ships every record byte for byte, over
// rotation, and while receiver and rsyslog are restarted.
func TestShipWithRsyslog(t *testing.T) {
	l := begin(t)
	g := l.Gateway(t, lab.GatewayOptions{Policy: one("sandbox \"dev\" {}\n"), Audit: "segment_bytes = 16384"})
	s := g.Attach(t, "dev")
	dir, work := filepath.Join(g.State, "audit"), t.TempDir()
	example, err := os.ReadFile("../../examples/shipping/rsyslog.conf")
	must(t, err)
	text := string(example)
	for old, now := range map[string]string{"/var/spool/rsyslog": work, "/var/lib/sallyport/audit": dir, "logs.example.com\" port=\"6514": "127.0.0.1\" port=\"6515"} {
		if !strings.Contains(text, old) {
			t.Fatalf("the example has no %s", old)
		}
		text = strings.ReplaceAll(text, old, now)
	}
	config := filepath.Join(work, "rsyslog.conf")
	must(t, os.WriteFile(config, []byte(text), 0o644))
	f := &frames{}
	f.up(t, "127.0.0.1:6515")
	defer func() { f.down() }()
	run := func() *process { return start(t, "rsyslogd", "-n", "-f", config, "-i", filepath.Join(work, "pid")) }
	p := run()
	round := 0
	more := func() {
		round++
		for i := range 60 {
			if _, err := s.Ask(fmt.Sprintf("%s%d-%d.evil.test", hostileName, round, i), dns.TypeTXT); err != nil {
				t.Fatal(err)
			}
		}
	}
	arrived := func() {
		t.Helper()
		s.Mark()
		var want, got []string
		eventually(t, "every record at the receiver", func() bool {
			want, got = records(t, dir), f.lines()
			return len(got) >= len(want)
		})
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%d records came, %d were written; record %d came as\n%s\nand is\n%s\n%s", len(got), len(want), i, got[i], want[i], p.out)
				}
			}
		}
	}
	more()
	arrived()
	f.down()
	more()
	f.up(t, "127.0.0.1:6515")
	more()
	arrived()
	must(t, p.cmd.Process.Signal(syscall.SIGTERM)) // in order: it saves its place
	<-p.done
	more()
	p = run()
	more()
	arrived()
	// What came is the log: it verifies by itself.
	copied := t.TempDir()
	must(t, os.WriteFile(filepath.Join(copied, "audit-000001.jsonl"), append([]byte(strings.Join(f.lines(), "\n")), '\n'), 0o600))
	if r, err := audit.Verify(copied); err != nil || r.Records < 300 {
		t.Errorf("the copy: %+v, %v", r, err)
	}
	if bytes.ContainsAny([]byte(strings.Join(f.lines(), "")), "\x1b\x07") {
		t.Error("a control character was shipped")
	}
}
