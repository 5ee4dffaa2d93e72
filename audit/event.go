// Package audit keeps the record of every attempt: events in hash-chained
// segment files that are written before the attempt goes on, an index over
// them, and the readers of both.
package audit

import "time"

// Schema is the value of every event's schema field. Fields are only ever
// added under it.
const Schema = "sallyport.audit/1"

// Kind is the kind of attempt that an event is about.
type Kind string

const (
	KindDNS     Kind = "dns"
	KindConn    Kind = "conn"
	KindPacket  Kind = "packet"
	KindTLS     Kind = "tls"
	KindHTTP    Kind = "http"
	KindWS      Kind = "ws"
	KindTCP     Kind = "tcp"
	KindSecret  Kind = "secret"
	KindPolicy  Kind = "policy"
	KindSandbox Kind = "sandbox"
	KindAudit   Kind = "audit"
	KindAlert   Kind = "alert"
)

// Kinds lists every Kind.
func Kinds() []string {
	all := []Kind{KindDNS, KindConn, KindPacket, KindTLS, KindHTTP, KindWS, KindTCP, KindSecret, KindPolicy, KindSandbox, KindAudit, KindAlert}
	out := make([]string, len(all))
	for i, k := range all {
		out[i] = string(k)
	}
	return out
}

// Phase is where in an attempt's life an event stands.
type Phase string

const (
	PhaseDecision Phase = "decision"
	PhaseEnd      Phase = "end"
	PhaseEvent    Phase = "event"
)

// Severity orders events by how much somebody should care.
type Severity string

const (
	Info     Severity = "info"
	Low      Severity = "low"
	Medium   Severity = "medium"
	High     Severity = "high"
	Critical Severity = "critical"
)

