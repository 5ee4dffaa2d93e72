package main

import (
	"fmt"
	"strconv"
	"strings"

	"sallyport/policy"
)

func portText(p policy.PortSet) string {
	var words []string
	list := p.List
	if p.Other {
		list = p.Except
	}
	for _, n := range list {
		words = append(words, strconv.Itoa(int(n)))
	}
	switch {
	case !p.Other:
		return strings.Join(words, ",")
	case len(words) == 0:
		return "any"
	}
	return "any except " + strings.Join(words, ",")
}

func schemeText(c policy.Change) string {
	switch {
	case c.What == policy.CapRelay || c.Scheme == policy.TCP:
		return "tcp"
	case c.Scheme == policy.HTTPS:
		return "https"
	case c.Scheme == policy.HTTP:
		return "http"
	}
	return "https or http"
}

func methodText(m policy.MethodSet) string {
	switch {
	case !m.Other:
		return strings.Join(m.List, ",")
	case len(m.Except) == 0:
		return "any method"
	}
	return "any method except " + strings.Join(m.Except, ",")
}

// who is whom a change is about.
func (c jsonChange) who() string {
	switch {
	case c.Org:
		return "org (the ceiling)"
	case len(c.Sandboxes) == 0:
		return "secrets"
	}
	const most = 8
	var names []string
	for _, n := range c.Sandboxes[:min(most, len(c.Sandboxes))] {
		names = append(names, strconv.Quote(n))
	}
	if n := len(c.Sandboxes); n > most {
		names = append(names, fmt.Sprintf("%d others", n-most))
	}
	if len(c.Sandboxes) == 1 {
		return "sandbox " + names[0]
	}
	return "sandboxes " + strings.Join(names, ", ")
}

// line is a change on one line.
func (c jsonChange) line() string {
	mark := "        "
	if c.Widening {
		mark = "  WIDENS"
	}
	sign := map[string]string{"gains": "+", "loses": "-", "changes": "~"}[c.Change]
	return fmt.Sprintf("%s %s %s", mark, sign, c.Text)
}

// sentence is a change in words, with where it is written.
func (c jsonChange) sentence() string {
	words := []string{c.subject()}
	if len(c.Hosts) > 0 {
		words = append(words, c.where())
	}
	if len(c.Paths) > 0 {
		words = append(words, strings.Join(c.Paths, " "))
	}
	if c.With != "" {
		words = append(words, "with "+c.With)
	}
	if len(c.Without) > 0 {
		words = append(words, "without "+strings.Join(c.Without, " or "))
	}
	if c.From != "" {
		words = append(words, "from "+c.From)
	}
	if c.Until != "" {
		words = append(words, "until "+c.Until)
	}
	const most = 4
	var places []string
	for _, r := range c.Rules[:min(most, len(c.Rules))] {
		if r.File != "" {
			places = append(places, fmt.Sprintf("%s:%d", r.File, r.Line))
		}
	}
	if n := len(c.Rules); n > most {
		places = append(places, fmt.Sprintf("%d more", n-most))
	}
	if len(places) > 0 {
		words = append(words, "["+strings.Join(places, " ")+"]")
	}
	return strings.Join(words, "  ")
}

// subject is what is gained or lost.
func (c jsonChange) subject() string {
	on := ""
	if c.Methods != "" {
		on = " with " + c.Methods
	}
	switch policy.Capability(c.What) {
	case policy.CapAccess:
		if c.Git != "" {
			return c.gitSubject()
		}
		return c.Methods
	case policy.CapRelay:
		return c.Detail + ", relayed unopened"
	case policy.CapSecret:
		return "secret " + c.Detail + on
	case policy.CapAddress:
		return "addresses in " + c.Detail + on
	case policy.CapPublic:
		return "public addresses" + on
	case policy.CapMetadata:
		return "cloud metadata addresses" + on
	case policy.CapForeign:
		if c.Detail == "sent" {
			return "the sandbox's own credentials are sent" + on
		}
		return "the sandbox's own credentials are dropped and the request sent" + on
	case policy.CapLeak:
		return "the text of placeholders is sent" + on
	case policy.CapReflect:
		return "values in answers are not masked" + on
	case policy.CapLimits:
		return "limits: " + c.Detail + on
	}
	return c.Detail
}

func (c jsonChange) gitSubject() string {
	switch {
	case c.Read && c.Push:
		return "git clone and push of " + c.Git
	case c.Push:
		return "git push to " + c.Git
	}
	return "git clone of " + c.Git
}

// where is hosts, scheme and ports, as short as they can be said.
func (c jsonChange) where() string {
	const most = 12
	hosts := c.Hosts[:min(most, len(c.Hosts))]
	text := strings.Join(hosts, ", ")
	if n := len(c.Hosts); n > most {
		text += fmt.Sprintf(" and %d others", n-most)
	}
	if n := len(c.NotHosts); n > 0 {
		text += " except " + strings.Join(c.NotHosts[:min(most, n)], ", ")
		if n > most {
			text += fmt.Sprintf(" and %d others", n-most)
		}
	}
	usual := c.Scheme == "https" && c.Ports == "443" || c.Scheme == "http" && c.Ports == "80"
	switch {
	case usual && len(c.Hosts) == 1 && len(c.NotHosts) == 0:
		return c.Scheme + "://" + text
	case usual:
		return c.Scheme + " to " + text
	case len(c.Hosts) == 1 && len(c.NotHosts) == 0 && !strings.ContainsAny(c.Ports, " ,"):
		return strings.ReplaceAll(c.Scheme, " or ", "/") + "://" + text + ":" + strings.Replace(c.Ports, "any", "*", 1)
	}
	return c.Scheme + " to " + text + " port " + c.Ports
}
