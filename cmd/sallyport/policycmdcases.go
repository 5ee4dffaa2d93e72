package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sallyport/policy"
	"sallyport/policy/policyfile"
)

// casesFlags are the flags of policy test.
type casesFlags struct {
	policyFlags
	run     string
	verbose bool
	junit   string
	cover   bool
}

func casesCommand() *cobra.Command {
	var f casesFlags
	cmd := &cobra.Command{
		Use:   "test [PATH...]",
		Short: "Run the tests that stand beside a policy",
		Long: `Run the test blocks of a policy: those in its files and those in its test
files. A folder's are all its *_test.hcl; of a file ci.hcl it is ci_test.hcl beside
it and no other, since a folder may hold several policies. Others can be named.
Nothing is sent: a request is decided as the gateway would decide
it, placeholders and all. The clock stands still, at the test's "now" or in the
year 2000, so that no test fails by the passing of time. A name resolves to
what the request's "resolves" says, else to a public address.

It exits with 1 when a test fails or there is none.`,
		Example: `  sallyport policy test policy.d
  sallyport policy test ci.hcl more_test.hcl
  sallyport policy test -v -run GitHub policy.d
  sallyport policy test --junit report.xml --cover policy.d`,
		RunE: func(_ *cobra.Command, args []string) error { return f.test(args) },
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.run, "run", "", "only tests whose name matches this regular expression")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "show every test, not failures alone")
	cmd.Flags().StringVar(&f.junit, "junit", "", "write a JUnit report to this file")
	cmd.Flags().BoolVar(&f.cover, "cover", false, "list the rules and the reasons of denial that no test meets")
	return cmd
}

func (f *casesFlags) test(args []string) error {
	wanted, err := regexp.Compile(f.run)
	if err != nil {
		return usage("--run %s: not a regular expression", f.run)
	}
	if err := notDash("--junit", f.junit); err != nil {
		return err
	}
	b, err := f.bundle(args)
	if err != nil {
		return err
	}
	t := newTrial(b)
	for _, test := range b.Tests {
		if wanted.MatchString(test.Name) {
			t.run(test)
		}
	}
	if f.junit != "" {
		if err := writeJUnit(f.junit, t.results); err != nil {
			return err
		}
	}
	report := f.text
	if f.json {
		report = f.lines
	}
	failed, err := report(os.Stdout, t)
	switch {
	case err != nil:
		return err
	case len(t.results) == 0 && f.run != "":
		return &exit{code: exitFailed, err: fmt.Errorf("no test has a name that matches %s", f.run)}
	case len(t.results) == 0:
		return &exit{code: exitFailed, err: errors.New("the policy has no tests"),
			hint: `write test "what holds" { sandbox = "…" allow = ["GET https://…"] deny = ["POST https://…"] } into ` + f.testFiles(args) + ", or name another test file after the policy"}
	case failed > 0:
		return &exit{code: exitFailed}
	}
	return nil
}

// testFiles names the test files that are looked for beside the policy.
func (f *policyFlags) testFiles(args []string) string {
	paths, _ := f.paths(args) // the policy was loaded from them
	var names []string
	for _, p := range paths {
		info, err := os.Stat(p)
		switch {
		case err != nil: // standard input
		case info.IsDir():
			names = append(names, filepath.Join(p, "*_test.hcl"))
		case strings.HasSuffix(p, "_test.hcl"):
			names = append(names, p)
		default:
			names = append(names, policyfile.TestFileOf(p))
		}
	}
	if len(names) == 0 {
		return "a file called *_test.hcl"
	}
	return strings.Join(names, " or ")
}

