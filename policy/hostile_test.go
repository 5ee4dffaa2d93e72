package policy

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func FuzzSplitAuthority(f *testing.F) {
	for _, s := range []string{"good.test", "good.test:443", "[::1]:443", "[::1", "[good.test]:1", "a:1:2", "u@a:1", "a:", ":1", "a:+1", "a:01", "a,b"} {
		f.Add(s, uint16(443))
	}
	f.Fuzz(func(t *testing.T, s string, defaultPort uint16) {
		host, port, err := SplitAuthority(s, defaultPort)
		if err != nil {
			if host != "" || port != 0 {
				t.Fatalf("SplitAuthority(%q) = %q, %d with %v", s, host, port, err)
			}
			return
		}
		if canonical, err := CanonicalHost(host); err != nil || canonical != host {
			t.Fatalf("SplitAuthority(%q): host %q is not canonical", s, host)
		}
		if port == 0 && defaultPort != 0 {
			t.Fatalf("SplitAuthority(%q): port 0", s)
		}
		if strings.ContainsAny(s, "@,%/ \x00") {
			t.Fatalf("SplitAuthority(%q) = %q, %d", s, host, port)
		}
		if !strings.HasPrefix(s, "[") && strings.Count(s, ":") > 1 {
			t.Fatalf("SplitAuthority(%q) has two ports", s)
		}
	})
}

// hostileSet is a policy with a rule of each kind.
func hostileSet(t testing.TB) *Set {
	return mustCompile(t, sandboxDoc(
		allowRule("good.test", methods("GET"), paths("/v1/**", "/*"), encodedSlash),
		denyRule("good.test", paths("/v1/admin/**")),
		allowRule("*.open.test", schemes(HTTP, HTTPS)),
		ruleOf(ActionGit, "git.test/o/r"),
		ruleOf(ActionTCP, "db.test:5432"),
	))
}

// FuzzDecide holds that no request makes Decide panic, that a refusal's
// message can be shown, and that what is allowed is what the rules say.
func FuzzDecide(f *testing.F) {
	f.Add(uint8(3), "good.test", uint16(443), uint8(1), "GET", "/v1/admin;x/y", "", false)
	f.Add(uint8(3), "git.test", uint16(443), uint8(1), "POST", "/o/r.git/git-receive-pack", "", false)
	f.Add(uint8(3), "a.open.test", uint16(80), uint8(2), "GET\r\n", "//\\%", "a=b", true)
	f.Add(uint8(2), "db.test", uint16(5432), uint8(0), "", "", "", false)
	f.Add(uint8(1), "evil.test\x1b[31m", uint16(0), uint8(9), "", "", "", false)
	f.Add(uint8(3), "good.test", uint16(443), uint8(1), "GET", "/v1%2Fadmin%2Fx", "", false)
	f.Add(uint8(3), "good.test", uint16(443), uint8(1), "GET", "/v1/adminyx/v", "", false) // another directory
	set := hostileSet(f)
	f.Fuzz(func(t *testing.T, stage uint8, host string, port uint16, scheme uint8, method, path, query string, ws bool) {
		d := set.Decide(Request{Sandbox: "s1", Stage: Stage(stage), Host: host, Port: port, Scheme: Scheme(scheme), Method: method, Path: path, Query: query, WebSocket: ws, Now: now})
		if d.Reason == "" {
			t.Fatalf("no reason: %+v", d)
		}
		if d.Verdict == Deny {
			if d.Message == "" || !utf8.ValidString(d.Message) || strings.ContainsFunc(d.Message, unicode.IsControl) {
				t.Fatalf("message %q", d.Message)
			}
			return
		}
		if d.Rule == nil {
			t.Fatalf("allowed by no rule: %+v", d)
		}
		if canonical, err := CanonicalHost(host); err != nil || canonical != host {
			t.Fatalf("host %q is allowed", host)
		}
		if host == "good.test" && stage == uint8(StageRequest) && (method != "GET" || strings.HasPrefix(path, "/v1/admin/")) {
			t.Fatalf("%s %q is allowed", method, path)
		}
	})
}
