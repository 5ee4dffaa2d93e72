// Package otlp sends notices of alerts as OpenTelemetry log records over HTTP,
// in the JSON encoding of OTLP.
package otlp

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

// Config of a Sink. URL is required: the base of the receiver, to which
// /v1/logs is added.
type Config struct {
	URL       audit.Text
	Headers   map[string]audit.Text // such as an authorization
	Resource  map[string]string     // attributes of the resource beside service.name
	Transport http.RoundTripper     // nil is a plain one
	Now       func() time.Time      // nil is time.Now
}

// Sink is an OTLP receiver.
type Sink struct {
	c      Config
	client *http.Client
}

// New returns a Sink.
func New(c Config) (*Sink, error) {
	if c.URL == nil {
		return nil, errors.New("otlp: url is required")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Sink{c: c, client: audit.NewClient(c.Transport)}, nil
}

// Send posts the notice. A receiver that accepts the request and rejects the
// record has refused it for good.
func (s *Sink) Send(ctx context.Context, a audit.Alert) error {
	body, err := json.Marshal(s.export(a))
	if err != nil {
		return audit.Permanent(err)
	}
	err = s.post(ctx, body)
	var rejected *audit.RejectedError
	if errors.As(err, &rejected) {
		return audit.Permanent(err)
	}
	return err
}

// Carry posts records. A receiver that answers that it cannot read the request,
// or that it is too large, does not take them; everything else may pass, also
// that a credential is not accepted.
func (s *Sink) Carry(ctx context.Context, events []*audit.Event) error {
	body, err := audit.OTLP(events, s.c.Resource)
	if err != nil {
		return audit.Permanent(err)
	}
	err = s.post(ctx, body)
	var status *audit.StatusError
	if errors.As(err, &status) && audit.IsPermanent(err) {
		switch status.Code {
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		default:
			return status
		}
	}
	return err
}

// post posts one ExportLogsServiceRequest.
func (s *Sink) post(ctx context.Context, body []byte) error {
	url, err := s.c.URL(ctx)
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	h := make(http.Header)
	for k, v := range s.c.Headers {
		value, err := v(ctx)
		if err != nil {
			return fmt.Errorf("header %s: %w", k, err)
		}
		h.Set(k, value)
	}
	reply, err := audit.Post(ctx, s.client, strings.TrimSuffix(url, "/")+"/v1/logs", h, body)
	if err != nil {
		return err
	}
	var r struct {
		Partial struct {
			Rejected json.RawMessage `json:"rejectedLogRecords"` // a number or, as 64 bits are written in JSON, a string
			Message  string          `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(reply, &r) != nil {
		return nil
	}
	if n, err := strconv.Atoi(strings.Trim(string(r.Partial.Rejected), `"`)); err == nil && n > 0 {
		return &audit.RejectedError{Records: n, Reply: audit.Escape(r.Partial.Message, 200)}
	}
	return nil
}

type (
	export struct {
		ResourceLogs []resourceLogs `json:"resourceLogs"`
	}
	resourceLogs struct {
		Resource  resource    `json:"resource"`
		ScopeLogs []scopeLogs `json:"scopeLogs"`
	}
	resource struct {
		Attributes []attribute `json:"attributes"`
	}
	scopeLogs struct {
		Scope      scope       `json:"scope"`
		LogRecords []logRecord `json:"logRecords"`
	}
	scope struct {
		Name string `json:"name"`
	}
	logRecord struct {
		TimeUnixNano         string      `json:"timeUnixNano"`
		ObservedTimeUnixNano string      `json:"observedTimeUnixNano"`
		SeverityNumber       int         `json:"severityNumber"`
		SeverityText         string      `json:"severityText"`
		Body                 value       `json:"body"`
		Attributes           []attribute `json:"attributes"`
		EventName            string      `json:"eventName"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		String string `json:"stringValue"`
	}
)

func (s *Sink) export(a audit.Alert) export {
	record := logRecord{
		TimeUnixNano: nano(a.LastSeen), ObservedTimeUnixNano: nano(s.c.Now()), SeverityNumber: severity(a), SeverityText: string(a.Severity),
		Body: value{audit.Escape(a.Message, 1024)}, EventName: "sallyport.alert",
	}
	add := func(key, v string) {
		if v != "" {
			record.Attributes = append(record.Attributes, attribute{key, value{audit.Escape(v, 256)}})
		}
	}
	add("sallyport.alert.id", a.ID)
	add("sallyport.alert.name", a.Name)
	add("sallyport.alert.state", a.State)
	add("sallyport.alert.count", strconv.FormatUint(a.Count, 10))
	if e := a.Event; e != nil {
		add("sallyport.reason", e.Reason)
		add("sallyport.req", e.Req)
		add("server.address", e.Host)
		if e.Sandbox != nil {
			add("sallyport.sandbox.name", e.Sandbox.Name)
			add("sallyport.sandbox.id", e.Sandbox.ID)
		}
		if e.Rule != nil {
			add("sallyport.rule", fmt.Sprintf("%s:%d", e.Rule.File, e.Rule.Line))
		}
	}
	res := resource{Attributes: []attribute{{"service.name", value{"sallyport"}}}}
	for k, v := range s.c.Resource {
		res.Attributes = append(res.Attributes, attribute{k, value{v}})
	}
	return export{[]resourceLogs{{res, []scopeLogs{{scope{"sallyport"}, []logRecord{record}}}}}}
}

func nano(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// severity is the SeverityNumber of the logs data model.
func severity(a audit.Alert) int {
	if a.State == audit.Resolved {
		return 9 // INFO
	}
	switch a.Severity {
	case audit.Critical:
		return 21 // FATAL
	case audit.High:
		return 17 // ERROR
	case audit.Medium:
		return 13 // WARN
	}
	return 9
}