// Event is one record. It is flat, imports nothing, and absent is null: the
// zero value of a field is left out of what is written, with the exceptions
// that the encoder names. Log.Write fills Schema, Time, ID, Seq, Instance and
// Prev; the caller fills the rest and does not write to the event before Write
// has returned, and to a denial not afterwards either: a Folder may keep that.
type Event struct {
	Schema   string    `json:"schema"`
	Time     time.Time `json:"time"` // RFC 3339, UTC, nanoseconds
	ID       string    `json:"id"`   // ULID
	Seq      uint64    `json:"seq"`
	Instance string    `json:"instance"` // ULID of the gateway's start
	Prev     string    `json:"prev"`     // hex SHA-256 of the line before, without its newline

	Kind     Kind     `json:"kind"`
	Phase    Phase    `json:"phase"`
	Verdict  string   `json:"verdict,omitempty"` // allow or deny
	Would    *Would   `json:"would,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Message  string   `json:"message,omitempty"`
	Severity Severity `json:"severity,omitempty"`

	Sandbox *Sandbox `json:"sandbox,omitempty"`
	Src     *Addr    `json:"src,omitempty"`
	Dst     *Addr    `json:"dst,omitempty"` // as the sandbox dialled it
	Proto   string   `json:"proto,omitempty"`

	Host      string `json:"host,omitempty"` // canonical
	Port      uint16 `json:"port,omitempty"`
	SNI       string `json:"sni,omitempty"`       // raw, only where it differs from Host
	Authority string `json:"authority,omitempty"` // raw, only where it differs from Host

	DNS      *DNS        `json:"dns,omitempty"`
	TLS      *TLS        `json:"tls,omitempty"`
	HTTP     *HTTP       `json:"http,omitempty"`
	Upstream *Upstream   `json:"upstream,omitempty"`
	Rule     *Rule       `json:"rule,omitempty"`
	Policy   *Policy     `json:"policy,omitempty"`
	Secrets  []SecretUse `json:"secrets,omitempty"`
	Bytes    *Bytes      `json:"bytes,omitempty"`
	Error    *Error      `json:"error,omitempty"`
	Run      *Run        `json:"run,omitempty"`
	Note     *Note       `json:"audit,omitempty"` // of kind audit: what became of the log itself
	Alert    string      `json:"alert,omitempty"` // name of the alert that the rule raises

	DurationMS float64 `json:"duration_ms,omitempty"`
	GatewayMS  float64 `json:"gateway_ms,omitempty"` // what the gateway added

	Conn string `json:"conn,omitempty"` // joins the events of one connection
	Req  string `json:"req,omitempty"`  // joins decision and end of one attempt

	Count     uint64     `json:"count,omitempty"` // folded repeats, this event included
	FirstSeen *time.Time `json:"first_seen,omitempty"`
	LastSeen  *time.Time `json:"last_seen,omitempty"`
}

// Would is the denial that report mode spared.
type Would struct {
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
}

// Sandbox identifies who made the attempt. Addresses are used again, IDs are
// not. Name is "" (null) when no sandbox claims the traffic.
type Sandbox struct {
	Name   string            `json:"name,omitempty"`
	ID     string            `json:"id,omitempty"`
	Parent string            `json:"parent,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Addr is one end of a connection.
type Addr struct {
	IP   string `json:"ip"`
	Port uint16 `json:"port,omitempty"`
}

// DNS is a question and its answer.
type DNS struct {
	QName     string   `json:"qname"`
	QType     string   `json:"qtype"`
	RCode     string   `json:"rcode,omitempty"`
	Answers   []string `json:"answers,omitempty"`
	Transport string   `json:"transport"` // udp or tcp
}

// TLS is the sandbox's side of a TLS connection.
type TLS struct {
	Mode    string `json:"mode,omitempty"`    // intercept or passthrough
	Version string `json:"version,omitempty"` // 1.2 or 1.3
	ALPN    string `json:"alpn,omitempty"`
	ECH     bool   `json:"ech,omitempty"`
	Alert   string `json:"alert,omitempty"`
}

// HTTP is a request and its outcome. Query values and header values are
// never recorded.
type HTTP struct {
	Version   string   `json:"version,omitempty"` // 1.0, 1.1 or 2
	Method    string   `json:"method,omitempty"`
	Scheme    string   `json:"scheme,omitempty"`
	Path      string   `json:"path,omitempty"`
	QueryKeys []string `json:"query_keys,omitempty"`
	Status    int      `json:"status,omitempty"`
	ReqBytes  int64    `json:"req_bytes,omitempty"`
	RespBytes int64    `json:"resp_bytes,omitempty"`
	UserAgent string   `json:"user_agent,omitempty"`
}

// Upstream is the gateway's own connection.
type Upstream struct {
	IP         string  `json:"ip,omitempty"`
	Port       uint16  `json:"port,omitempty"`
	Reused     bool    `json:"reused,omitempty"`
	TLSVersion string  `json:"tls_version,omitempty"`
	ALPN       string  `json:"alpn,omitempty"`
	ConnectMS  float64 `json:"connect_ms,omitempty"`
}

// Rule is the deciding rule.
type Rule struct {
	ID      string `json:"id,omitempty"` // owner and host, such as `sandbox "ci" allow "a.example"`
	Action  string `json:"action,omitempty"`
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Ticket  string `json:"ticket,omitempty"`
	Expires string `json:"expires,omitempty"` // RFC 3339
}

// Policy is the policy that was in force.
type Policy struct {
	Generation uint64 `json:"generation"`
	SHA256     string `json:"sha256"`
	Commit     string `json:"commit,omitempty"` // that it was taken from; of events of the kind policy
}

// SecretUse says what was done with one secret in a request.
type SecretUse struct {
	Name   string `json:"name,omitempty"`
	Place  string `json:"place,omitempty"`  // such as "header Authorization"
	Action string `json:"action,omitempty"` // injected, withheld, stripped, masked
	Count  int    `json:"count,omitempty"`
}

// Bytes are counted at the sandbox's side.
type Bytes struct {
	Sent     int64 `json:"sent"`     // from the sandbox
	Received int64 `json:"received"` // to the sandbox
}

// Error is why an admitted attempt ended badly.
type Error struct {
	Class  string `json:"class"` // one of ErrorClasses
	Detail string `json:"detail,omitempty"`
}

// RejectedCA is the class of a handshake that a client broke off because it does
// not trust the gateway's certificate authority.
const RejectedCA = "client_rejected_ca"

// ErrorClasses lists every Class of an Error.
func ErrorClasses() []string {
	return []string{"dns", "dial", "timeout", "upstream_tls", RejectedCA, "reset", "protocol", "detail"}
}

// Run is the command of a `run` sandbox, at its start and its end.
type Run struct {
	Argv     []string `json:"argv,omitempty"`
	Cwd      string   `json:"cwd,omitempty"`
	UID      int      `json:"uid,omitempty"`
	Exit     *int     `json:"exit,omitempty"`
	Signal   string   `json:"signal,omitempty"`
	TimedOut bool     `json:"timed_out,omitempty"`
	CPUMS    int64    `json:"cpu_ms,omitempty"`
	MaxRSS   int64    `json:"max_rss,omitempty"` // bytes
	Bytes    *Bytes   `json:"bytes,omitempty"`
}

// Note is what an event of kind audit says about the log itself.
type Note struct {
	Action   string `json:"action"`             // one of the Action constants
	Segment  string `json:"segment,omitempty"`  // base name of the segment that is meant
	Offset   int64  `json:"offset,omitempty"`   // in bytes, in that segment
	Bytes    int64  `json:"bytes,omitempty"`    // cut off, lost or removed
	Segments int    `json:"segments,omitempty"` // removed
	Seq      uint64 `json:"seq,omitempty"`      // anchor: of the first record left; checkpoint: of the record signed
	Hash     string `json:"hash,omitempty"`     // hex SHA-256; anchor: prev of that record; checkpoint: of the line signed
	Key      string `json:"key,omitempty"`      // checkpoint: hex Ed25519 public key
	Sig      string `json:"sig,omitempty"`      // checkpoint: hex signature
}

// Actions of a Note.
const (
	ActionTorn        = "torn"              // an unfinished or unreadable end was cut off at start
	ActionGap         = "gap"               // the log could not be written for a while; Count attempts were refused
	ActionAnchor      = "anchor"            // retention removed everything before Seq
	ActionRestored    = "segment_restored"  // the open segment had been deleted and was written again
	ActionMoved       = "segment_moved"     // the open segment was renamed or replaced by hand
	ActionTampered    = "segment_changed"   // the open segment was cut or added to by hand
	ActionMissing     = "segment_missing"   // a closed segment is gone, not by retention
	ActionClock       = "clock_step"        // the wall clock went back, or far forward
	ActionTruncated   = "log_truncated"     // records that had been written are gone from the end
	ActionCheckpoint  = "checkpoint"        // Key signs Hash as the record Seq
	ActionUndelivered = "alert_undelivered" // a sink does not take a notice; it is tried again
	ActionDropped     = "alert_dropped"     // a notice was given up
	ActionUnshipped   = "not_shipped"       // a receiver of records takes none; it is tried again
	ActionUnshippable = "ship_lost"         // records were given up, or removed before they were shipped
)
