package main

import (
	"fmt"
	"maps"

	"sallyport/policy"
	"sallyport/policy/policyfile"
	"sallyport/secrets"
)

// openSecret makes the source of a secret, or says all that is wrong with it.
func openSecret(s policy.Secret, p *pins) (src secrets.Source, problems []policy.Problem) {
	fail := func(at policy.Pos, format string, args ...any) {
		problems = append(problems, policy.Problem{Pos: at, Severity: policy.Error,
			Summary: fmt.Sprintf("secret %q: ", s.Name) + fmt.Sprintf(format, args...)})
	}
	if _, err := secrets.ParseTemplate(s.Placeholder); s.Placeholder != "" && err != nil {
		fail(s.Pos, "%v", err)
		problems[0].Attr, problems[0].Value = "placeholder", s.Placeholder
	}
	if name := sourceKinds()[s.Source.Kind].misplaced(s); name != "" {
		fail(s.Pos, "a source of kind %q is never sent, so %s has no meaning", s.Source.Kind, name)
	}
	src, err := openSource(s.Source, p)
	if err != nil {
		fail(s.Source.Pos, "%v", err)
	}
	return src, problems
}

// checkForms says what a load would refuse of the secrets and alerts of a
// policy by their form alone. It opens them as a load does, but reads no file:
// where a policy is checked, there may be none.
func checkForms(doc *policy.Document, alerts *policyfile.Alerts, covers func(secret, host string) bool) (problems []policy.Problem) {
	for _, s := range doc.Secrets {
		s.Source.Attrs = maps.Clone(s.Source.Attrs)
		delete(s.Source.Attrs, "ca_file") // the one file that is read when a source is opened
		_, wrong := openSecret(s, nil)
		problems = append(problems, wrong...)
	}
	_, wrong := openAlerts(alerts, sinkSecrets{covers: covers, formOnly: true})
	return append(problems, wrong...)
}
