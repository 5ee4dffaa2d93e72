package main

import (
	"fmt"
	"time"

	"sallyport/audit"
)

// dayLines tells the days of lines that have the time of day alone.
type dayLines struct {
	form string // of the output; other forms have whole times
	last string // day of the line before; at first the day on which they are read
}

// newDayLines begins with what is taken for the day of a first line.
func newDayLines(form string, asJSON bool, now time.Time) *dayLines {
	if asJSON {
		form = string(audit.FormatJSON)
	}
	return &dayLines{form: form, last: dayOf(now)}
}

// before is the line that stands before that of an event; "" where the day is
// the same.
func (d *dayLines) before(e *audit.Event) string {
	day := dayOf(e.Time)
	if d.form != string(audit.FormatCompact) || day == d.last {
		return ""
	}
	d.last = day
	return fmt.Sprintf("-- %s UTC --\n", day)
}

// dayOf is a day of UTC, as records have their times.
func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }
