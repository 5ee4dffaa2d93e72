package audit

import (
	"strconv"
	"strings"
	"time"
)

// details is the last column, whose parts are there as needed.
func details(e *Event) string {
	var parts []string
	add := func(s string) {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if e.Rule != nil && e.Rule.File != "" {
		add(token(baseName(e.Rule.File), 64) + ":" + strconv.Itoa(e.Rule.Line))
	}
	for _, u := range e.Secrets {
		add(secretUse(u))
	}
	if e.Count > 1 {
		add("[x" + strconv.FormatUint(e.Count, 10) + "]")
	}
	if e.Kind == KindPolicy && e.Policy != nil {
		add("generation " + strconv.FormatUint(e.Policy.Generation, 10))
	}
	add(outcome(e))
	if text := textOf(e); text != "" {
		add(text)
	}
	return strings.Join(parts, " ")
}

// baseName is the last element of a path; the whole one is in the record.
func baseName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// secretUse is +NAME for a secret that was injected, and otherwise what was
// found where.
func secretUse(u SecretUse) string {
	name := token(u.Name, 64)
	switch {
	case u.Action == "injected":
		return "+" + name
	case u.Action == "withheld" && u.Place != "":
		return name + " in " + Escape(u.Place, 64)
	case u.Place != "":
		return token(u.Action, 16) + " " + name + " in " + Escape(u.Place, 64)
	}
	return token(u.Action, 16) + " " + name
}

// outcome is what an end event adds: status, bytes, time, error.
func outcome(e *Event) string {
	if e.Phase != PhaseEnd {
		return ""
	}
	var parts []string
	if e.HTTP != nil && e.HTTP.Status != 0 {
		parts = append(parts, strconv.Itoa(e.HTTP.Status))
	}
	if e.Bytes != nil {
		parts = append(parts, "sent="+strconv.FormatInt(e.Bytes.Sent, 10), "received="+strconv.FormatInt(e.Bytes.Received, 10))
	}
	if e.DurationMS > 0 {
		parts = append(parts, time.Duration(e.DurationMS*float64(time.Millisecond)).Round(10*time.Microsecond).String())
	}
	if r := e.Run; r != nil {
		switch {
		case r.TimedOut:
			parts = append(parts, "timed out")
		case r.Signal != "":
			parts = append(parts, "signal="+token(r.Signal, 32))
		case r.Exit != nil:
			parts = append(parts, "exit="+strconv.Itoa(*r.Exit))
		}
	}
	return strings.Join(parts, " ")
}

// textOf is the free text, where it says more than the columns.
func textOf(e *Event) string {
	switch {
	case e.Various():
		return e.Message
	case e.Error != nil && e.Error.Class == RejectedCA && e.Message != "": // the message says what the client wants
		if reasonOf(e) == RejectedCA {
			return Escape(e.Message, 256)
		}
		return RejectedCA + ": " + Escape(e.Message, 256)
	case e.Kind == KindPolicy && e.Error != nil:
		return Escape(e.Message, 256) + ": " + Escape(e.Error.Detail, 256)
	case e.Error != nil && e.Error.Detail != "":
		return Escape(e.Error.Detail, 256)
	case e.Kind == KindAudit, e.Kind == KindAlert, e.Kind == KindPolicy, e.Kind == KindSandbox:
		return Escape(e.Message, 256)
	}
	return ""
}
