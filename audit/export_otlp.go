package audit

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"
)

// FormatOTLP is the JSON encoding of OpenTelemetry's logs: each line is an
// ExportLogsServiceRequest, as receivers of OTLP files and /v1/logs take it.
const FormatOTLP Format = "otlp"

// OTLP is one ExportLogsServiceRequest in JSON with a log record for each event.
// The attributes of the resource stand beside service.name. The record of the
// log itself is in log.record.original, so that its chain can be proved where it
// arrives, and its ID in log.record.uid: what came twice has the same.
func OTLP(events []*Event, resource map[string]string) ([]byte, error) {
	records := make([]map[string]any, 0, len(events))
	for _, e := range events {
		records = append(records, otlpRecord(e))
	}
	attributes := otlpAttributes{}
	attributes.text("service.name", "sallyport")
	for _, k := range slices.Sorted(maps.Keys(resource)) {
		attributes.text(k, resource[k])
	}
	b, err := json.Marshal(map[string]any{"resourceLogs": []any{map[string]any{
		"resource": map[string]any{"attributes": attributes},
		"scopeLogs": []any{map[string]any{
			"scope":      map[string]any{"name": Schema},
			"logRecords": records,
		}},
	}}})
	if err != nil {
		return nil, err
	}
	return asciiJSON(b), nil
}

func otlpRecord(e *Event) map[string]any {
	number, text := otlpSeverity(e)
	return map[string]any{
		"timeUnixNano": otlpTime(e.Time), "observedTimeUnixNano": otlpTime(e.Time),
		"severityNumber": number, "severityText": text,
		"eventName":  "sallyport." + string(e.Kind) + "." + string(e.Phase),
		"body":       map[string]any{"stringValue": otlpBody(e)},
		"attributes": otlpMembers(e),
	}
}

func otlpTime(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// otlpBody is what e says in a few words.
func otlpBody(e *Event) string {
	s := string(e.Kind)
	if e.Verdict != "" {
		s += " " + e.Verdict
	}
	if r := effectiveReason(e); r != "" {
		s += " " + r
	}
	if t := target(e); t != "-" {
		s += " " + t
	}
	if e.Message != "" {
		s += ": " + Escape(e.Message, capText)
	}
	return s
}

// otlpSeverity is the number and the text of e's severity in the logs data
// model.
func otlpSeverity(e *Event) (int, string) {
	switch e.Severity {
	case Critical:
		return 21, "FATAL"
	case High:
		return 17, "ERROR"
	case Medium:
		return 13, "WARN"
	}
	return 9, "INFO"
}

// otlpAttributes are the attributes of a record, those that it has.
type otlpAttributes []any

func (a *otlpAttributes) text(key, s string) {
	if s != "" {
		*a = append(*a, map[string]any{"key": key, "value": map[string]any{"stringValue": s}})
	}
}

// number appends an integer: a string in the JSON encoding of 64 bits.
func (a *otlpAttributes) number(key string, n int64) {
	if n != 0 {
		*a = append(*a, map[string]any{"key": key, "value": map[string]any{"intValue": strconv.FormatInt(n, 10)}})
	}
}

// otlpMembers are the attributes of e: by OpenTelemetry's names where it has
// one, the others below sallyport.
func otlpMembers(e *Event) otlpAttributes {
	var a otlpAttributes
	a.text("log.record.uid", e.ID)
	a.text("log.record.original", string(AppendLine(nil, e)))
	a.number("sallyport.seq", int64(e.Seq))
	a.text("sallyport.kind", string(e.Kind))
	a.text("sallyport.phase", string(e.Phase))
	a.text("sallyport.verdict", e.Verdict)
	a.text("sallyport.reason", e.Reason)
	if e.Would != nil {
		a.text("sallyport.would.reason", e.Would.Reason)
	}
	if s := e.Sandbox; s != nil {
		a.text("sallyport.sandbox.name", s.Name)
		a.text("sallyport.sandbox.id", s.ID)
	}
	if r := e.Rule; r != nil {
		a.text("sallyport.rule", r.File+":"+strconv.Itoa(r.Line))
	}
	if p := e.Policy; p != nil {
		a.number("sallyport.policy.generation", int64(p.Generation))
	}
	a.text("sallyport.conn", e.Conn)
	a.text("sallyport.req", e.Req)
	a.text("sallyport.alert", e.Alert)
	a.number("sallyport.count", int64(e.Count))
	a.text("server.address", hostOf(e))
	a.number("server.port", int64(e.Port))
	if e.Src != nil {
		a.text("client.address", e.Src.IP)
		a.number("client.port", int64(e.Src.Port))
	}
	otlpProtocols(&a, e)
	return a
}

func otlpProtocols(a *otlpAttributes, e *Event) {
	a.text("network.transport", e.Proto)
	if h := e.HTTP; h != nil {
		a.text("http.request.method", h.Method)
		a.text("url.path", withoutQuery(h.Path))
		a.text("url.scheme", h.Scheme)
		a.text("user_agent.original", h.UserAgent)
		a.number("http.response.status_code", int64(h.Status))
	}
	if d := e.DNS; d != nil {
		a.text("dns.question.name", d.QName)
	}
	if x := e.Error; x != nil {
		a.text("error.type", x.Class)
		a.text("exception.message", x.Detail)
	}
}
