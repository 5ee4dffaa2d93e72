//go:build linux

package e2e_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport/test/lab"
)

var update = flag.Bool("update", false, "write the golden files of TestP6 anew")

// p6Policy allows things that no refusal may tell of.
const p6Policy = `
secret "HIDDEN_KEY" {
  hosts = ["hidden-host.test"]
  source "env" { name = "REAL_KEY" }
}
secret "API_KEY" {
  hosts = ["allowed.p6.test"]
  source "env" { name = "REAL_KEY" }
}
sandbox "dev" {
  labels = { team = "hidden-label" }
  allow "hidden-host.test" {
    addresses = DOCS
    inject    = ["HIDDEN_KEY"]
  }
  allow "allowed.p6.test" {
    addresses = DOCS
    methods   = ["GET", "HEAD"]
    paths     = ["/hidden-path/**", "/open"]
    inject    = ["API_KEY"]
  }
  allow "free.p6.test" { addresses = DOCS }
  deny "tunnel.p6.test" { reason = "Tunnels are not permitted. Ask #sec-egress." }
}
`

// refusal is a client that is refused, and what of its output does not depend
// on its version.
type refusal struct {
	name string
	line string
	keep string // only lines that match

	// alone says that nothing runs beside it: what is sent to a port that is not
	// allowed is explained to a client that speaks soon.
	alone bool
}

func refusals() []refusal {
	return []refusal{
		{name: "curl-host", line: "curl -sS https://denied.p6.test/"},
		{name: "curl-host-h1", line: "curl -sS --http1.1 -w '%{http_code}\\n' https://denied.p6.test/"},
		{name: "curl-plain", line: "curl -sS -w '%{http_code}\\n' http://denied.p6.test/"},
		{name: "curl-deny-with-reason", line: "curl -sS https://tunnel.p6.test/"},
		{name: "curl-method", line: "curl -sS -X DELETE https://allowed.p6.test/open"},
		{name: "curl-path", line: "curl -sS https://allowed.p6.test/other"},
		{name: "curl-port", line: "curl -sS https://allowed.p6.test:8443/open", alone: true},
		{name: "curl-placeholder", line: "curl -sS -H 'Authorization: Bearer $API_KEY' https://free.p6.test/"},
		{name: "curl-headers", line: "curl -sS -o /dev/null -D - https://denied.p6.test/"},
		{name: "json", line: "curl -sS -H 'Accept: application/json' https://denied.p6.test/"},
		{name: "browser", line: "curl -sS -H 'Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8' -w '%{content_type}\\n' https://denied.p6.test/"},
		{name: "grpc", line: "curl -sS --http2 -X POST -H 'Content-Type: application/grpc' -H 'TE: trailers' -o /dev/null -D - https://denied.p6.test/grpc.testing.TestService/UnaryCall"},
		{name: "git", line: "git clone https://denied.p6.test/app.git"},
		{name: "git-push-method", line: "git ls-remote https://allowed.p6.test/app.git"},
		{name: "pip", line: "/usr/bin/python3 -m pip --no-cache-dir --disable-pip-version-check download --no-input --retries 0 -d . https://denied.p6.test/nothing-1.0-py3-none-any.whl", keep: "HTTP error"},
		{name: "python-requests", line: `/usr/bin/python3 -c 'import requests; r=requests.get("https://denied.p6.test/"); print(r.status_code, r.headers["X-Sallyport-Reason"], r.text.strip())'`},
		{name: "npm", line: "npm --no-update-notifier --cache ./cache view nothing --registry https://denied.p6.test/", keep: "error 403|code E403"},
		{name: "dig", line: "dig +noall +comments +answer denied.p6.test TXT | grep -v 'DiG\\|id:\\|^$\\|UDP:\\|COOKIE'"},
	}
}

// TestP6RefusalsExplainThemselves: what real clients print when they are
// refused: a reason from the closed list and the id of the record, and nothing
// of what else the policy has. AUD-12.
func TestP6RefusalsExplainThemselves(t *testing.T) {
	for _, r := range refusals() {
		t.Run(r.name, func(t *testing.T) {
			start := begin
			if r.alone {
				start = alone
			}
			l := start(t)
			o := withKey(lab.Nobody, fill(p6Policy), "sh", "-c", r.line)
			o.Env = append(o.Env, "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
			run := l.Run(t, o)
			got := r.normal(run.Stdout + run.Stderr)
			file := filepath.Join("testdata", "golden", r.name+".txt")
			if *update {
				must(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			must(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s\nwhole output:\n%s%s", r.line, diff, run.Stdout, run.Stderr)
			}
			for _, secret := range []string{"hidden-", "HIDDEN", value, "REAL_KEY", "policy.hcl"} {
				if strings.Contains(run.Stdout+run.Stderr, secret) {
					t.Errorf("the refusal tells of %q:\n%s%s", secret, run.Stdout, run.Stderr)
				}
			}
			p6Record(t, run)
		})
	}
}

func ulid() *regexp.Regexp { return regexp.MustCompile(`\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b`) }

// normal is output without what differs from run to run.
func (r refusal) normal(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(strings.ReplaceAll(line, "npm ERR!", "npm error"), "\r\n ")
		if r.keep != "" && !regexp.MustCompile(r.keep).MatchString(line) || strings.HasPrefix(strings.ToLower(line), "date:") {
			continue
		}
		out.WriteString(ulid().ReplaceAllString(line, "ID") + "\n")
	}
	return out.String()
}

// p6Record holds that every id that was told is that of a denial in the log,
// which has the rule's place where there is a rule.
func p6Record(t *testing.T, run *lab.Run) {
	t.Helper()
	ids := map[string]string{}
	for _, e := range run.Events(t) {
		if e.Phase == "decision" && e.Verdict == "deny" {
			ids[e.Req] = e.Reason
			if strings.HasPrefix(e.Reason, "host_denied") && (e.Rule == nil || e.Rule.Line == 0 || !strings.HasSuffix(e.Rule.File, "policy.hcl")) {
				t.Errorf("a denial by a rule without its place: %+v", e.Rule)
			}
		}
	}
	if len(ids) == 0 {
		t.Error("nothing was denied")
	}
	for _, id := range ulid().FindAllString(run.Stdout+run.Stderr, -1) {
		if ids[id] == "" {
			t.Errorf("the id %s is of no record", id)
		}
	}
}
