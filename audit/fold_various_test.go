package audit

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestDifferentTargetsCountUnderNone: denials that were too many to be told
// apart count under no single host, in statistics and in alerts; the first is
// found by its name, and the line says what it is.
func TestDifferentTargetsCountUnderNone(t *testing.T) {
	l := openTest(t, Options{})
	f := newFolder(t, FolderOptions{Log: l, Burst: 1, Direct: 3, Keys: 3})
	for i := range 100 {
		if err := f.Write(denial(fmt.Sprintf("h%d.test", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	s, err := Summarize(t.Context(), []string{l.o.Dir}, Filter{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range s.Hosts {
		got = append(got, fmt.Sprint(x.Name, " ", x.Count))
	}
	if fmt.Sprint(got) != "[(various) 97 h0.test 1 h1.test 1 h2.test 1]" {
		t.Errorf("hosts %q", got)
	}

	b := newBench(t, AlertOptions{Rules: []AlertRule{
		{Name: "host", Verdict: "deny", Per: []string{"host"}},
		{Name: "h3", Verdict: "deny", Host: "h3.test"},
	}})
	found := 0
	for e, err := range Read(t.Context(), []string{l.o.Dir}, Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		b.observe1(e)
		if !e.Various() {
			continue
		}
		if found++; !(Filter{Host: "h3.test"}).Match(e) || (Filter{Host: "h4.test"}).Match(e) {
			t.Errorf("record of %s", e.Host)
		}
		var line bytes.Buffer
		Compact(&line, e, false)
		if !strings.Contains(line.String(), "[x97]") || !strings.Contains(line.String(), "different targets") {
			t.Errorf("line %s", line.String())
		}
	}
	expect(t, "alerts", b.told(), "host firing 1/1, host firing 1/1, host firing 1/1, host firing 97/97, h3 firing 1/1")
	last := b.log.list()[3]
	if found != 1 || last.Host != "" || !strings.Contains(last.Message, "to different targets") {
		t.Errorf("%d records of different targets; alert about %q: %s", found, last.Host, last.Message)
	}
}
