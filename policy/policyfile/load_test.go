package policyfile

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sallyport/policy"
)

// TestWholeLanguage decodes every block and attribute that the language has.
func TestWholeLanguage(t *testing.T) {
	data, err := os.ReadFile("testdata/whole.hcl")
	if err != nil {
		t.Fatal(err)
	}
	doc, diags := parseOne(t, string(data))
	if doc == nil {
		t.Fatalf("Parse:\n%s", shown(t, diags))
	}
	lang := newLanguage()
	for _, name := range append(lang.names(), lang.file.blocks...) {
		if !bytes.Contains(data, []byte(name+" ")) {
			t.Errorf("testdata/whole.hcl does not use %q", name)
		}
	}
	cidr := netip.MustParsePrefix
	want := &policy.Document{
		Org: &policy.Org{
			Use: []policy.Ref{{Name: "registries"}}, AnyHost: true, PublicSuffix: true, Metadata: true,
			Rules: []policy.Rule{{Action: policy.ActionDeny, Host: "*.tunnel.example", Ports: []uint16{443}, Schemes: []policy.Scheme{policy.HTTPS},
				Methods: []string{"POST"}, Paths: []string{"/up/**"}, Reason: "Tunnels are not permitted. Ask for help.", Alert: "page", Ticket: "SEC-1"}},
		},
		Groups: []policy.Group{{Name: "registries", Rules: []policy.Rule{{Action: policy.ActionAllow, Host: "pypi.org", Access: "read"}}}},
		Sandboxes: []policy.Sandbox{{
			Name: "ci", Use: []policy.Ref{{Name: "registries"}}, Mode: policy.Report, IPv6: true, Credentials: policy.TripwireBlock,
			Labels: map[string]string{"team": "build", "cost.centre": "7"},
			Match: policy.Match{CIDRs: []netip.Prefix{cidr("10.77.4.0/24"), cidr("10.77.5.9/32"), cidr("fd00::/64")},
				Interfaces: []string{"tap*"}, MACs: []string{"02:00:5e:10:00:01"}},
			Limits: policy.Limits{RequestsPerMinute: 60, BytesSentPerDay: 10e6, BytesReceivedPerDay: 1 << 30, Connections: 8, MaxRequest: 1 << 20, MaxResponse: 4096},
			Rules: []policy.Rule{
				{Action: policy.ActionAllow, Host: "api.example.com", Ports: []uint16{443, 8443}, Schemes: []policy.Scheme{policy.HTTPS, policy.HTTP},
					Methods: []string{"GET", "PURGE"}, Paths: []string{"/v1/**"}, Query: map[string][]string{"format": {"json", "csv"}, "page no": {"*"}}, Headers: map[string][]string{"X-Env": {"staging"}}, Addresses: []netip.Prefix{cidr("10.0.12.0/24")},
					Inject: []policy.Ref{{Name: "API_KEY"}}, Expires: time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC), NoWebSocket: true,
					EncodedSlash: true, Foreign: policy.ForeignBlock, OnLeakPass: true, NoScrub: true, Limits: policy.Limits{Connections: 2},
					Ticket: "SEC-2", Reason: "why", Alert: "high"},
				{Action: policy.ActionAllow, Host: "graph.example.com", GraphQL: &policy.GraphQL{Operations: []string{"query"}, Fields: []string{"viewer", "repo*"}, Max: 32 << 10}},
				{Action: policy.ActionAllow, Host: "mcp.example.com", JSONRPC: &policy.JSONRPC{Methods: []string{"tools/call"}, Tools: []string{"search"}, Responses: true}},
				{Action: policy.ActionGit, Host: "git.example.com", Repo: "acme/*", Access: "write", Foreign: policy.ForeignPass,
					Expires: time.Date(2026, 12, 31, 17, 0, 0, 0, time.UTC)},
				{Action: policy.ActionTCP, Host: "db.example.com", Ports: []uint16{5432}, Addresses: []netip.Prefix{cidr("10.0.13.7/32")}},
				{Action: policy.ActionTCP, Host: "[2001:db8::1]", Ports: []uint16{22}},
				{Action: policy.ActionPassthrough, Host: "pinned.example.com", Ports: []uint16{9443}, Reason: "client pins"},
			},
		}},
		Secrets: []policy.Secret{
			{Name: "API_KEY", Hosts: []string{"api.example.com"}, Placeholder: "sk_{rand:24}", Headers: []string{"X-Key"}, Query: []string{"key"},
				Path: true, WebSocket: true, Set: true, OnErrorStale: true, TTL: 50 * time.Minute,
				Body: &policy.BodyPlace{Types: []string{"application/json"}, Max: 1 << 20, Fields: []string{"token"}},
				Source: policy.Source{Kind: "exec", Attrs: map[string]any{"command": []string{"/bin/mint", "a b"}, "ttl": 50 * time.Minute,
					"env": map[string]string{"A": "b"}}}},
			{Name: "OTHER", TTL: 48 * time.Hour, Source: policy.Source{Kind: "vault", Attrs: map[string]any{
				"address": "https://vault.example.com", "kv": int64(2), "insecure": false, "renew": time.Second}}},
		},
		SHA256: doc.SHA256,
	}
	if diff := cmp.Diff(want, doc, cmpopts.IgnoreTypes(policy.Pos{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
	if got, want := doc.Sandboxes[0].Rules[0].Pos.String(), "ci.hcl:45"; got != want {
		t.Errorf("place of the first rule is %s, want %s", got, want)
	}
}

// TestPOL12EmptyMeansNothing holds that nothing that is written empty, and
// nothing that is missing, is read as everything.
func TestPOL12EmptyMeansNothing(t *testing.T) {
	for name, text := range map[string]string{
		"no file":           "",
		"blanks":            " \n\t\n",
		"comments":          "# allow everything\n",
		"allow list":        "sandbox \"s1\" {\n  allow = []\n}\n",
		"empty methods":     "sandbox \"s1\" {\n  allow \"a.example\" {\n    methods = []\n  }\n}\n",
		"empty paths":       "sandbox \"s1\" {\n  allow \"a.example\" {\n    paths = []\n  }\n}\n",
		"empty ports":       "sandbox \"s1\" {\n  allow \"a.example\" {\n    ports = []\n  }\n}\n",
		"empty schemes":     "sandbox \"s1\" {\n  allow \"a.example\" {\n    schemes = []\n  }\n}\n",
		"empty addresses":   "sandbox \"s1\" {\n  allow \"a.example\" {\n    addresses = []\n  }\n}\n",
		"empty match list":  "sandbox \"s1\" {\n  match {\n    cidrs = []\n  }\n}\n",
		"empty match":       "sandbox \"s1\" {\n  match {}\n}\n",
		"zero limit":        "sandbox \"s1\" {\n  limits {\n    connections = 0\n  }\n}\n",
		"null methods":      "sandbox \"s1\" {\n  allow \"a.example\" {\n    methods = null\n  }\n}\n",
		"empty header list": "secret \"KEY\" {\n  hosts = []\n  headers = []\n  source \"env\" { name = \"KEY\" }\n}\n",
	} {
		t.Run(name, func(t *testing.T) {
			if doc, diags := parseOne(t, text); doc != nil || !diags.HasErrors() {
				t.Errorf("Parse(%q) gave a document, want an error", text)
			}
		})
	}
	t.Run("sandbox without rules", func(t *testing.T) {
		doc, diags := parseOne(t, `sandbox "s1" {}`)
		if doc == nil {
			t.Fatalf("Parse: %s", shown(t, diags))
		}
		if got := doc.Sandboxes[0]; len(got.Rules) != 0 || got.Mode != policy.Enforce {
			t.Errorf("empty sandbox is %+v, want no rules, enforced", got)
		}
	})
	t.Run("no files", func(t *testing.T) {
		if doc, diags := Parse(nil, testOptions()); doc != nil || !strings.Contains(shown(t, diags), "sallyport init") {
			t.Errorf("Parse(nil) = %v, want an error that names sallyport init", doc)
		}
	})
}

// TestPOL19AllProblemsOfAllFiles holds that one load names every problem: of
// several files, and behind syntax errors.
func TestPOL19AllProblemsOfAllFiles(t *testing.T) {
	_, diags := Parse(map[string][]byte{
		"a.hcl": []byte("sandbox \"a\" {\n  moed = 1\n}\nsandbox \"b\" {\n  use = [\n}\ngroup \"g\" {\n  moed = 1\n}\n"),
		"b.hcl": []byte("sandbox \"a\" {\n  tcp \"x\" {}\n"),
		"c.hcl": []byte("\xef\xbb\xbfsandbox \"a\" {\r\n  ipv6 = 1\r\n}\r\n"),
		"d.hcl": []byte("sandbox \"d\" {\n  mode = \"report\"\n}\n\xff"),
	}, testOptions())
	var got []string
	for _, x := range diags.List() {
		got = append(got, place(x.Pos)+x.Summary)
	}
	want := []string{
		`a.hcl:2:3: a sandbox block has no attribute "moed"`,
		`a.hcl:6:1: invalid expression`,
		`a.hcl:8:3: a group block has no attribute "moed"`,
		`b.hcl:1:13: unclosed configuration block`,
		`c.hcl:1:1: sandbox "a" is declared twice`,
		`c.hcl:2:10: ipv6 must be true or false`,
		`d.hcl:4:1: file is not UTF-8 text`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestDuplicateNamesBothPlaces holds that a name declared in two files is
// reported with both.
func TestDuplicateNamesBothPlaces(t *testing.T) {
	_, diags := Parse(map[string][]byte{
		"10-a.hcl": []byte("group \"g\" {\n}\n"),
		"20-b.hcl": []byte("\n\ngroup \"g\" {\n}\n"),
	}, testOptions())
	list := diags.List()
	if len(list) != 1 || list[0].Pos.String() != "20-b.hcl:3" || len(list[0].Related) != 1 || list[0].Related[0].Pos.String() != "10-a.hcl:1" {
		t.Fatalf("diagnostics are %+v, want one with both places", list)
	}
	text := shown(t, diags)
	for _, want := range []string{"on 20-b.hcl:3:1", "first declared here: 10-a.hcl:1:1", "     1: group \"g\" {"} {
		if !strings.Contains(text, want) {
			t.Errorf("text does not have %q:\n%s", want, text)
		}
	}
}

// TestOPS04Files loads what a directory may hold when somebody edits it. What
// is not a policy is an error that says what to do, and is not read.
func TestOPS04Files(t *testing.T) {
	const good = "sandbox \"ci\" {\n}\n"
	write := func(t *testing.T, path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name string
		make func(t *testing.T, dir string) []string // returns the paths to load
		want string                                  // "" when it loads
	}{
		{"file", func(t *testing.T, dir string) []string { write(t, dir+"/a.hcl", good); return []string{dir + "/a.hcl"} }, ""},
		{"directory", func(t *testing.T, dir string) []string { write(t, dir+"/a.hcl", good); return []string{dir} }, ""},
		{"same file twice", func(t *testing.T, dir string) []string {
			write(t, dir+"/a.hcl", good)
			return []string{dir, dir + "/a.hcl"}
		}, ""},
		{"symbolic link", func(t *testing.T, dir string) []string {
			write(t, dir+"/data", good)
			symlink(t, "data", dir+"/a.hcl")
			return []string{dir}
		}, ""},
		{"link swapped to a broken file", func(t *testing.T, dir string) []string {
			write(t, dir+"/data", "sandbox \"ci\" {")
			symlink(t, "data", dir+"/a.hcl")
			return []string{dir}
		}, "unclosed configuration block"},
		{"tests, hidden files, others and directories are left out", func(t *testing.T, dir string) []string {
			write(t, dir+"/a.hcl", good)
			write(t, dir+"/a_test.hcl", "broken {")
			write(t, dir+"/.#a.hcl", "broken {")
			write(t, dir+"/README.md", "broken {")
			if err := os.MkdirAll(dir+"/sub.hcl", 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, dir+"/sub.hcl/b.hcl", "broken {")
			return []string{dir}
		}, ""},
		{"missing", func(t *testing.T, dir string) []string { return []string{dir + "/none.hcl"} }, "sallyport init " + "DIR/none.hcl"},
		{"no path", func(*testing.T, string) []string { return nil }, "--policy PATH"},
		{"directory without files", func(t *testing.T, dir string) []string { return []string{dir} }, "sallyport init DIR/policy.hcl"},
		{"dangling link", func(t *testing.T, dir string) []string { symlink(t, "gone", dir+"/a.hcl"); return []string{dir} }, "no such file"},
		{"empty file", func(t *testing.T, dir string) []string { write(t, dir+"/a.hcl", ""); return []string{dir} }, "file is empty"},
		{"empty file beside a good one", func(t *testing.T, dir string) []string {
			write(t, dir+"/a.hcl", good)
			write(t, dir+"/b.hcl", "")
			return []string{dir}
		}, "file is empty"},
		{"half-written", func(t *testing.T, dir string) []string { write(t, dir+"/a.hcl", good[:10]); return []string{dir} }, "Error:"},
		{"syntax error", func(t *testing.T, dir string) []string {
			write(t, dir+"/a.hcl", "sandbox \"ci\" {{}")
			return []string{dir}
		}, "Error:"},
		{"200 MB", func(t *testing.T, dir string) []string {
			write(t, dir+"/a.hcl", good)
			if err := os.Truncate(dir+"/a.hcl", 200e6); err != nil {
				t.Fatal(err)
			}
			return []string{dir}
		}, "larger than 64 MiB"},
		{"too much together", func(t *testing.T, dir string) []string {
			for _, name := range []string{"/a.hcl", "/b.hcl"} {
				write(t, dir+name, "# ")
				if err := os.Truncate(dir+name, 40<<20); err != nil {
					t.Fatal(err)
				}
			}
			return []string{dir}
		}, "larger than 64 MiB"},
		{"named pipe", func(t *testing.T, dir string) []string {
			if err := syscall.Mkfifo(dir+"/a.hcl", 0o600); err != nil {
				t.Fatal(err)
			}
			return []string{dir}
		}, "a named pipe"},
		{"directory behind a link", func(t *testing.T, dir string) []string { symlink(t, ".", dir+"/a.hcl"); return []string{dir} }, "a directory"},
		{"device", func(*testing.T, string) []string { return []string{"/dev/zero"} }, "a device"},
		{"test file by name", func(t *testing.T, dir string) []string {
			write(t, dir+"/a_test.hcl", good)
			return []string{dir + "/a_test.hcl"}
		}, "holds tests"},
		{"path through a file", func(t *testing.T, dir string) []string {
			write(t, dir+"/a.hcl", good)
			return []string{dir + "/a.hcl/b.hcl"}
		}, "cannot be read: not a directory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			doc, diags := Load(tc.make(t, dir), testOptions())
			text := shown(t, diags)
			switch {
			case tc.want == "" && doc == nil:
				t.Errorf("Load: %s", text)
			case tc.want != "" && doc != nil:
				t.Errorf("Load gave a document, want %q", tc.want)
			case !strings.Contains(strings.ReplaceAll(text, dir, "DIR"), tc.want):
				t.Errorf("text does not have %q:\n%s", tc.want, text)
			}
			if len(text) > 4000 {
				t.Errorf("text has %d bytes", len(text))
			}
		})
	}
}

// TestOPS04Unreadable needs a reader that permissions bind, which root is
// not: reading a directory's file goes through a name that is too long.
func TestOPS04Unreadable(t *testing.T) {
	doc, diags := Load([]string{"/" + strings.Repeat("x", 300)}, testOptions())
	if doc != nil || !strings.Contains(shown(t, diags), "policy cannot be read: file name too long") {
		t.Errorf("Load gave %v:\n%s", doc, shown(t, diags))
	}
}

// symlink makes a symbolic link.
func symlink(t *testing.T, target, link string) {
	t.Helper()
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
}

// TestSHA256 holds that the digest names the policy and not where it lies.
func TestSHA256(t *testing.T) {
	sum := func(name, text string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		doc, diags := Load([]string{dir}, testOptions())
		if doc == nil {
			t.Fatal(shown(t, diags))
		}
		return doc.SHA256
	}
	const text = "sandbox \"ci\" {\n}\n"
	a := sum("a.hcl", text)
	if len(a) != 64 {
		t.Errorf("digest %q is not 64 hex digits", a)
	}
	if b := sum("a.hcl", text); a != b {
		t.Error("the digest depends on the directory")
	}
	if b := sum("b.hcl", text); a == b {
		t.Error("the digest does not depend on the file's name")
	}
	if b := sum("a.hcl", text+"\n"); a == b {
		t.Error("the digest does not depend on the bytes")
	}
}

// TestManyRules loads a policy of 10,000 rules and one of 50,000 hosts.
func TestManyRules(t *testing.T) {
	for n, body := range map[int]string{10_000: fullBody, 50_000: "{}"} {
		doc, diags := parseOne(t, manyRules(n, body))
		if doc == nil {
			t.Fatal(shown(t, diags))
		}
		if got := len(doc.Sandboxes[0].Rules); got != n {
			t.Errorf("%d rules, want %d", got, n)
		}
	}
}

// BenchmarkParse10000 parses 10,000 rules; the target is one second.
func BenchmarkParse10000(b *testing.B) {
	files := map[string][]byte{"ci.hcl": []byte(manyRules(10_000, fullBody))}
	for b.Loop() {
		if doc, _ := Parse(files, testOptions()); doc == nil {
			b.Fatal("no document")
		}
	}
}

// fullBody is the body of a rule with matchers.
const fullBody = "{\n    methods = [\"GET\", \"POST\"]\n    paths   = [\"/v1/items/**\"]\n  }"

// manyRules returns a policy with n rules of one body.
func manyRules(n int, body string) string {
	var b strings.Builder
	b.WriteString("sandbox \"ci\" {\n")
	for i := range n {
		fmt.Fprintf(&b, "  allow \"h%d.example.com\" %s\n", i, body)
	}
	b.WriteString("}\n")
	return b.String()
}
