package policyfile

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/policy"
)

const examples = "../../examples"

// agent is what the example policy of an agent command line must let it look
// up, and what it must not.
type agent struct{ allowed, denied []string }

// agents are the tables of hosts, by the name of file and sandbox.
func agents() map[string]agent {
	return map[string]agent{
		"aider": {
			[]string{"api.openai.com", "api.anthropic.com", "raw.githubusercontent.com", "pypi.org"},
			[]string{"us.i.posthog.com", "github.com", "files.pythonhosted.org"},
		},
		"claude-code": {
			[]string{"api.anthropic.com"},
			[]string{"statsig.anthropic.com", "sentry.io", "claude.ai", "downloads.claude.ai", "storage.googleapis.com", "api.openai.com"},
		},
		"codex": {
			[]string{"api.openai.com"},
			[]string{"chatgpt.com", "auth.openai.com", "github.com", "api.anthropic.com"},
		},
		"copilot-cli": {
			[]string{"api.github.com", "api.githubcopilot.com", "api.individual.githubcopilot.com", "api.business.githubcopilot.com"},
			[]string{"githubcopilot.com", "evilgithubcopilot.com", "github.com", "collector.github.com", "default.exp-tas.com", "copilot-telemetry.githubusercontent.com"},
		},
		"cursor-agent": {
			[]string{"api2.cursor.sh", "api5.cursor.sh", "agent.api5.cursor.sh"},
			[]string{"cursor.sh", "cursor.com", "downloads.cursor.com", "evil-cursor.sh", "evilcursor.sh"},
		},
		"gemini-cli": {
			[]string{"generativelanguage.googleapis.com"},
			[]string{"play.googleapis.com", "oauth2.googleapis.com", "cloudcode-pa.googleapis.com", "storage.googleapis.com"},
		},
		"goose": {
			[]string{"api.openai.com"},
			[]string{"us.i.posthog.com", "openrouter.ai", "github.com"},
		},
		"opencode": {
			[]string{"api.anthropic.com", "models.dev", "registry.npmjs.org"},
			[]string{"opencode.ai", "github.com", "api.github.com", "api.openai.com"},
		},
	}
}

// TestExampleAgents holds every policy in examples/agents against its table:
// a name of a host it needs resolves, another does not.
func TestExampleAgents(t *testing.T) {
	files, err := filepath.Glob(examples + "/agents/*.hcl")
	if err != nil {
		t.Fatal(err)
	}
	table := agents()
	if len(files) != len(table) {
		t.Errorf("%d files, %d tables: %q", len(files), len(table), slices.Sorted(maps.Keys(table)))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".hcl")
		t.Run(name, func(t *testing.T) {
			set := mustLoad(t, file)
			if got := set.Sandboxes(); !slices.Equal(got, []string{name}) {
				t.Fatalf("sandboxes %q, want %q alone, so that run needs no --sandbox", got, name)
			}
			hosts := table[name]
			for _, host := range hosts.allowed {
				if d := lookUp(set, name, host); d.Verdict != policy.Allow {
					t.Errorf("%s is refused (%s), want it allowed", host, d.Reason)
				}
			}
			never := []string{"example.com", "localhost", "metadata.google.internal", "webhook.site"}
			for _, host := range hosts.allowed {
				never = append(never, host+".evil.test", "evil"+host)
			}
			for _, host := range append(never, hosts.denied...) {
				d := lookUp(set, name, host)
				if strings.HasPrefix(host, "evil") && d.Rule != nil && strings.HasPrefix(d.Rule.Host, "*.") {
					continue // a name of the wildcard's own domain; its neighbours are in the table
				}
				if d.Verdict != policy.Deny {
					t.Errorf("%s is allowed by %s, want it refused", host, d.Rule.Pos)
				}
			}
			for _, s := range set.Secrets() {
				if set.SecretCovers(s.Name, "example.com") || len(s.Hosts) == 0 {
					t.Errorf("secret %s has the hosts %q", s.Name, s.Hosts)
				}
			}
		})
	}
}

