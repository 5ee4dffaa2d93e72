package policy

import "strconv"

// denialMessage is the sentence for the sandbox. It says what was refused,
// never what else is allowed, and repeats of the request only what has been
// checked.
func denialMessage(reason Reason, q *query) string {
	const by = " by this sandbox's policy"
	host := "host " + q.Host
	switch reason {
	case HostNotAllowed:
		return host + " is not allowed" + by
	case PortNotAllowed:
		return "port " + strconv.Itoa(int(q.Port)) + " of " + host + " is not allowed" + by
	case SchemeNotAllowed:
		return spoken(q.Scheme) + " to port " + strconv.Itoa(int(q.Port)) + " of " + host + " is not allowed" + by
	case MethodNotAllowed:
		return methodText(q.Method) + " is not allowed on " + host + by
	case PathNotAllowed:
		return "this path of " + host + " is not allowed" + by
	case AmbiguousPath:
		return "this path of " + host + " is refused because it can be read in more than one way (dot segments, encoded dots, slashes or backslashes, //, control characters, broken or double encoding)"
	case QueryNotAllowed:
		return "this query is not allowed on this path of " + host + by
	case GitPushNotAllowed:
		return "pushing to this repository of " + host + " is not allowed" + by
	case UpgradeNotAllowed:
		return "WebSocket is not allowed on this path of " + host + by
	case RuleExpired:
		return "the permission for " + host + " has expired"
	}
	return "no rule of this sandbox's policy allows this request to " + host
}

// deniedMessage is the sentence for what a deny rule matched, with the words
// of whoever wrote it.
func deniedMessage(q *query, r *Rule) string {
	host := "host " + q.Host
	what := host + " is denied"
	switch {
	case len(r.Paths) > 0 || len(r.Methods) > 0 || r.Access != "":
		what = "this request to " + host + " is denied"
	case len(r.Ports) > 0 && q.Stage != StageName:
		what = "port " + strconv.Itoa(int(q.Port)) + " of " + host + " is denied"
	case len(r.Schemes) > 0 && q.Stage != StageName:
		what = spoken(q.Scheme) + " to " + host + " is denied"
	}
	what += " by policy"
	if r.Reason != "" {
		what += ": " + r.Reason
	}
	return what
}

func spoken(s Scheme) string {
	if s == SchemeAny {
		return "this protocol"
	}
	return schemeName(s)
}

// methodText repeats a method only when it is a token of a usual length.
func methodText(method string) string {
	if isToken(method) && len(method) <= 24 {
		return "method " + method
	}
	return "this method"
}