// text reports for people, and returns how many tests failed.
func (f *casesFlags) text(w io.Writer, t *trial) (int, error) {
	var b strings.Builder
	failed := 0
	for _, r := range t.results {
		switch {
		case len(r.failures) > 0:
			failed++
			fmt.Fprintf(&b, "FAIL  %s  %s\n", r.test.Name, r.test.Pos)
			for _, x := range r.failures {
				b.WriteString(x.text())
			}
		case f.verbose:
			fmt.Fprintf(&b, "ok    %s  %s\n", r.test.Name, counted(r.checks, "request"))
		}
	}
	met, all := t.ruleCoverage()
	if len(t.results) > 0 {
		fmt.Fprintf(&b, "%s: %d passed, %d failed; %d of %s met\n", counted(len(t.results), "test"), len(t.results)-failed, failed, met, counted(all, "rule"))
	}
	if f.cover {
		t.writeCoverage(&b)
	}
	_, err := io.WriteString(w, b.String())
	return failed, err
}

// text says what was expected, what came instead, and which rule came
// nearest to what was expected.
func (x failure) text() string {
	d := x.got.decision
	var b strings.Builder
	fmt.Fprintf(&b, "  %s: %s %s\n    want %s, got %s (%s)", x.request.Pos, x.request.Method, x.request.URL, x.want, d.Verdict, d.Reason)
	if strings.HasPrefix(x.want, "secrets") {
		fmt.Fprintf(&b, " with secrets [%s]", strings.Join(x.got.sent, ", "))
	}
	b.WriteString("\n")
	if d.Verdict == policy.Deny {
		fmt.Fprintf(&b, "    %s\n", d.Message)
	}
	if d.Rule != nil {
		fmt.Fprintf(&b, "    decided by %s: %s\n", d.Rule.Pos, d.Rule.Title())
	}
	if n := x.nearest(); n != nil {
		fmt.Fprintf(&b, "    nearest rule %s: %s\n      did not match: %s\n", n.Rule.Pos, n.Rule.Title(), n.Why)
	}
	return b.String()
}

// nearest is the rule that came nearest to deciding as expected: where an
// allow was expected an allow rule, else a denial.
func (x failure) nearest() *policy.RuleFit {
	order := []string{"host", "port", "scheme", "expires", "method", "path", "query", "header", "websocket", "body"}
	var best *policy.RuleFit
	for i := range x.got.rules {
		f := &x.got.rules[i]
		denial := f.Rule.Action == policy.ActionDeny
		if f.Matches || denial != (x.got.decision.Verdict == policy.Allow) {
			continue
		}
		if best == nil || slices.Index(order, f.Matcher) > slices.Index(order, best.Matcher) {
			best = f
		}
	}
	return best
}

// ruleCoverage counts the rules that decide and those that a test met.
func (t *trial) ruleCoverage() (met, all int) {
	for _, r := range t.decisive() {
		all++
		if t.coverage.met[r.Pos] {
			met++
		}
	}
	return met, all
}

// decisive are the rules that a request can meet.
func (t *trial) decisive() []*policy.Rule {
	return t.bundle.Set.BindingRules()
}

// writeCoverage lists what no test met.
func (t *trial) writeCoverage(b *strings.Builder) {
	for _, r := range t.decisive() {
		if !t.coverage.met[r.Pos] {
			fmt.Fprintf(b, "not met   %s: %s\n", r.Pos, r.Title())
		}
	}
	for _, r := range deniable(t.bundle.Set) {
		word := "not met "
		if t.coverage.reasons[r] {
			word = "met     "
		}
		fmt.Fprintf(b, "%s  denial %s\n", word, r)
	}
}

