// Package alertmanager sends notices of alerts to Prometheus Alertmanager, API
// version 2.
package alertmanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sallyport/audit"
)

// DefaultHold is how long an alert stays in force at Alertmanager without
// another notice: more than two intervals of a rule.
const DefaultHold = 30 * time.Minute

// Config of a Sink. URL is required: the address of Alertmanager without a path
// of the API.
type Config struct {
	URL       audit.Text
	Labels    map[string]string // further ones of every alert
	Hold      time.Duration     // 0 is DefaultHold
	Transport http.RoundTripper // nil is a plain one
	Now       func() time.Time  // nil is time.Now
}

// Sink is an Alertmanager.
type Sink struct {
	c      Config
	client *http.Client
}

// New returns a Sink.
func New(c Config) (*Sink, error) {
	if c.URL == nil {
		return nil, errors.New("alertmanager: url is required")
	}
	if c.Hold <= 0 {
		c.Hold = DefaultHold
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Sink{c: c, client: audit.NewClient(c.Transport)}, nil
}

// postable is an alert of the API.
type postable struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
}

// Send posts the notice.
func (s *Sink) Send(ctx context.Context, a audit.Alert) error {
	url, err := s.c.URL(ctx)
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	body, err := json.Marshal([]postable{s.alert(a)})
	if err != nil {
		return audit.Permanent(err)
	}
	_, err = audit.Post(ctx, s.client, strings.TrimSuffix(url, "/")+"/api/v2/alerts", nil, body)
	return err
}

// alert maps a notice. The labels are the same for every notice of a group, so
// that Alertmanager knows it again; what changes is an annotation.
func (s *Sink) alert(a audit.Alert) postable {
	p := postable{
		Labels:      map[string]string{"alertname": audit.Escape(a.Name, 100), "severity": string(a.Severity), "service": "sallyport"},
		Annotations: map[string]string{"summary": audit.Escape(a.Message, 1000), "count": strconv.FormatUint(a.Count, 10), "id": a.ID},
		StartsAt:    a.FirstSeen,
	}
	for k, v := range s.c.Labels {
		p.Labels[k] = v
	}
	for k, v := range a.Group {
		if v != "" { // an empty label is none
			p.Labels[k] = audit.Escape(v, 253)
		}
	}
	if e := a.Event; e != nil {
		if e.Sandbox != nil {
			p.Annotations["sandbox"] = audit.Escape(e.Sandbox.Name, 100)
		}
		p.Annotations["host"] = audit.Escape(e.Host, 253)
		p.Annotations["reason"] = audit.Escape(e.Reason, 64)
		if e.Rule != nil {
			p.Annotations["rule"] = fmt.Sprintf("%s:%d", audit.Escape(e.Rule.File, 200), e.Rule.Line)
		}
	}
	now := s.c.Now()
	p.EndsAt = now.Add(s.c.Hold)
	if a.State == audit.Resolved {
		p.EndsAt = now
	}
	return p
}
