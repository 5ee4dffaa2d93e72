package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/audit"
)

// heard is an answer of which it is told when the client gets more of it.
type heard struct {
	http.ResponseWriter
	more func()
}

// Flush tells.
func (h heard) Flush() { h.more() }

// TestStreamBeginsBeforeItsAnswer: what is recorded once the client knows that
// the stream is open, comes.
func TestStreamBeginsBeforeItsAnswer(t *testing.T) {
	own := t.TempDir()
	log, err := audit.Open(audit.Options{Dir: filepath.Join(own, "audit")})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ctx, end := context.WithTimeout(t.Context(), 30*time.Second)
	defer end()
	var times atomic.Int32
	rec := httptest.NewRecorder()
	c := &control{d: &daemonProcess{stack: &stack{settings: settings{own: own}}}}
	c.events(heard{rec, func() {
		if times.Add(1) > 1 {
			end()
		} else if err := log.Write(&audit.Event{Kind: audit.KindDNS, Phase: audit.PhaseDecision, Host: "new.test"}); err != nil {
			t.Error(err)
		}
	}}, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events?follow", nil))
	if body := rec.Body.String(); !strings.Contains(body, `"host":"new.test"`) {
		t.Errorf("the stream: %q", body)
	}
}