// deniable are the reasons for which this policy can deny a request.
func deniable(s *policy.Set) []policy.Reason {
	has := map[policy.Reason]bool{policy.HostNotAllowed: true}
	for _, r := range s.BindingRules() {
		if r.Action == policy.ActionDeny {
			has[policy.HostDenied] = true
			continue
		}
		has[policy.PortNotAllowed] = true
		has[policy.MethodNotAllowed] = has[policy.MethodNotAllowed] || r.Access == "read" || len(r.Methods) > 0
		has[policy.PathNotAllowed] = has[policy.PathNotAllowed] || len(r.Paths) > 0
		has[policy.AmbiguousPath] = has[policy.AmbiguousPath] || len(r.Paths) > 0 || r.Action == policy.ActionGit
		has[policy.GitPushNotAllowed] = has[policy.GitPushNotAllowed] || r.Action == policy.ActionGit && r.Access != "write"
		has[policy.RuleExpired] = has[policy.RuleExpired] || !r.Expires.IsZero()
		if r.GraphQL != nil || r.JSONRPC != nil {
			has[policy.MethodNotAllowed], has[policy.UninspectableBody] = true, true
		}
		has[policy.UpgradeNotAllowed] = has[policy.UpgradeNotAllowed] || r.NoWebSocket
	}
	has[policy.PlaceholderLeak] = len(s.Secrets()) > 0
	var out []policy.Reason
	for r, ok := range has {
		if ok {
			out = append(out, r)
		}
	}
	slices.Sort(out)
	return out
}

// jsonTest is one test as programs are told of it.
type jsonTest struct {
	Test     string        `json:"test"`
	File     string        `json:"file"`
	Line     int           `json:"line"`
	Passed   bool          `json:"passed"`
	Requests int           `json:"requests"`
	Failures []jsonFailure `json:"failures,omitempty"`
}

type jsonFailure struct {
	File    string        `json:"file"`
	Line    int           `json:"line"`
	Request string        `json:"request"`
	Want    string        `json:"want"`
	Verdict string        `json:"verdict"`
	Reason  policy.Reason `json:"reason"`
	Message string        `json:"message,omitempty"`
	Secrets []string      `json:"secrets,omitempty"`
	Rule    *jsonRule     `json:"rule,omitempty"`
	Nearest *jsonRule     `json:"nearest,omitempty"`
	Why     string        `json:"why,omitempty"`
}

type jsonCoverage struct {
	Tests   int             `json:"tests"`
	Failed  int             `json:"failed"`
	Rules   int             `json:"rules"`
	Met     int             `json:"met"`
	NotMet  []*jsonRule     `json:"not_met,omitempty"`
	Denials []policy.Reason `json:"denials_met,omitempty"`
	Missing []policy.Reason `json:"denials_not_met,omitempty"`
}

// lines reports for programs: one object for each test and one for all.
func (f *casesFlags) lines(w io.Writer, t *trial) (int, error) {
	sum := jsonCoverage{Tests: len(t.results)}
	for _, r := range t.results {
		j := jsonTest{Test: r.test.Name, File: r.test.Pos.File, Line: r.test.Pos.Line, Passed: len(r.failures) == 0, Requests: r.checks}
		for _, x := range r.failures {
			j.Failures = append(j.Failures, x.json())
		}
		if !j.Passed {
			sum.Failed++
		}
		if err := writeJSON(w, j); err != nil {
			return 0, err
		}
	}
	sum.Met, sum.Rules = t.ruleCoverage()
	for _, r := range t.decisive() {
		if !t.coverage.met[r.Pos] {
			sum.NotMet = append(sum.NotMet, ruleJSON(r))
		}
	}
	for _, r := range deniable(t.bundle.Set) {
		if t.coverage.reasons[r] {
			sum.Denials = append(sum.Denials, r)
		} else {
			sum.Missing = append(sum.Missing, r)
		}
	}
	return sum.Failed, writeJSON(w, sum)
}

func (x failure) json() jsonFailure {
	d := x.got.decision
	j := jsonFailure{File: x.request.Pos.File, Line: x.request.Pos.Line, Request: x.request.Method + " " + x.request.URL, Want: x.want,
		Verdict: d.Verdict.String(), Reason: d.Reason, Message: d.Message, Secrets: x.got.sent, Rule: ruleJSON(d.Rule)}
	if n := x.nearest(); n != nil {
		j.Nearest, j.Why = ruleJSON(n.Rule), n.Why
	}
	return j
}
