package main

import (
	"testing"
	"time"

	"sallyport/audit"
)

// TestDayLines: a line says the day where it is another than that of the line
// before, and than today at first.
func TestDayLines(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	now := at("2026-12-01T03:00:00+05:00") // the day before, in UTC
	d := newDayLines(string(audit.FormatCompact), false, now)
	for _, step := range []struct{ time, want string }{
		{"2026-11-30T21:00:00Z", ""},
		{"2026-11-28T23:59:59Z", "-- 2026-11-28 UTC --\n"},
		{"2026-11-28T23:59:59.5Z", ""},
		{"2026-11-29T00:00:00Z", "-- 2026-11-29 UTC --\n"},
		{"2026-11-30T00:00:00+01:00", ""},
		{"2026-11-30T12:00:00Z", "-- 2026-11-30 UTC --\n"},
	} {
		if got := d.before(&audit.Event{Time: at(step.time)}); got != step.want {
			t.Errorf("%s: %q, want %q", step.time, got, step.want)
		}
	}
	for _, d := range []*dayLines{newDayLines(string(audit.FormatCompact), true, now), newDayLines(string(audit.FormatCSV), false, now)} {
		if got := d.before(&audit.Event{Time: at("2020-01-01T00:00:00Z")}); got != "" {
			t.Errorf("%s: %q", d.form, got)
		}
	}
}
