package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport/policy"
	"sallyport/policy/policyfile"
)

// explainFlags are the flags of policy explain.
type explainFlags struct {
	policyFlags
	sandbox string
	headers []string
	data    string
	now     string
	record  string
	state   string

	sha256 string // of the policy that decides
}

func explainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain --sandbox NAME 'METHOD URL' | --record ID",
		Short: "Say how a request is decided, and what every rule had to do with it",
		Long: `Decide a request as the gateway would, and list every rule for its host with
the matcher that said no. With --record it is the request of a record of the
audit log, decided by the policy of its time where that is still to be had: in
the files, or in the history of the git repository that they are in.

It exits with 0 when the request is allowed, with 1 when it is denied, and with
2 for every error.`,
		Example: `  sallyport policy explain --policy policy.d --sandbox ci 'POST https://api.github.com/repos/acme/app/issues'
  sallyport policy explain --sandbox ci -H 'Authorization: Bearer $GITHUB_TOKEN' https://evil.example/
  sallyport policy explain --sandbox ci -d '{"query":"mutation { x }"}' 'POST https://api.github.com/graphql'
  sallyport policy explain --policy policy.d --record 01JE4ZC3Q7W2M8N5T6V9X0Y1AB`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error { return f.explain(args) },
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.sandbox, "sandbox", "", "sandbox of the policy (default: its only one)")
	cmd.Flags().StringArrayVarP(&f.headers, "header", "H", nil, "'Name: value' that the request has (repeatable)")
	cmd.Flags().StringVarP(&f.data, "data", "d", "", "body that the request has, or @FILE; its Content-Type is application/json unless -H says otherwise")
	cmd.Flags().StringVar(&f.now, "now", "", "time of the request, RFC 3339 or a day (default: now)")
	cmd.Flags().StringVar(&f.record, "record", "", "id of a record, or of the request that a refusal names")
	cmd.Flags().StringVar(&f.state, "state", "", "state folder of the gateway that has the record")
	return cmd
}

func (f *explainFlags) explain(args []string) error {
	if f.record != "" {
		if len(args) > 0 {
			return usage("explain: either --record or a request")
		}
		return f.explainRecord()
	}
	q, err := f.request(args)
	if err != nil {
		return err
	}
	now := time.Now()
	if f.now != "" {
		if now, err = instant(f.now); err != nil {
			return err
		}
	}
	b, err := f.bundle(nil)
	if err != nil {
		return err
	}
	if f.sandbox, err = chooseSandbox(b.Set.Sandboxes(), f.sandbox); err != nil {
		return err
	}
	f.sha256 = b.Set.SHA256()
	return f.tell(os.Stdout, newTrial(b).judge(f.sandbox, now, q), q)
}

// instant reads a time, or a day, which is its first instant in UTC.
func instant(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usage("%s: neither a time such as 2026-01-02T15:04:05Z nor a day such as 2026-01-02", s)
}

// request reads the request that the arguments write.
func (f *explainFlags) request(args []string) (policyfile.TestRequest, error) {
	q := policyfile.TestRequest{Method: "GET"}
	words := strings.Fields(strings.Join(args, " "))
	switch len(words) {
	case 1:
		q.URL = words[0]
		if !strings.ContainsAny(q.URL, ".:/[") && q.URL == strings.ToUpper(q.URL) {
			return q, &exit{code: exitUsage, err: fmt.Errorf("explain: %q is a method, and no URL is named", q.URL),
				hint: "sallyport policy explain --sandbox ci '" + q.URL + " https://api.example.com/v1/items'"}
		}
	case 2:
		q.Method, q.URL = words[0], words[1]
	default:
		return q, &exit{code: exitUsage, err: fmt.Errorf("explain: not a method and a URL: %q", strings.Join(args, " ")),
			hint: "sallyport policy explain --sandbox ci 'POST https://api.example.com/v1/items'"}
	}
	if !strings.Contains(q.URL, "://") {
		q.URL = "https://" + q.URL
	}
	if _, _, err := policyRequest("", q.Method, q.URL); err != nil && strings.Contains(err.Error(), "is not a URL") {
		return q, usage("explain: %v", err)
	}
	q.Headers = map[string]string{}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return q, usage("-H %q: not of the form 'Name: value'", h)
		}
		q.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	if f.data != "" {
		return f.withBody(q)
	}
	return q, nil
}

