package audit

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Summary counts the decisions that a filter takes.
type Summary struct {
	From      time.Time     `json:"from"` // of the first bin
	Step      time.Duration `json:"step_ns"`
	Decisions uint64        `json:"decisions"` // folded repeats counted one by one
	Allowed   uint64        `json:"allowed"`
	Blocked   uint64        `json:"blocked"`
	Would     uint64        `json:"would"`  // allowed in report mode only
	Alerts    uint64        `json:"alerts"` // records that alert
	Bad       uint64        `json:"bad"`    // lines that are no record
	BadLines  []error       `json:"-"`      // the first of them
	Bins      []uint64      `json:"bins"`   // decisions by time
	Hosts     []Tally       `json:"hosts"`  // the most first
	Reasons   []Tally       `json:"reasons"`
	Sandboxes []Tally       `json:"sandboxes"`
}

// Tally counts the decisions that have one name.
type Tally struct {
	Name    string    `json:"name"`
	Count   uint64    `json:"count"`
	Blocked uint64    `json:"blocked"`
	Last    time.Time `json:"last"`
	Bins    []uint64  `json:"bins"` // as those of the Summary
}

// Bounds of a Summary.
const (
	summaryBins  = 60
	summaryBad   = 100    // lines that are no record and are kept
	summaryNames = 50_000 // of one kind; more are counted together
	OtherNames   = "(others)"
	VariousNames = "(various)" // of records that stand for different targets
)

// Summarize reads the logs at dirs and counts what f takes. Each list of
// tallies has the top most frequent names, all if top is 0; names beyond a
// bound on memory are counted as OtherNames. The limit of f is passed over.
func Summarize(ctx context.Context, dirs []string, f Filter, top int) (Summary, error) {
	f.Limit = 0
	var s Summary
	axis := &axis{step: time.Second}
	if !f.Since.IsZero() {
		axis.start(f.Since)
	}
	total := &series{}
	hosts, reasons, sandboxes := newTallies(axis), newTallies(axis), newTallies(axis)
	for e, err := range Read(ctx, dirs, f) {
		if isLineError(err) {
			if s.Bad++; s.Bad <= summaryBad {
				s.BadLines = append(s.BadLines, err)
			}
			continue
		}
		if err != nil {
			return s, err
		}
		if e.Alerting() {
			s.Alerts++
		}
		if e.Phase != PhaseDecision {
			continue
		}
		n := max(e.Count, 1)
		s.count(e, n)
		bin := axis.bin(e.Time)
		total.add(axis, bin, n)
		hosts.add(countedHost(e), e, bin, n)
		reasons.add(effectiveReason(e), e, bin, n)
		sandboxes.add(sandboxOf(e), e, bin, n)
	}
	s.From, s.Step, s.Bins = axis.from, axis.step, total.fit(axis)
	s.Hosts, s.Reasons, s.Sandboxes = hosts.top(top), reasons.top(top), sandboxes.top(top)
	return s, nil
}

func (s *Summary) count(e *Event, n uint64) {
	s.Decisions += n
	switch {
	case e.Verdict == "deny":
		s.Blocked += n
	case e.Would != nil:
		s.Would += n
	default:
		s.Allowed += n
	}
}

// hostOf is the name that e is about, or else the address, or "".
func hostOf(e *Event) string {
	switch {
	case e.Host != "":
		return e.Host
	case e.DNS != nil:
		return e.DNS.QName
	case e.Dst != nil:
		return e.Dst.IP
	}
	return ""
}

// countedHost is the name that the count of e is of: hostOf, unless that is only
// the first of many.
func countedHost(e *Event) string {
	if e.Various() {
		return VariousNames
	}
	return hostOf(e)
}

// effectiveReason is the reason, in report mode the spared one.
func effectiveReason(e *Event) string {
	if e.Would != nil && e.Would.Reason != "" {
		return e.Would.Reason
	}
	return e.Reason
}

func sandboxOf(e *Event) string {
	switch {
	case e.Sandbox == nil:
		return ""
	case e.Sandbox.Name != "":
		return e.Sandbox.Name
	}
	return e.Sandbox.ID
}

// axis is the time axis of all series. It has summaryBins bins at most; when
// time goes beyond the last, two become one.
type axis struct {
	from   time.Time
	step   time.Duration
	halved int // how many times the step was doubled
}

func (a *axis) start(t time.Time) { a.from = t.UTC().Truncate(a.step) }

// bin is the number of the bin of t. Times before the axis are in the first.
func (a *axis) bin(t time.Time) int {
	if a.from.IsZero() {
		a.start(t)
	}
	since := max(t.Sub(a.from), 0)
	for since >= a.step*summaryBins {
		a.step *= 2
		a.halved++
	}
	return int(since / a.step)
}

// series are counts by bin, as of the axis when it was halved so many times.
type series struct {
	bins   [summaryBins]uint64
	halved int
}

func (s *series) add(a *axis, bin int, n uint64) {
	s.catchUp(a)
	s.bins[bin] += n
}

func (s *series) catchUp(a *axis) {
	for ; s.halved < a.halved; s.halved++ {
		for i := range summaryBins / 2 {
			s.bins[i] = s.bins[2*i] + s.bins[2*i+1]
		}
		clear(s.bins[summaryBins/2:])
	}
}

// fit are the bins up to the last that has a count.
func (s *series) fit(a *axis) []uint64 {
	s.catchUp(a)
	n := summaryBins
	for n > 0 && s.bins[n-1] == 0 {
		n--
	}
	return slices.Clone(s.bins[:n])
}

// tallies count by name.
type tallies struct {
	axis *axis
	by   map[string]*tally
}

type tally struct {
	Tally
	series series
}

func newTallies(a *axis) *tallies { return &tallies{axis: a, by: make(map[string]*tally)} }

func (t *tallies) add(name string, e *Event, bin int, n uint64) {
	if name == "" {
		name = "-"
	}
	x := t.by[name]
	if x == nil && len(t.by) >= summaryNames {
		name = OtherNames
		x = t.by[name]
	}
	if x == nil {
		x = &tally{Tally: Tally{Name: name}}
		t.by[name] = x
	}
	x.Count += n
	if e.Verdict == "deny" {
		x.Blocked += n
	}
	if e.Time.After(x.Last) {
		x.Last = e.Time
	}
	x.series.add(t.axis, bin, n)
}

func (t *tallies) top(n int) []Tally {
	list := make([]Tally, 0, len(t.by))
	for _, x := range t.by {
		list = append(list, x.Tally)
	}
	slices.SortFunc(list, func(a, b Tally) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	if n > 0 && len(list) > n {
		list = list[:n]
	}
	for i := range list {
		list[i].Bins = t.by[list[i].Name].series.fit(t.axis)
	}
	return list
}

// Sparkline draws counts in one line of as many characters.
func Sparkline(counts []uint64) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	most := uint64(1)
	for _, n := range counts {
		most = max(most, n)
	}
	line := make([]rune, len(counts))
	for i, n := range counts {
		switch {
		case n == 0:
			line[i] = ' '
		default:
			line[i] = levels[int(float64(n)/float64(most)*float64(len(levels)-1)+0.5)]
		}
	}
	return string(line)
}
