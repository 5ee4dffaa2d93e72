package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sallyport/audit"
	"sallyport/gateway"
	"sallyport/policy"
)

// metrics counts what the audit log records, and shows it to Prometheus.
// Names of hosts are never labels: the sandbox chooses them.
type metrics struct {
	next     recorder
	registry *prometheus.Registry

	decisions outcomes
	requests  prometheus.Histogram
	overhead  prometheus.Histogram
	connect   prometheus.Histogram
	bytes     *prometheus.CounterVec
	questions outcomes
	secrets   outcomes
	reloads   *prometheus.CounterVec
	alerts    *prometheus.CounterVec
	shipped   *prometheus.CounterVec
}

// recorder is the next one to write events.
type recorder interface {
	Write(*audit.Event) error
	WriteAll([]*audit.Event) []error
}

func newMetrics(next recorder) *metrics {
	m := &metrics{next: next, registry: prometheus.NewRegistry()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "sallyport", Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	seconds := func(name, help string, start float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "sallyport", Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(start, 4, 10)})
		m.registry.MustRegister(h)
		return h
	}
	m.decisions.vec, m.decisions.labels = counter("decisions_total", "Decisions, folded repeats counted one by one.", "kind", "verdict", "reason"), 3
	m.bytes = counter("bytes_total", "Bytes of admitted connections, at the sandbox's side.", "direction")
	m.questions.vec, m.questions.labels = counter("dns_queries_total", "DNS questions.", "qtype", "rcode"), 2
	m.secrets.vec, m.secrets.labels = counter("secret_uses_total", "What was done with secrets in requests.", "secret", "action"), 2
	m.reloads = counter("policy_reloads_total", "Loads of the policy.", "result")
	m.alerts = counter("alerts_total", "Notices of alerts, and what became of their deliveries.", "alert", "result")
	m.shipped = counter("audit_shipped_total", "Records that were to be shipped, by what became of them: sent, failed (an attempt) or dropped.", "result")
	m.requests = seconds("request_duration_seconds", "Admitted requests from head to end.", 0.0005)
	m.overhead = seconds("overhead_seconds", "Time in the gateway before a request was handed upstream.", 0.00001)
	m.connect = seconds("upstream_connect_seconds", "Dial and handshake upstream, of new connections.", 0.0001)
	return m
}

// Write hands e on and counts it: a decision as it was answered, which is not
// as it was made where it could not be written.
func (m *metrics) Write(e *audit.Event) error {
	if e.Phase == audit.PhaseDecision {
		err := m.next.Write(e)
		m.decided(e, err == nil)
		return err
	}
	if e.Phase == audit.PhaseEnd {
		m.ended(e)
	}
	return m.next.Write(e)
}

// WriteAll is Write of several decisions.
func (m *metrics) WriteAll(es []*audit.Event) []error {
	errs := m.next.WriteAll(es)
	for i, e := range es {
		m.decided(e, errs == nil || errs[i] == nil)
	}
	return errs
}

// decided counts a decision. Without a record nothing is admitted and no secret
// sent; whoever waits for an answer is told that the log cannot be written.
func (m *metrics) decided(e *audit.Event, recorded bool) {
	n := float64(max(e.Count, 1))
	verdict, reason, rcode := e.Verdict, e.Reason, ""
	if e.DNS != nil {
		rcode = e.DNS.RCode
	}
	malformed := e.Kind == audit.KindDNS && e.Reason == string(policy.ProtocolError) // answered as such before it is recorded
	if !recorded && e.Kind != audit.KindPacket && !malformed {
		verdict, reason, rcode = policy.Deny.String(), string(policy.AuditUnavailable), "REFUSED"
	}
	m.decisions.of([3]string{string(e.Kind), verdict, reason}).Add(n)
	if e.Kind == audit.KindDNS && e.DNS != nil {
		m.questions.of([3]string{knownType(e.DNS.QType), rcode}).Add(n)
	}
	for _, s := range e.Secrets {
		if recorded || s.Action == "withheld" {
			m.secrets.of([3]string{s.Name, s.Action}).Add(float64(max(s.Count, 1)))
		}
	}
}

// ended counts the end of an attempt: it was, recorded or not.
func (m *metrics) ended(e *audit.Event) {
	switch e.Kind {
	case audit.KindConn:
		if e.Bytes != nil {
			m.bytes.WithLabelValues("sent").Add(float64(e.Bytes.Sent))
			m.bytes.WithLabelValues("received").Add(float64(e.Bytes.Received))
		}
	case audit.KindHTTP:
		m.requests.Observe(e.DurationMS / 1000)
		m.overhead.Observe(e.GatewayMS / 1000)
	}
	if e.Upstream != nil && !e.Upstream.Reused {
		m.connect.Observe(e.Upstream.ConnectMS / 1000)
	}
}

// knownType bounds the label: a sandbox may ask for any of 65536 types.
func knownType(t string) string {
	switch t {
	case "A", "AAAA", "PTR", "MX", "TXT", "SRV", "HTTPS", "SVCB", "NS", "SOA", "CNAME", "ANY":
		return t
	}
	return "other"
}

// watchStack adds what is read from the parts of st when it is asked for.
func (m *metrics) watchStack(st *stack) {
	gauge := func(name, help string, f func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "sallyport", Name: name, Help: help}, f))
	}
	count := func(name, help string, f func() float64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "sallyport", Name: name, Help: help}, f))
	}
	gauge("connections_active", "Connections of sandboxes that are open.", func() float64 { return float64(st.gateway.Open()) })
	gauge("sandboxes", "Live sandboxes.", func() float64 { return float64(len(st.sandboxes.List())) })
	gauge("policy_generation", "Generation of the policy in force.", func() float64 {
		if p := st.gateway.Policy(); p != nil {
			return float64(p.Generation())
		}
		return 0
	})
	gauge("leaf_cache_entries", "Certificates that are kept for names.", func() float64 { return float64(st.leaves.Len()) })
	count("audit_events_total", "Records written.", func() float64 { return float64(st.log.Stats().Records) })
	count("audit_refused_total", "Records that could not be written; their attempts were refused.", func() float64 { return float64(st.log.Stats().Refused) })
	m.summed("audit_fsync_seconds", "Calls of fsync and the time in them.", func() (uint64, float64) {
		s := st.log.Stats()
		return s.Syncs, s.SyncTime.Seconds()
	})
	m.labelled(prometheus.CounterValue, "leaf_cache_total", "Names for which a certificate was needed: hit if one was kept, miss if it was made.", "result",
		func(send func(string, float64)) {
			hits, misses := st.leaves.Asked()
			send("hit", float64(hits))
			send("miss", float64(misses))
		})
	m.labelled(prometheus.GaugeValue, "secret_age_seconds", "Time since a secret was fetched.", "secret",
		func(send func(string, float64)) { secretAges(st.gateway.Snapshot(), send) })
}

// secretAges sends the age of each secret that was fetched.
func secretAges(snap *gateway.Snapshot, send func(secret string, age float64)) {
	if snap == nil || snap.Secrets == nil {
		return
	}
	for _, status := range snap.Secrets.Status() {
		if !status.Fetched.IsZero() {
			send(status.Name, time.Since(status.Fetched).Seconds())
		}
	}
}

// serve answers Prometheus, and health checks, until ctx ends.
func (m *metrics) serve(ctx context.Context, l net.Listener, ready http.HandlerFunc) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", healthy)
	mux.HandleFunc("GET /readyz", ready)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