// withBody gives the request the body that --data says.
func (f *explainFlags) withBody(q policyfile.TestRequest) (policyfile.TestRequest, error) {
	q.Body = f.data
	if file, ok := strings.CutPrefix(f.data, "@"); ok {
		text, err := os.ReadFile(file)
		if err != nil {
			return q, err
		}
		q.Body = string(text)
	}
	for name := range q.Headers {
		if strings.EqualFold(name, "Content-Type") {
			return q, nil
		}
	}
	q.Headers["Content-Type"] = "application/json"
	return q, nil
}

// jsonExplanation is an explanation as programs are told of it.
type jsonExplanation struct {
	Sandbox string        `json:"sandbox"`
	Request string        `json:"request"`
	Verdict string        `json:"verdict"`
	Reason  policy.Reason `json:"reason"`
	Message string        `json:"message,omitempty"`
	Would   *jsonWould    `json:"would,omitempty"`
	Rule    *jsonRule     `json:"rule,omitempty"`
	Secrets []string      `json:"secrets,omitempty"`
	Rules   []jsonRuleFit `json:"rules"`
	Policy  string        `json:"policy"` // SHA-256
	Record  string        `json:"record,omitempty"`
}

type jsonWould struct {
	Verdict string        `json:"verdict"`
	Reason  policy.Reason `json:"reason"`
}

type jsonRuleFit struct {
	*jsonRule
	Matches bool   `json:"matches"`
	Matcher string `json:"matcher,omitempty"`
	Why     string `json:"why,omitempty"`
}

// tell prints an outcome. A denial is exit 1, which no error has.
func (f *explainFlags) tell(w io.Writer, out outcome, q policyfile.TestRequest) error {
	var err error
	if f.json {
		err = f.tellJSON(w, out, q)
	} else {
		_, err = io.WriteString(w, explained(out))
	}
	if err == nil && out.decision.Verdict == policy.Deny {
		err = &exit{code: exitFailed}
	}
	return err
}

func (f *explainFlags) tellJSON(w io.Writer, out outcome, q policyfile.TestRequest) error {
	d := out.decision
	j := jsonExplanation{Sandbox: f.sandbox, Request: q.Method + " " + q.URL, Verdict: d.Verdict.String(), Reason: d.Reason, Message: d.Message,
		Rule: ruleJSON(d.Rule), Secrets: out.sent, Rules: []jsonRuleFit{}, Policy: f.sha256, Record: f.record}
	if d.Would != nil {
		j.Would = &jsonWould{policy.Deny.String(), d.Would.Reason}
	}
	for _, r := range out.rules {
		j.Rules = append(j.Rules, jsonRuleFit{ruleJSON(r.Rule), r.Matches, r.Matcher, r.Why})
	}
	return writeJSON(w, j)
}

// explained is an outcome in words.
func explained(out outcome) string {
	d := out.decision
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", d.Verdict, d.Reason)
	if d.Would != nil {
		fmt.Fprintf(&b, "  in report mode; else it would be denied: %s: %s\n", d.Would.Reason, d.Would.Message)
	}
	if d.Message != "" {
		fmt.Fprintf(&b, "  %s\n", d.Message)
	}
	if d.Rule != nil {
		fmt.Fprintf(&b, "  decided by %s: %s\n", d.Rule.Pos, d.Rule.Title())
	}
	if len(out.sent) > 0 {
		fmt.Fprintf(&b, "  secrets sent: %s\n", strings.Join(out.sent, ", "))
	} else if len(d.Inject) > 0 {
		fmt.Fprintf(&b, "  secrets that may be sent: %s\n", strings.Join(d.Inject, ", "))
	}
	if len(out.rules) == 0 {
		b.WriteString("no rule was considered\n")
		return b.String()
	}
	b.WriteString("rules considered:\n")
	for _, r := range out.rules {
		word := "no "
		if r.Matches {
			word = "yes"
		}
		fmt.Fprintf(&b, "  %s  %s  %s\n", word, r.Rule.Pos, r.Rule.Title())
		if !r.Matches {
			fmt.Fprintf(&b, "       %s\n", r.Why)
		}
	}
	return b.String()
}
