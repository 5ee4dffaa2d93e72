package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"sallyport/audit"
)

// streamBeat is how often a stream without events says that it is alive.
const streamBeat = 15 * time.Second

// events answers with the records of the daemon's log, filtered as tail does:
// as JSON lines, or with follow as server-sent events that go on with what
// comes. A client that was cut off goes on where it was with Last-Event-ID.
func (c *control) events(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	filter, err := eventFilter(q)
	if err != nil {
		respond(w, http.StatusBadRequest, apiError{Error: err.Error()})
		return
	}
	dirs := []string{filepath.Join(c.d.own, "audit")}
	if !q.Has("follow") {
		w.Header().Set("Content-Type", "application/x-ndjson")
		out, err := audit.NewExporter(w, audit.FormatJSON, false)
		for e, rerr := range audit.Read(r.Context(), dirs, filter) {
			if rerr != nil {
				continue // a line that is broken is audit verify's business
			}
			if err != nil || out.Write(e) != nil {
				return
			}
		}
		return
	}
	s := &eventStream{w: w, flush: http.NewResponseController(w).Flush}
	if err := s.resume(r.Header.Get("Last-Event-ID"), &filter); err != nil {
		respond(w, http.StatusBadRequest, apiError{Error: err.Error()})
		return
	}
	next := audit.Follow(r.Context(), dirs, filter) // before the client knows that it begins
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	if s.comment("stream") != nil {
		return
	}
	done := make(chan struct{})
	defer close(done)
	go s.beat(done)
	for e, err := range next {
		if err == nil && s.send(e) != nil {
			return
		}
	}
}

// eventFilter reads the filter of a query; the names are those of tail's flags.
func eventFilter(q url.Values) (audit.Filter, error) {
	for name := range q {
		switch name {
		case "follow", "blocked", "alerts":
		case "since", "sandbox", "host", "reason", "kind", "verdict", "n":
			if q.Get(name) == "" {
				return audit.Filter{}, fmt.Errorf("parameter %q is empty", name)
			}
		default:
			return audit.Filter{}, fmt.Errorf("no parameter %q", name)
		}
	}
	f := audit.Filter{Sandbox: q.Get("sandbox"), Host: recordedHost(q.Get("host")), Reason: q.Get("reason"), Kind: q.Get("kind"), Verdict: q.Get("verdict"), Blocked: q.Has("blocked"), Alerts: q.Has("alerts")}
	err := checkFilter(f)
	var e *exit
	if errors.As(err, &e) {
		return f, fmt.Errorf("%w; %s", err, e.hint)
	}
	if s := q.Get("since"); s != "" {
		if f.Since, err = moment("since", s); err != nil {
			return f, err
		}
	} else if q.Has("follow") {
		f.Limit = -1 // what comes
	}
	if s := q.Get("n"); s != "" {
		if f.Limit, err = strconv.Atoi(s); err != nil || f.Limit < 0 {
			return f, errors.New("n is not a number of events")
		}
	}
	return f, nil
}

// eventStream writes server-sent events.
type eventStream struct {
	mu    sync.Mutex
	w     http.ResponseWriter
	flush func() error
	line  []byte

	last   string    // what the client has already; "" once that is behind
	lastAt time.Time // when that was written
}

// resume makes the stream begin behind the record of that ID.
func (s *eventStream) resume(id string, f *audit.Filter) error {
	if id == "" {
		return nil
	}
	at, err := audit.IDTime(id)
	if err != nil {
		return errors.New("Last-Event-ID is not the id of a record")
	}
	s.last, s.lastAt = id, at
	f.Since, f.Limit = at.Add(-time.Second), 0 // the clock of the record may be a little older
	return nil
}

// send writes one record, unless the client has it.
func (s *eventStream) send(e *audit.Event) error {
	if s.last != "" {
		if e.ID == s.last {
			s.last = ""
			return nil
		}
		if at, err := audit.IDTime(e.ID); err == nil && !at.After(s.lastAt) {
			return nil
		}
		s.last = ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = append(append(s.line[:0], "id: "...), e.ID...)
	s.line = append(append(s.line, "\nevent: "...), e.Kind...)
	s.line = audit.AppendLine(append(s.line, "\ndata: "...), e)
	if _, err := s.w.Write(append(s.line, "\n\n"...)); err != nil {
		return err
	}
	return s.flush()
}

func (s *eventStream) comment(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := fmt.Fprintf(s.w, ": %s\n\n", text); err != nil {
		return err
	}
	return s.flush()
}

func (s *eventStream) beat(done chan struct{}) {
	tick := time.NewTicker(streamBeat)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			if s.comment("beat") != nil {
				return
			}
		}
	}
}
