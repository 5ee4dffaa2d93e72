package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sallyport/audit"
)

// apiAlerts is the state of the alerts.
type apiAlerts struct {
	Active []audit.Alert `json:"active"`
	Mutes  []audit.Mute  `json:"mutes"`
	Sinks  []apiSink     `json:"sinks"`
}

// apiSink is the state of the deliveries to one sink since the start.
type apiSink struct {
	Name    string `json:"name"`
	Waiting int    `json:"waiting"`
	Sent    uint64 `json:"sent"`
	Failed  uint64 `json:"failed"` // attempts
	Dropped uint64 `json:"dropped"`

	LastError string `json:"last_error,omitempty"` // of the delivery that failed last, while something waits
}

// apiMute asks for a mute.
type apiMute struct {
	Alerts    []string `json:"alerts,omitempty"`
	Sandboxes []string `json:"sandboxes,omitempty"`
	Hosts     []string `json:"hosts,omitempty"`
	Seconds   int64    `json:"seconds"`
	Why       string   `json:"why,omitempty"`
}

func (c *control) showAlerts(w http.ResponseWriter, _ *http.Request) {
	rules := c.d.alerts.rules()
	if rules == nil {
		respond(w, http.StatusServiceUnavailable, apiError{Error: errNoPolicy.Error()})
		return
	}
	out := apiAlerts{Active: rules.Active(), Mutes: rules.Mutes(), Sinks: c.d.alerts.sinks()}
	respond(w, http.StatusOK, out)
}

// sinks is the state of every delivery, by name.
func (a *alerting) sinks() []apiSink {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := []apiSink{}
	for name, d := range a.spools {
		s := apiSink{Name: name, Waiting: d.spool.Waiting()}
		s.Sent, s.Dropped, s.Failed = d.spool.Counts()
		if s.Waiting > 0 {
			s.LastError = d.spool.LastError()
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(x, y apiSink) int { return strings.Compare(x.Name, y.Name) })
	return out
}

// maxMute is the longest mute.
const maxMute = 366 * 24 * time.Hour

func (c *control) mute(w http.ResponseWriter, r *http.Request) {
	var in apiMute
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		respond(w, http.StatusBadRequest, apiError{Error: err.Error()})
		return
	}
	rules := c.d.alerts.rules()
	if rules == nil || in.Seconds <= 0 || in.Seconds > int64(maxMute/time.Second) {
		respond(w, http.StatusUnprocessableEntity, apiError{Error: "a mute lasts from one second to a year"})
		return
	}
	if unknown := rules.Unknown(in.Alerts); len(unknown) > 0 {
		respond(w, http.StatusUnprocessableEntity, apiError{Error: fmt.Sprintf("the policy has no alert %q; it has: %s", unknown[0], strings.Join(rules.Names(), ", "))})
		return
	}
	m := audit.Mute{Alerts: in.Alerts, Sandboxes: in.Sandboxes, Hosts: in.Hosts, Why: in.Why,
		Until: time.Now().Add(time.Duration(in.Seconds) * time.Second).UTC()}
	id, err := rules.Mute(m)
	if err == nil {
		m.ID = id
		err = c.d.log.Write(&audit.Event{Kind: audit.KindAlert, Phase: audit.PhaseEvent, Severity: audit.Info,
			Message: muteMessage(m), Req: id})
	}
	if err != nil {
		respond(w, http.StatusInternalServerError, apiError{Error: err.Error()})
		return
	}
	respond(w, http.StatusCreated, m)
}

// muteMessage is the text of the record of a mute.
func muteMessage(m audit.Mute) string {
	text := "muted: alerts " + globs(m.Alerts) + " until " + m.Until.Format(time.RFC3339)
	if m.Why != "" {
		text += ": " + audit.Escape(m.Why, 200)
	}
	return text
}

func (c *control) unmute(w http.ResponseWriter, r *http.Request) {
	rules := c.d.alerts.rules()
	if rules == nil {
		respond(w, http.StatusServiceUnavailable, apiError{Error: errNoPolicy.Error()})
		return
	}
	switch ok, err := rules.Unmute(r.PathValue("id")); {
	case err != nil:
		respond(w, http.StatusInternalServerError, apiError{Error: err.Error()})
	case !ok:
		respond(w, http.StatusNotFound, apiError{Error: fmt.Sprintf("no mute has the ID %q; `sallyport alert ls` shows the IDs, and one of the policy ends with a reload", audit.Escape(r.PathValue("id"), 64))})
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}