// lookUp decides the question for a host's name.
func lookUp(set *policy.Set, sandbox, host string) policy.Decision {
	return set.Decide(policy.Request{Sandbox: sandbox, Stage: policy.StageName, Host: host, Now: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)})
}

// mustLoad loads a policy that must have no problem at all.
func mustLoad(t *testing.T, paths ...string) *policy.Set {
	t.Helper()
	set, diags := LoadSet(paths, 1, testOptions())
	if set == nil || diags.Len() != 0 {
		t.Fatalf("%q:\n%s", paths, shown(t, diags))
	}
	return set
}

// TestExamplePolicies loads every policy in examples/policies, alone or, where
// it uses them, with the groups; and checks what each is about.
func TestExamplePolicies(t *testing.T) {
	type check struct {
		sandbox, method, url string
		want                 policy.Verdict
	}
	for name, tc := range map[string]struct {
		groups []string
		checks []check
	}{
		"ceiling": {[]string{"python", "javascript", "github"}, []check{
			{"ci", "GET", "pypi.org/simple/requests/", policy.Allow},
			{"ci", "POST", "api.openai.com/v1/responses", policy.Deny},
			{"agent", "POST", "api.openai.com/v1/responses", policy.Allow},
			{"agent", "POST", "api.openai.com/v1/files", policy.Deny},
			{"agent", "GET", "github.com/acme/app", policy.Deny},
			{"agent", "GET", "x.ngrok.io/", policy.Deny},
		}},
		"github-read-only": {nil, []check{
			{"reader", "GET", "api.github.com/repos/acme/app/pulls", policy.Allow},
			{"reader", "POST", "api.github.com/repos/acme/app/issues", policy.Deny},
			{"reader", "GET", "api.github.com/repos/other/app", policy.Deny},
			{"reader", "GET", "raw.githubusercontent.com/acme/app/main/README.md", policy.Allow},
		}},
		"package-registries": {[]string{"python", "javascript", "go", "rust"}, []check{
			{"build", "GET", "registry.npmjs.org/@types%2fnode", policy.Allow},
			{"build", "PUT", "registry.npmjs.org/left-pad", policy.Deny},
			{"build", "GET", "index.crates.io/se/rd/serde", policy.Allow},
			{"build", "GET", "storage.googleapis.com/other-bucket/x", policy.Deny},
			{"build", "POST", "pypi.org/legacy/", policy.Deny},
		}},
		"mcp-server": {nil, []check{
			{"agent", "GET", "mcp.example.com/mcp", policy.Allow},
			{"agent", "POST", "mcp.example.com/mcp", policy.Deny}, // without a body
			{"agent", "GET", "api.github.com/graphql", policy.Deny},
		}},
		"internal-database": {nil, nil},
		"passthrough":       {nil, nil},
		"virtual-machine":   {nil, []check{{"vm-1", "GET", "deb.debian.org/debian/dists/stable/Release", policy.Allow}}},
		"report-mode":       {nil, []check{{"trial", "GET", "anything.example.com/", policy.Allow}}},
		"workstation": {[]string{"containers", "debian", "github", "github-write", "go", "javascript", "models", "python", "rust"}, []check{
			{"workstation", "GET", "registry-1.docker.io/v2/library/debian/manifests/stable", policy.Allow},
			{"workstation", "PUT", "registry-1.docker.io/v2/library/debian/manifests/stable", policy.Deny},
			{"workstation", "GET", "ghcr.io/v2/acme/app/manifests/1", policy.Allow},
			{"workstation", "GET", "deb.debian.org/debian/dists/stable/Release", policy.Allow},
			{"workstation", "GET", "raw.githubusercontent.com/acme/app/main/README.md", policy.Allow},
			{"workstation", "POST", "api.github.com/repos/acme/app/issues", policy.Allow},
			{"workstation", "POST", "uploads.github.com/repos/acme/app/releases/1/assets", policy.Allow},
			{"workstation", "POST", "github.com/acme/app.git/git-receive-pack", policy.Allow},
			{"workstation", "POST", "github.com/login", policy.Deny},
			{"workstation", "GET", "proxy.golang.org/example.com/x/@v/list", policy.Allow},
			{"workstation", "GET", "registry.npmjs.org/@types%2fnode", policy.Allow},
			{"workstation", "POST", "api.anthropic.com/v1/messages", policy.Allow},
			{"workstation", "POST", "api.anthropic.com/api/event_logging", policy.Deny},
			{"workstation", "POST", "api.openai.com/v1/responses", policy.Allow},
			{"workstation", "POST", "generativelanguage.googleapis.com/v1beta/models/gemini:generateContent", policy.Allow},
			{"workstation", "POST", "api.mistral.ai/v1/chat/completions", policy.Allow},
			{"workstation", "POST", "openrouter.ai/api/v1/chat/completions", policy.Allow},
			{"workstation", "GET", "pypi.org/simple/requests/", policy.Allow},
			{"workstation", "GET", "index.crates.io/se/rd/serde", policy.Allow},
			{"workstation", "GET", "example.com/", policy.Deny},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			paths := []string{examples + "/policies/" + name + ".hcl"}
			for _, g := range tc.groups {
				paths = append(paths, examples+"/groups/"+g+".hcl")
			}
			set := mustLoad(t, paths...)
			for _, c := range tc.checks {
				host, path, _ := strings.Cut(c.url, "/")
				d := set.Decide(policy.Request{Sandbox: c.sandbox, Stage: policy.StageRequest, Host: host, Port: 443, Scheme: policy.HTTPS,
					Method: c.method, Path: "/" + path, Now: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)})
				if d.Verdict != c.want {
					t.Errorf("%s %s: %v (%s), want %v", c.method, c.url, d.Verdict, d.Reason, c.want)
				}
			}
		})
	}
	files, err := filepath.Glob(examples + "/policies/*.hcl")
	if err != nil || len(files) != 9 {
		t.Errorf("%d files in examples/policies, 9 are tested (%v)", len(files), err)
	}
	t.Run("relays", func(t *testing.T) {
		now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		d := mustLoad(t, examples+"/policies/internal-database.hcl").Decide(policy.Request{Sandbox: "reports", Stage: policy.StageConn, Host: "db.internal.example.com", Port: 5432, Now: now})
		if d.Relay != policy.RelayTCP || len(d.Addresses) != 1 {
			t.Errorf("database: relay %v, addresses %v", d.Relay, d.Addresses)
		}
		d = mustLoad(t, examples+"/policies/passthrough.hcl").Decide(policy.Request{Sandbox: "updater", Stage: policy.StageConn, Host: "updates.example.com", Port: 443, Scheme: policy.HTTPS, Now: now})
		if d.Relay != policy.RelayPassthrough {
			t.Errorf("updates: relay %v", d.Relay)
		}
		sandbox, ok := mustLoad(t, examples+"/policies/virtual-machine.hcl").Claim("tap-vm1", netip.MustParseAddr("10.77.4.2"), "")
		if sandbox != "vm-1" || !ok {
			t.Errorf("virtual machine: claimed by %q", sandbox)
		}
	})
}

