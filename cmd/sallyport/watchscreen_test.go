package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"sallyport/audit"
)

// screen is a model at a fixed time, 120 by 20.
func screen() *watchModel {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	m := &watchModel{now: func() time.Time { return now },
		suggest: func(e *audit.Event) string { return "allow \"" + e.Host + "\" {}\n\x1b[2J" },
		source:  func(file string, line int) string { return "  deny \"b.test\" {} # \x1b[31m" }}
	m.Update(tea.WindowSizeMsg{Width: 120, Height: 20})
	return m
}

func (m *watchModel) event(host, verdict string, change func(*audit.Event)) *audit.Event {
	e := &audit.Event{ID: host, Time: m.now(), Kind: audit.KindDNS, Phase: audit.PhaseDecision, Verdict: verdict, Reason: "host_not_allowed", Host: host,
		Sandbox: &audit.Sandbox{Name: "ci", ID: "1"}, DNS: &audit.DNS{QName: host, QType: "A", Transport: "udp"}, Conn: "c1", Severity: audit.Low}
	if change != nil {
		change(e)
	}
	m.Update(eventsMsg{e})
	return e
}

// press types keys: single letters, or names in angle brackets.
func (m *watchModel) press(keys ...string) tea.Cmd {
	var cmd tea.Cmd
	codes := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "home": tea.KeyHome, "end": tea.KeyEnd, "backspace": tea.KeyBackspace, "pgup": tea.KeyPgUp}
	for _, k := range keys {
		if code, ok := codes[k]; ok {
			_, cmd = m.Update(tea.KeyPressMsg{Code: code})
			continue
		}
		for _, r := range k {
			_, cmd = m.Update(tea.KeyPressMsg{Code: r, Text: string(r)})
		}
	}
	return cmd
}

// see holds that the screen shows some things and not others.
func (m *watchModel) see(t *testing.T, what string, want []string, not ...string) {
	t.Helper()
	v := m.View()
	lines := strings.Split(v.Content, "\n")
	if len(lines) != m.height || !v.AltScreen {
		t.Errorf("%s: %d lines, want %d", what, len(lines), m.height)
	}
	for _, l := range lines {
		if len([]rune(l)) > m.width {
			t.Errorf("%s: line of %d characters: %s", what, len([]rune(l)), l)
		}
	}
	for _, w := range want {
		if !strings.Contains(v.Content, w) {
			t.Errorf("%s: no %q on\n%s", what, w, v.Content)
		}
	}
	for _, n := range not {
		if strings.Contains(v.Content, n) {
			t.Errorf("%s: %q on\n%s", what, n, v.Content)
		}
	}
	if strings.ContainsAny(v.Content, "\x1b\x07\u202e") {
		t.Errorf("%s: something that a terminal obeys: %q", what, v.Content)
	}
}

func TestWatchCountsAndLists(t *testing.T) {
	m := screen()
	m.see(t, "empty", []string{"0 blocked", "nothing yet"})
	m.event("a.test", "deny", nil)
	m.event("b.test", "deny", func(e *audit.Event) { e.Count = 41 })
	m.event("good.test", "allow", nil)
	m.event("x.test", "", func(e *audit.Event) {
		e.Kind, e.Phase, e.Alert, e.Message = audit.KindAlert, audit.PhaseEvent, "scan", "firing"
	})
	m.see(t, "blocked", []string{"42 blocked", "1 allowed", "1 alert", "last minute: 42", "a.test", "b.test", "[x41]", "x.test", "blocked and alerts: 3"}, "good.test")
	m.press("b")
	m.see(t, "all", []string{"good.test", "everything: 4"})
	m.press("b")
	m.now = func() time.Time { return time.Date(2026, 11, 29, 12, 2, 0, 0, time.UTC) }
	m.Update(tickMsg{})
	m.see(t, "two minutes later", []string{"42 blocked", "last minute: 0"})
}

func TestWatchFilter(t *testing.T) {
	m := screen()
	m.event("a.test", "deny", nil)
	m.event("b.test", "deny", nil)
	m.press("/", "B.tesX", "backspace", "t", "enter")
	m.see(t, "filter", []string{"filter: B.test", "b.test", "alerts: 1"}, "a.test")
	m.event("ab.test", "deny", nil)
	m.event("c.test", "deny", nil)
	m.see(t, "what comes is filtered", []string{"ab.test"}, "c.test")
	if m.press("/", "q"); m.press("esc") != nil { // a letter of the filter is no command
		t.Error("the filter ended the program")
	}
	m.see(t, "without", []string{"a.test", "c.test"}, "filter:")
}

func TestWatchDetailWraps(t *testing.T) {
	m := screen()
	m.event("b.test", "deny", func(e *audit.Event) {
		e.Kind, e.Reason, e.Error = audit.KindTLS, "protocol_error", &audit.Error{Class: audit.RejectedCA, Detail: "tls: bad record MAC"}
		e.Message = strings.Repeat("a client that does not trust ", 6) + "THE END"
	})
	m.press("/", audit.RejectedCA, "enter")
	m.see(t, "the class in the filter", []string{"alerts: 1"})
	m.press("enter")
	m.see(t, "the whole message", []string{"THE END", "error      client_rejected_ca tls: bad record MAC"})
}

