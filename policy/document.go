package policy

import (
	"net/netip"
	"time"
)

// Document is a policy as written, all its files merged, before it is checked.
// Hosts, paths and references are text as they stand in the file; Compile
// checks them and reports every problem with its position.
type Document struct {
	Org       *Org // nil: no ceiling
	Groups    []Group
	Sandboxes []Sandbox
	Secrets   []Secret
	SHA256    string // hex digest of the files, by the loader
}

// Ref is a name written somewhere that refers to a declaration elsewhere.
type Ref struct {
	Name string
	Pos  Pos
}

// Org is the ceiling. Rules of kind Allow (and Git, TCP, Passthrough) bound
// what any group or sandbox may allow; Deny rules bind every sandbox.
type Org struct {
	Pos          Pos
	Use          []Ref // groups that belong to the ceiling
	Rules        []Rule
	AnyHost      bool // permits the pattern "*"
	PublicSuffix bool // permits wildcards directly under a public suffix
	Metadata     bool // permits cloud metadata addresses where a rule names them
}

// Group is a named list of rules that an org or sandbox uses.
type Group struct {
	Name  string
	Pos   Pos
	Rules []Rule
}

// Mode says whether denials bind. The zero value enforces.
type Mode uint8

const (
	Enforce Mode = iota
	Report       // let through what policy denies, and record it
)

// Tripwire says what is done on a suspicion. The zero value is the default
// of the place where it stands.
type Tripwire uint8

const (
	TripwireDefault Tripwire = iota
	TripwireOff
	TripwireAlert
	TripwireBlock
)

// Sandbox is what one sandbox may do, and what traffic is its own.
type Sandbox struct {
	Name        string
	Pos         Pos
	Use         []Ref
	Match       Match
	Rules       []Rule
	Mode        Mode
	IPv6        bool     // answer AAAA questions
	Credentials Tripwire // foreign key formats; default alert
	Limits      Limits
	Labels      map[string]string
}

// Match binds traffic of an interface capture to a sandbox. All lists that
// are given must hold; within a list one hit is enough. An empty Match binds
// nothing.
type Match struct {
	Pos        Pos
	CIDRs      []netip.Prefix
	Interfaces []string // globs of path.Match
	MACs       []string // lower case, colons
}

// Limits bound a sandbox or a rule. A zero field is the default, never
// "unlimited".
type Limits struct {
	RequestsPerMinute   int64
	BytesSentPerDay     int64 // bytes
	BytesReceivedPerDay int64 // bytes
	Connections         int64
	MaxRequest          int64 // bytes of one request body
	MaxResponse         int64 // bytes of one response body
}

// Action is the kind of a rule. The zero value denies.
type Action uint8

const (
	ActionDeny Action = iota
	ActionAllow
	ActionTCP         // raw TCP by name
	ActionPassthrough // TLS that is not opened
	ActionGit         // smart HTTP of one repository
)

// String returns the block type that writes the action in a policy file.
func (a Action) String() string {
	return [...]string{"deny", "allow", "tcp", "passthrough", "git"}[a]
}

// Foreign says what happens to credentials that are not the gateway's on a
// request that one of the gateway's own is sent with. The zero value strips.
type Foreign uint8

const (
	ForeignStrip Foreign = iota
	ForeignBlock
	ForeignPass
)

// Rule is one allow, deny, tcp, passthrough or git block.
type Rule struct {
	Pos    Pos
	Action Action
	Owner  string // `sandbox "ci"`, `group "x"` or `org`, for messages; set by Compile
	Host   string // as written; after Compile the normal form of the pattern
	Repo   string // git: "owner/repo", may hold "*" as a whole segment

	Ports        []uint16            // empty: the default of the schemes
	Schemes      []Scheme            // empty: HTTPS
	Access       string              // "", "read" (GET, HEAD, OPTIONS) or "write" (any)
	Methods      []string            // empty: any, or those of Access
	Paths        []string            // empty: any
	Query        map[string][]string // allow: parameters that must be there once, with one of these values; "*" alone: any
	Headers      map[string][]string // allow: the same of header fields
	GraphQL      *GraphQL            // allow: what the body of a POST may ask for; nil: not looked at
	JSONRPC      *JSONRPC            // allow: likewise
	Addresses    []netip.Prefix
	Inject       []Ref
	Expires      time.Time // zero: never; the rule is void from this instant on
	NoWebSocket  bool
	EncodedSlash bool
	Foreign      Foreign
	OnLeakPass   bool // forward a placeholder's text unchanged to this host
	NoScrub      bool // do not mask reflections
	Limits       Limits

	Ticket string // free text
	Reason string // for the person who is refused
	Alert  string // name of a severity or alert
}

// Secret says where a credential may go and how it is asked for. Its value
// is never part of a Document.
type Secret struct {
	Name         string // [A-Z][A-Z0-9_]{2,63}
	Pos          Pos
	Hosts        []string // approved HTTPS hosts, patterns of the policy language without "*"
	Placeholder  string   // "": "$NAME"; may hold {rand:N}
	Headers      []string // empty: the usual credential headers
	Query        []string // query parameters
	Path         bool
	Body         *BodyPlace
	WebSocket    bool
	Sink         bool // where alerts go names it
	Set          bool // add the credential when the client sent none, replace the client's
	OnErrorStale bool // an expired value may be used while its source is down
	TTL          time.Duration
	Source       Source
}

// BodyPlace opts a secret into request bodies.
type BodyPlace struct {
	Types  []string // media types
	Max    int64    // bytes held at most; 0 is 1 MiB
	Fields []string // named fields; empty: none
}

// Source is where a secret's value comes from: a kind and its attributes,
// already checked against the kind's schema.
type Source struct {
	Kind  string
	Pos   Pos
	Attrs map[string]any // string, []string, bool, int64, time.Duration or map[string]string
}
