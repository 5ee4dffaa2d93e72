package policyfile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2/hclwrite"

	"sallyport/policy"
)

// Suggested writes a suggestion as HCL. Its rules stand in a block of the
// sandbox, to be copied into the one that the policy has; or, when group is
// not "", in a group of that name, in a file that loads beside the policy.
// Comments say how often each was blocked and when first, and what was left
// out and why.
func Suggested(s policy.Suggestion, group string) []byte {
	var b strings.Builder
	if len(s.Rules) > 0 {
		if group == "" {
			fmt.Fprintf(&b, "sandbox %s {\n", hclString(s.Sandbox))
		} else {
			fmt.Fprintf(&b, "# Write use = [%s] into sandbox %s.\ngroup %s {\n", hclString(group), hclString(s.Sandbox), hclString(group))
		}
		for i, r := range s.Rules {
			if i > 0 {
				b.WriteByte('\n')
			}
			writeSuggested(&b, r)
		}
		b.WriteString("}\n")
	}
	writeLeft(&b, s)
	return hclwrite.Format([]byte(b.String()))
}

func writeSuggested(b *strings.Builder, r policy.SuggestedRule) {
	reasons := make([]string, len(r.Reasons))
	for i, x := range r.Reasons {
		reasons[i] = string(x)
	}
	fmt.Fprintf(b, "# %s, first %s: %s\n", times(r.Count), day(r.First), strings.Join(reasons, ", "))
	if r.Unseen {
		b.WriteString(unseenText(r))
	}
	writeRule(b, r.Rule)
}

// unseenText says what a rule is made from that no request led to.
func unseenText(r policy.SuggestedRule) string {
	text := "# From connections without a request alone: this lets one be made and little more.\n"
	if r.Lookup() {
		text = "# From lookups alone: this lets the name be looked up and little more.\n"
	}
	if r.Requests > 0 {
		text += fmt.Sprintf("# Requests were seen too, %s; why they are not in it is said of what is left out.\n", times(r.Requests))
	}
	return text
}

// RuleText returns a rule as a block of HCL.
func RuleText(r policy.Rule) string {
	var b strings.Builder
	writeRule(&b, r)
	return string(hclwrite.Format([]byte(b.String())))
}

func writeRule(b *strings.Builder, r policy.Rule) {
	target := r.Host
	switch r.Action {
	case policy.ActionTCP:
		if strings.Contains(target, ":") {
			target = "[" + target + "]"
		}
		if len(r.Ports) > 0 {
			target = fmt.Sprintf("%s:%d", target, r.Ports[0])
		}
	case policy.ActionGit:
		target += "/" + r.Repo
	}
	lines := ruleLines(r)
	fmt.Fprintf(b, "%s %s {", r.Action, hclString(target))
	if len(lines) == 1 && !strings.Contains(lines[0], "\n") {
		fmt.Fprintf(b, " %s }\n", lines[0])
		return
	}
	if len(lines) > 0 {
		b.WriteByte('\n')
	}
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	b.WriteString("}\n")
}

// ruleLines are the attributes of a rule, one a line.
func ruleLines(r policy.Rule) []string {
	var out []string
	add := func(name, value string) { out = append(out, name+" = "+value) }
	if len(r.Ports) > 0 && r.Action != policy.ActionTCP {
		ports := make([]string, len(r.Ports))
		for i, p := range r.Ports {
			ports[i] = fmt.Sprint(p)
		}
		add("ports", "["+strings.Join(ports, ", ")+"]")
	}
	if len(r.Schemes) > 0 && r.Action == policy.ActionAllow {
		names := make([]string, len(r.Schemes))
		for i, s := range r.Schemes {
			names[i] = map[policy.Scheme]string{policy.HTTPS: "https", policy.HTTP: "http"}[s]
		}
		add("schemes", hclList(names))
	}
	if r.Access != "" {
		add("access", hclString(r.Access))
	}
	if len(r.Methods) > 0 {
		add("methods", hclList(r.Methods))
	}
	if len(r.Paths) > 0 {
		add("paths", hclList(r.Paths))
	}
	if r.EncodedSlash {
		add("encoded_slash", "true")
	}
	if r.NoWebSocket {
		add("websocket", "false")
	}
	return out
}

// hclList writes a list on one line, or on several when it is long.
func hclList(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = hclString(s)
	}
	if line := strings.Join(quoted, ", "); len(line) < 80 {
		return "[" + line + "]"
	}
	return "[\n" + strings.Join(quoted, ",\n") + ",\n]"
}

// hclString quotes a text, so that nothing in it is a template.
func hclString(s string) string {
	s = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(s)
	s = strings.ReplaceAll(s, "${", "$${")
	return `"` + strings.ReplaceAll(s, "%{", "%%{") + `"`
}

// maxLeft is how many attempts are listed that no rule is suggested for.
const maxLeft = 40

func writeLeft(b *strings.Builder, s policy.Suggestion) {
	if len(s.Left) == 0 {
		return
	}
	left := slices.Clone(s.Left)
	slices.SortStableFunc(left, func(a, b policy.LeftOut) int { return strings.Compare(a.Why, b.Why) })
	if len(s.Rules) > 0 {
		b.WriteByte('\n')
	}
	fmt.Fprintf(b, "# Left out for sandbox %s:\n", visible(quote(s.Sandbox)))
	last := ""
	for i, l := range left {
		if i == maxLeft {
			fmt.Fprintf(b, "#   and %d more\n", len(left)-maxLeft)
			break
		}
		if l.Why != last {
			fmt.Fprintf(b, "# %s:\n", visible(clip(l.Why, 300)))
			last = l.Why
		}
		fmt.Fprintf(b, "#   %s %s %s\n", visible(what(l.Blocked)), times(l.Count), l.Reason)
	}
}

// what names an attempt on one line.
func what(x policy.Blocked) string {
	target := x.Host
	if x.Port != 0 && x.Port != 443 {
		target = fmt.Sprintf("%s:%d", target, x.Port)
	}
	if x.Method == "" {
		return target
	}
	return clip(x.Method+" "+target+x.Path, 160)
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