// TestExamplesExplainEveryHost holds that every rule of an example has a
// comment that says what the host is for.
func TestExamplesExplainEveryHost(t *testing.T) {
	for _, dir := range []string{"agents", "groups", "policies"} {
		files, err := filepath.Glob(filepath.Join(examples, dir, "*.hcl"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files (%v)", dir, err)
		}
		for _, file := range files {
			doc, diags := Load([]string{file}, testOptions())
			if doc == nil {
				t.Fatal(shown(t, diags))
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(string(data), "\n")
			for _, r := range allRules(doc) {
				above := strings.TrimSpace(lines[r.Pos.Line-2])
				if !strings.HasPrefix(above, "#") && !strings.Contains(lines[r.Pos.Line-1], "#") {
					t.Errorf("%s: %s %q has no comment", r.Pos, r.Action, r.Host)
				}
			}
		}
	}
}

// allRules returns every rule of a document.
func allRules(doc *policy.Document) []policy.Rule {
	var out []policy.Rule
	if doc.Org != nil {
		out = append(out, doc.Org.Rules...)
	}
	for _, g := range doc.Groups {
		out = append(out, g.Rules...)
	}
	for _, s := range doc.Sandboxes {
		out = append(out, s.Rules...)
	}
	return out
}

// TestExampleGroups holds that every group in examples/groups compiles when a
// sandbox uses it.
func TestExampleGroups(t *testing.T) {
	doc, diags := Load([]string{examples + "/groups"}, testOptions())
	if doc == nil {
		t.Fatal(shown(t, diags))
	}
	var use []string
	for _, g := range doc.Groups {
		use = append(use, `"`+g.Name+`"`)
	}
	dir := t.TempDir()
	text := "sandbox \"all\" {\n  use = [" + strings.Join(use, ", ") + "]\n}\n"
	if err := os.WriteFile(dir+"/all.hcl", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set := mustLoad(t, dir, examples+"/groups")
	for _, r := range allRules(doc) {
		if d := lookUp(set, "all", r.Host); d.Verdict != policy.Allow {
			t.Errorf("%s: %s is refused (%s)", r.Pos, r.Host, d.Reason)
		}
	}
	writing := []string{"github_write", "anthropic", "openai", "gemini", "mistral", "openrouter"}
	for _, g := range doc.Groups {
		for _, r := range g.Rules {
			if r.Access != "read" && !slices.Contains(writing, g.Name) {
				t.Errorf("%s: %s may be written to", r.Pos, r.Host)
			}
		}
	}
	used := mustLoad(t, examples+"/policies/workstation.hcl", examples+"/groups").Sandbox("workstation").Use
	if len(used) != len(doc.Groups) {
		t.Errorf("the workstation uses %d of %d groups", len(used), len(doc.Groups))
	}
}

// TestExampleReadmes holds that the table of examples/agents names every file
// and its hosts.
func TestExampleReadmes(t *testing.T) {
	data, err := os.ReadFile(examples + "/agents/README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(examples + "/agents/*.hcl")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		doc, diags := Load([]string{file}, testOptions())
		if doc == nil {
			t.Fatal(shown(t, diags))
		}
		var row string
		for line := range strings.Lines(string(data)) {
			if strings.HasPrefix(line, "| `"+filepath.Base(file)+"` |") {
				row = line
			}
		}
		for _, r := range allRules(doc) {
			if !strings.Contains(row, "`"+r.Host+"`") {
				t.Errorf("README row of %s does not name %s", filepath.Base(file), r.Host)
			}
		}
		for _, s := range doc.Secrets {
			if !strings.Contains(row, "`"+s.Name+"`") {
				t.Errorf("README row of %s does not name %s", filepath.Base(file), s.Name)
			}
		}
	}
}

// TestExampleTables holds that the tables of the other two READMEs name every
// file, and the groups.
func TestExampleTables(t *testing.T) {
	for _, dir := range []string{"groups", "policies"} {
		data, err := os.ReadFile(filepath.Join(examples, dir, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(examples, dir, "*.hcl"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(data), ".hcl` |"); got != len(files) {
			t.Errorf("%s/README.md names %d files, there are %d", dir, got, len(files))
		}
		for _, file := range files {
			if !strings.Contains(string(data), "| `"+filepath.Base(file)+"` |") {
				t.Errorf("%s/README.md does not name %s", dir, filepath.Base(file))
			}
		}
		if dir != "groups" {
			continue
		}
		doc, diags := Load([]string{filepath.Join(examples, dir)}, testOptions())
		if doc == nil {
			t.Fatal(shown(t, diags))
		}
		for _, g := range doc.Groups {
			if !strings.Contains(string(data), "`"+g.Name+"`") {
				t.Errorf("groups/README.md does not name %s", g.Name)
			}
		}
	}
}