func TestWatchDetail(t *testing.T) {
	m := screen()
	m.event("b.test", "deny", func(e *audit.Event) {
		e.Rule = &audit.Rule{ID: `org deny "b.test"`, File: "org.hcl", Line: 7, Ticket: "SEC-1"}
		e.Policy = &audit.Policy{Generation: 3, SHA256: "abc"}
		e.Message = "evil \x1b[2J\u202e text"
	})
	m.event("other.test", "allow", nil)
	m.press("enter")
	m.see(t, "detail", []string{"host_not_allowed", `org deny`, "org.hcl:7", `deny`, "SEC-1", "generation 3", "A b.test over udp", "ci (1)", "of the same connection", "other.test"})
	m.event("later.test", "deny", nil)
	m.see(t, "what comes does not move it", []string{"org.hcl:7"}, "later.test over")
	m.press("esc")
	m.see(t, "back", []string{"later.test", "▸"})
}

func TestWatchAllow(t *testing.T) {
	m := screen()
	m.event("good.test", "allow", nil)
	m.event("b.test", "deny", nil)
	m.press("a")
	m.see(t, "suggestion", []string{`allow "b.test" {}`})
	m.press("a", "esc", "b", "home", "a")
	m.see(t, "an allow needs none", []string{"everything"}, "allow \"good.test\"")
	if len(m.printed) != 1 || !strings.Contains(m.printed[0], `allow "b.test" {}`) || strings.Contains(m.printed[0], "\x1b") {
		t.Errorf("printed at the end: %q", m.printed)
	}
	if cmd := m.press("q"); cmd == nil {
		t.Error("q does not end")
	} else if _, quit := cmd().(tea.QuitMsg); !quit {
		t.Error("q does not end")
	}
}

func TestWatchMovesAndHolds(t *testing.T) {
	m := screen()
	for i := range 100 {
		m.event(fmt.Sprintf("h%d.test", i), "deny", nil)
	}
	m.see(t, "the newest", []string{"▸", "h99.test"}, "h50.test")
	m.press("up", "up")
	if e := m.selected(); e.Host != "h97.test" {
		t.Errorf("at %s", e.Host)
	}
	for i := range watchKeep - 50 {
		m.event(fmt.Sprintf("k%d.test", i), "deny", nil)
	}
	if e := m.selected(); e.Host != "h97.test" {
		t.Errorf("at %s after more have come", e.Host)
	}
	for i := range 200 {
		m.event(fmt.Sprintf("l%d.test", i), "deny", nil)
	}
	if len(m.events) != watchKeep || m.selected() == nil {
		t.Errorf("%d events are held", len(m.events))
	}
	m.press("p")
	n := len(m.shown)
	m.event("while.test", "deny", nil)
	m.see(t, "paused", []string{"paused, 1 more"}, "while.test")
	m.press("p", "G")
	if len(m.shown) != n || m.selected().Host != "while.test" {
		t.Errorf("after the pause: %d shown, at %s", len(m.shown), m.selected().Host)
	}
	m.Update(tea.WindowSizeMsg{Width: 10, Height: 3})
	_ = m.View() // it is too small, and no reason to end
}

func TestWatchFeed(t *testing.T) {
	var got []tea.Msg
	feed(func(yield func(*audit.Event, error) bool) {
		for i := range feedBatch + 1 {
			if i == 7 && !yield(nil, &audit.LineError{}) {
				return
			}
			if !yield(&audit.Event{Seq: uint64(i)}, nil) {
				return
			}
		}
		yield(nil, os.ErrPermission)
	}, func(m tea.Msg) { got = append(got, m) })
	n, damaged := 0, damagedMsg(0)
	for _, m := range got {
		switch m := m.(type) {
		case eventsMsg:
			n += len(m)
		case damagedMsg:
			damaged += m
		}
	}
	if damaged != 1 {
		t.Errorf("told of %d damaged lines", damaged)
	}
	if last, ok := got[len(got)-1].(endedMsg); n != feedBatch+1 || !ok || last.err == nil {
		t.Errorf("%d events, then %v", n, got[len(got)-1])
	}
}

func TestWatchCountsDamagedLines(t *testing.T) {
	m := screen()
	m.see(t, "a whole log", []string{"0 alerts"}, "damaged")
	m.Update(damagedMsg(1))
	m.Update(damagedMsg(2))
	m.see(t, "a damaged one", []string{"3 damaged lines: sallyport audit verify"})
}

func TestWatchSuggestsUnderThePolicy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.hcl")
	if err := os.WriteFile(file, []byte("sandbox \"ci\" {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &audit.Event{Kind: audit.KindHTTP, Phase: audit.PhaseDecision, Verdict: "deny", Reason: "host_not_allowed", Host: "api.example.com", Port: 443,
		Sandbox: &audit.Sandbox{Name: "ci"}, HTTP: &audit.HTTP{Method: "GET", Path: "/v1/items", Scheme: "https"}}
	if got := watchSuggest([]string{file}, nil)(e); !strings.Contains(got, `allow "api.example.com"`) || !strings.Contains(got, "/v1/items") {
		t.Errorf("suggestion: %s", got)
	}
	if got := sourceLine(file, 1); got != `sandbox "ci" {}` {
		t.Errorf("line: %q", got)
	}
	for _, bad := range []string{"/dev/zero", "/nonexistent"} {
		if got := sourceLine(bad, 1); got != "" {
			t.Errorf("%s: %q", bad, got)
		}
	}
	e.Host = ""
	if got := watchSuggest([]string{file}, nil)(e); !strings.HasPrefix(got, "# Nothing") {
		t.Errorf("without a host: %s", got)
	}
}
