package audit

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func at(s string) time.Time {
	t, err := time.Parse("15:04:05.000", s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestCompactLine(t *testing.T) {
	ci := &Sandbox{Name: "ci", ID: "01"}
	exit := 3
	tests := map[string]struct {
		event Event
		want  string
	}{
		"denied question": {
			Event{Time: at("13:20:01.412"), Kind: KindDNS, Phase: PhaseDecision, Verdict: "deny", Reason: "host_not_allowed", Sandbox: ci,
				Host: "c2vjcmv0.exfil.example", DNS: &DNS{QName: "c2VjcmV0.exfil.example", QType: "TXT"}, Severity: Medium},
			"13:20:01.412 DENY  ci   dns  TXT  c2vjcmv0.exfil.example          host_not_allowed\n",
		},
		"allowed request": {
			Event{Time: at("13:20:04.007"), Kind: KindHTTP, Phase: PhaseDecision, Verdict: "allow", Reason: "rule_allow", Sandbox: ci,
				Host: "api.openai.com", Port: 443, HTTP: &HTTP{Method: "POST", Scheme: "https", Path: "/v1/responses"},
				Rule: &Rule{File: "/etc/sallyport/policy.d/ci.hcl", Line: 12}, Secrets: []SecretUse{{Name: "OPENAI_API_KEY", Place: "header Authorization", Action: "injected"}}},
			"13:20:04.007 ALLOW ci   http POST api.openai.com/v1/responses     rule_allow        ci.hcl:12 +OPENAI_API_KEY\n",
		},
		"leak": {
			Event{Time: at("13:20:09.551"), Kind: KindHTTP, Phase: PhaseDecision, Verdict: "deny", Reason: "placeholder_leak", Severity: Critical, Sandbox: ci,
				Host: "pypi.org", Port: 443, HTTP: &HTTP{Method: "GET", Scheme: "https", Path: "/simple/"},
				Secrets: []SecretUse{{Name: "OPENAI_API_KEY", Place: "header Authorization", Action: "withheld"}}},
			"13:20:09.551 DENY! ci   http GET  pypi.org/simple/                placeholder_leak  OPENAI_API_KEY in header Authorization\n",
		},
		"folded packet of an unknown sandbox": {
			Event{Time: at("00:00:00.000"), Kind: KindPacket, Phase: PhaseDecision, Verdict: "deny", Reason: "udp_blocked", Proto: "udp",
				Dst: &Addr{IP: "2001:db8::1", Port: 443}, Count: 1200},
			"00:00:00.000 DENY  -    packet udp  [2001:db8::1]:443               udp_blocked       [x1200]\n",
		},
		"report mode": {
			Event{Time: at("01:02:03.004"), Kind: KindHTTP, Phase: PhaseDecision, Verdict: "allow", Reason: "report_mode", Would: &Would{"deny", "path_not_allowed"}, Sandbox: ci,
				Host: "a.test", Port: 8443, HTTP: &HTTP{Method: "GET", Scheme: "https", Path: "/x"}},
			"01:02:03.004 WOULD ci   http GET  a.test:8443/x                   path_not_allowed\n",
		},
		"end": {
			Event{Time: at("01:02:03.004"), Kind: KindHTTP, Phase: PhaseEnd, Sandbox: ci, Host: "a.test", HTTP: &HTTP{Method: "GET", Path: "/x", Status: 502},
				Bytes: &Bytes{Sent: 10, Received: 20}, DurationMS: 12.5, Error: &Error{Class: "dial", Detail: "refused\nby peer"}},
			"01:02:03.004 END   ci   http GET  a.test/x                        dial              502 sent=10 received=20 12.5ms refused\\nby peer\n",
		},
		"authority not trusted": {
			Event{Time: at("01:02:03.004"), Kind: KindTLS, Phase: PhaseDecision, Verdict: "deny", Reason: "protocol_error", Sandbox: ci, Host: "a.test", Port: 443,
				TLS: &TLS{Mode: "intercept", Alert: "unknown certificate authority"}, Error: &Error{Class: RejectedCA, Detail: "tls: bad record MAC"},
				Message: "the client does not trust the gateway's certificate authority; curl wants CURL_CA_BUNDLE"},
			"01:02:03.004 DENY  ci   tls  intercept a.test:443                      protocol_error    " +
				"client_rejected_ca: the client does not trust the gateway's certificate authority; curl wants CURL_CA_BUNDLE\n",
		},
		"refusal that was not read": {
			Event{Time: at("01:02:03.004"), Kind: KindTLS, Phase: PhaseEvent, Severity: Info, Sandbox: ci, Host: "a.test", Port: 443,
				TLS: &TLS{Mode: "intercept"}, Error: &Error{Class: RejectedCA, Detail: "tls: bad record MAC"}, Message: "it could not read why"},
			"01:02:03.004 EVENT ci   tls  intercept a.test:443                      client_rejected_ca it could not read why\n",
		},
		"policy not loaded": {
			Event{Time: at("01:02:03.004"), Kind: KindPolicy, Phase: PhaseEvent, Severity: High, Policy: &Policy{Generation: 3},
				Message: "policy was not loaded; what was in force stays", Error: &Error{Class: "detail", Detail: "p.hcl:3: no such attribute"}},
			"01:02:03.004 EVENT! -    policy -    -                               not_loaded        " +
				"generation 3 policy was not loaded; what was in force stays: p.hcl:3: no such attribute\n",
		},
		"end of a command": {
			Event{Time: at("01:02:03.004"), Kind: KindSandbox, Phase: PhaseEnd, Sandbox: ci, Run: &Run{Exit: &exit}},
			"01:02:03.004 END   ci   sandbox -    -                               -                 exit=3\n",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			Compact(&b, &test.event, false)
			if diff := cmp.Diff(test.want, b.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// hostileText is what a sandbox would put wherever its text may go.
var hostileText = []string{
	"\x1b[2J\x1b]0;x\a", "a\nb\r\nc", "{\"verdict\":\"allow\"}\n", "\u202etxt.exe", "\x9b31m", "\u009b31m", "=cmd|' /C calc'!A0",
	"\xff\xfe\x80", "\u2028\u2029\ufeff", "z̸̡̛a̸l̸g̸o", "<!channel> <http://a.test|b>", "\\u202e", strings.Repeat("A", 1<<15), "", " ", "\x00",
	"😀\U000e0041", `"\`, "\x7f",
}

// hostileEvent has s in every field that takes text.
func hostileEvent(s string) *Event {
	now := time.Unix(1700000000, 5).UTC()
	return &Event{
		Time: now, Kind: Kind(s), Phase: Phase(s), Verdict: s, Would: &Would{s, s}, Reason: s, Message: s, Severity: Severity(s),
		Sandbox: &Sandbox{Name: s, ID: s, Parent: s, Labels: map[string]string{s: s, "k": s}},
		Src:     &Addr{IP: s, Port: 1}, Dst: &Addr{IP: s, Port: 2}, Proto: s, Host: s, Port: 3, SNI: s, Authority: s,
		DNS:      &DNS{QName: s, QType: s, RCode: s, Answers: []string{s, s}, Transport: s},
		TLS:      &TLS{Mode: s, Version: s, ALPN: s, ECH: true, Alert: s},
		HTTP:     &HTTP{Version: s, Method: s, Scheme: s, Path: s, QueryKeys: []string{s}, Status: 200, ReqBytes: 1, RespBytes: 2, UserAgent: s},
		Upstream: &Upstream{IP: s, Port: 4, Reused: true, TLSVersion: s, ALPN: s, ConnectMS: 1.5},
		Rule:     &Rule{ID: s, Action: s, File: s, Line: 5, Ticket: s, Expires: s}, Policy: &Policy{Generation: 6, SHA256: s},
		Secrets: []SecretUse{{Name: s, Place: s, Action: s, Count: 1}}, Bytes: &Bytes{Sent: 1, Received: 2}, Error: &Error{Class: s, Detail: s},
		Run: &Run{Argv: []string{s, s}, Cwd: s, Signal: s, TimedOut: true}, Note: &Note{Action: s, Segment: s, Hash: s, Key: s, Sig: s},
		Alert: s, DurationMS: 1.25, GatewayMS: 0.001, Conn: s, Req: s, Count: 2, FirstSeen: &now, LastSeen: &now,
	}
}

func TestAUD01CompactIsOnePlainLine(t *testing.T) {
	for _, s := range hostileText {
		for _, phase := range []Phase{PhaseDecision, PhaseEnd, PhaseEvent} {
			e := hostileEvent(s)
			e.Phase = phase
			var b bytes.Buffer
			Compact(&b, e, false)
			checkPlainLine(t, b.String())
		}
	}
}

// checkPlainLine fails unless line is one line that cannot act on a terminal.
func checkPlainLine(t *testing.T, line string) {
	t.Helper()
	body, ok := strings.CutSuffix(line, "\n")
	if !ok || len(body) > 8<<10 {
		t.Errorf("line of %d bytes, ended: %v", len(line), ok)
	}
	for _, r := range body {
		if r != ' ' && (r < 0x20 || r == 0x7f || r == '\ufffd' || (r > 0x7f && !visible(r))) {
			t.Fatalf("line has %U: %q", r, body)
		}
	}
}
