package policy

// Reason says why a decision is as it is. The list is closed; a reason keeps
// its meaning for ever.
type Reason string

// Reasons of an allow.
const (
	RuleAllow        Reason = "rule_allow"
	GroupAllow       Reason = "group_allow"
	PassthroughAllow Reason = "passthrough_allow"
	ReportMode       Reason = "report_mode"
	GatewayName      Reason = "gateway_name"
)

// Reasons of a denial by policy.
const (
	UnknownSandbox    Reason = "unknown_sandbox"
	HostNotAllowed    Reason = "host_not_allowed"
	HostDenied        Reason = "host_denied"
	PortNotAllowed    Reason = "port_not_allowed"
	SchemeNotAllowed  Reason = "scheme_not_allowed"
	NoRuleMatched     Reason = "no_rule_matched"
	MethodNotAllowed  Reason = "method_not_allowed"
	PathNotAllowed    Reason = "path_not_allowed"
	QueryNotAllowed   Reason = "query_not_allowed"
	AmbiguousPath     Reason = "ambiguous_path"
	GitPushNotAllowed Reason = "git_push_not_allowed"
	RuleExpired       Reason = "rule_expired"
	QtypeNotAllowed   Reason = "qtype_not_allowed"
)

// Reasons of a denial because the names of an attempt do not agree.
const (
	NoSNI              Reason = "no_sni"
	IPLiteral          Reason = "ip_literal"
	AuthorityMismatch  Reason = "authority_mismatch"
	AuthorityAmbiguous Reason = "authority_ambiguous"
	ECHUnsupported     Reason = "ech_unsupported"
	NotTLS             Reason = "not_tls"
	NotHTTP            Reason = "not_http"
	BadHostname        Reason = "bad_hostname"
	StaleAddress       Reason = "stale_address"
	SpoofedSource      Reason = "spoofed_source"
)

// Reasons of a denial because of the address that a name resolves to.
const (
	ResolvesPrivate   Reason = "resolves_private"
	ResolvesLoopback  Reason = "resolves_loopback"
	ResolvesLinkLocal Reason = "resolves_link_local"
	ResolvesMetadata  Reason = "resolves_metadata"
	ResolvesEmbedded  Reason = "resolves_embedded"
	ResolvesSelf      Reason = "resolves_self"
	ResolvesReserved  Reason = "resolves_reserved"
	AddressNotInRule  Reason = "address_not_in_rule"
	ResolveFailed     Reason = "resolve_failed"
)

// Reasons of a denial that protects a secret.
const (
	PlaceholderLeak    Reason = "placeholder_leak"
	PlaceholderPlace   Reason = "placeholder_place"
	PlaintextInjection Reason = "plaintext_injection"
	SecretUnavailable  Reason = "secret_unavailable"
	SecretExfiltration Reason = "secret_exfiltration"
	ForeignCredential  Reason = "foreign_credential"
	CredentialPattern  Reason = "credential_pattern"
	UninspectableBody  Reason = "uninspectable_body"
)

// Reasons of a denial by protocol.
const (
	Smuggling         Reason = "smuggling"
	HeaderTooLarge    Reason = "header_too_large"
	BodyTooLarge      Reason = "body_too_large"
	UpgradeNotAllowed Reason = "upgrade_not_allowed"
	ConnectRefused    Reason = "connect_refused"
	ProtocolError     Reason = "protocol_error"
	QUICBlocked       Reason = "quic_blocked"
	UDPBlocked        Reason = "udp_blocked"
	ICMPBlocked       Reason = "icmp_blocked"
	ProtoBlocked      Reason = "proto_blocked"
	DoTBlocked        Reason = "dot_blocked"
)

// Reasons of a denial by a limit or by the gateway's own state.
const (
	RateLimited       Reason = "rate_limited"
	ConnectionLimit   Reason = "connection_limit"
	ByteBudget        Reason = "byte_budget"
	PolicyUnavailable Reason = "policy_unavailable"
	AuditUnavailable  Reason = "audit_unavailable"
	Revoked           Reason = "revoked"
)
