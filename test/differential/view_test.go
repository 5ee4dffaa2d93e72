package differential

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"sallyport/audit"
)

// view is one sample on one lane, as everybody saw it.
type view struct {
	lane                  string
	host                  string
	raw                   []byte
	plain                 []request // what was meant
	whole                 bool      // there is a whole head
	least, most           int       // requests of HTTP/2 that must be on record; most 0 is HTTP/1.1
	allowed, denied, ends []*audit.Event
	refused               int // connections and handshakes
	forwarded, understood []request
}

func (w *lane) view(host string, events []*audit.Event) *view {
	v := &view{lane: w.name, host: host, forwarded: w.forwarded[host], understood: w.understood[host]}
	for _, e := range events {
		switch {
		case e.Port != w.plain.port && e.Port != w.tls.port:
		case e.Kind != audit.KindHTTP && e.Kind != audit.KindWS:
			if e.Verdict == "deny" {
				v.refused++
			}
		case e.Phase == audit.PhaseEnd:
			v.ends = append(v.ends, e)
		case e.Phase != audit.PhaseDecision:
		case e.Verdict == "allow":
			v.allowed = append(v.allowed, e)
		default:
			v.denied = append(v.denied, e)
		}
	}
	return v
}

// check holds the views together.
func (v *view) check(t *testing.T) {
	t.Helper()
	var wrong []string
	fault := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	complete := slices.DeleteFunc(slices.Clone(v.forwarded), func(r request) bool { return r.partial })
	if v.whole && len(v.allowed)+len(v.denied)+v.refused == 0 {
		fault("a request was neither allowed nor refused on the record")
	}
	if n := recordsOf(v.allowed) + recordsOf(v.denied); v.most > 0 && (n < v.least || n > v.most) {
		fault("%d requests are on record, want %d to %d", n, v.least, v.most)
	}
	v.checkDecisions(complete, fault)
	v.checkOrigin(complete, fault)
	if v.plain != nil {
		if len(v.denied) > 0 {
			fault("an honest request was denied: %s %s", v.denied[0].Reason, v.denied[0].Message)
		}
		if d := difference(v.plain, v.settled()); d != "" && !v.endedEarly() {
			fault("sent and forwarded differ: %s", d)
		}
	}
	if len(wrong) > 0 {
		t.Errorf("%s %s\n%q\n%s\nallowed %s\ndenied %s\nends %s\nforwarded %v\nunderstood %v", v.lane, v.host, v.raw, strings.Join(wrong, "\n"),
			decisions(v.allowed), decisions(v.denied), ends(v.ends), v.forwarded, v.understood)
	}
}

// recordsOf counts the requests that events are about.
func recordsOf(es []*audit.Event) (n int) {
	for _, e := range es {
		n += int(max(e.Count, 1))
	}
	return n
}

// counted says whether the end of a decision tells of as many bytes as the
// request has, if it was whole.
func (v *view) counted(e *audit.Event, r request) bool {
	return !slices.ContainsFunc(v.ends, func(end *audit.Event) bool {
		return end.Req == e.Req && !r.partial && end.Error == nil && end.Bytes.Sent != int64(len(r.Body))
	})
}

// settled is what was forwarded. A request that the origin refused before it
// had it whole counts as the one that was meant.
func (v *view) settled() []request {
	out := slices.Clone(v.forwarded)
	for i, r := range out {
		if !r.partial || !slices.ContainsFunc(v.ends, func(e *audit.Event) bool { return e.HTTP.Status == 400 && e.HTTP.Method == r.Method }) {
			continue
		}
		for _, p := range v.plain {
			if p.Method == r.Method && p.Target == r.Target && strings.HasPrefix(p.Body, r.Body) {
				out[i] = p
				break
			}
		}
	}
	return out
}

// endedEarly says whether the origin refused a request before it had it whole.
// The connection ends there, and what came behind it is not served.
func (v *view) endedEarly() bool {
	return slices.ContainsFunc(v.forwarded, func(r request) bool { return r.partial }) &&
		slices.ContainsFunc(v.ends, func(e *audit.Event) bool { return e.HTTP.Status == 400 })
}

// checkDecisions: what was forwarded was decided on, and what was decided on
// was forwarded unless its end says why not.
func (v *view) checkDecisions(complete []request, fault func(string, ...any)) {
	left := slices.Clone(v.allowed)
	for _, r := range v.forwarded {
		path, query, _ := strings.Cut(r.Target, "?")
		same := func(e *audit.Event) bool {
			return e.HTTP.Method == r.Method && e.HTTP.Path == recorded(path) && cmp.Or(e.Authority, e.Host) == r.Host && slices.Equal(e.HTTP.QueryKeys, keys(query))
		}
		i := slices.IndexFunc(left, func(e *audit.Event) bool { return same(e) && v.counted(e, r) })
		if i < 0 {
			if i = slices.IndexFunc(left, same); i < 0 {
				fault("forwarded without a decision: %v", r)
				continue
			}
			fault("another length of the body is on the record: %v", r)
		}
		left = slices.Delete(left, i, i+1)
	}
	for _, e := range left {
		ended := slices.ContainsFunc(v.ends, func(end *audit.Event) bool { return end.Req == e.Req && (end.Error != nil || end.Reason != "") })
		if !ended {
			fault("allowed, not forwarded, and no word why: %s %s", e.HTTP.Method, e.HTTP.Path)
		}
	}
	if len(v.allowed) != len(v.ends) {
		fault("%d allowed requests have %d ends", len(v.allowed), len(v.ends))
	}
}

// recorded is how the record writes what is no UTF-8.
func recorded(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[i])
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// keys are the names in a query, as the record has them.
func keys(query string) []string {
	var out []string
	for part := range strings.SplitSeq(query, "&") {
		key, _, _ := strings.Cut(part, "=")
		if k, err := url.QueryUnescape(key); err == nil {
			key = k
		}
		if key = recorded(key); key != "" && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	return out
}

// checkOrigin: the origin understood what was forwarded, or refused it.
func (v *view) checkOrigin(complete []request, fault func(string, ...any)) {
	left := slices.Clone(complete)
	for _, u := range v.understood {
		i := slices.IndexFunc(left, func(r request) bool { return r == u })
		switch {
		case u.partial || u.status != 0:
			continue
		case i < 0:
			fault("the origin understood what was not forwarded: %v", u)
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	for _, r := range left {
		// Without one understanding there is no other.
		refused := slices.ContainsFunc(v.understood, func(u request) bool {
			return u.status != 0 && (u.Method == r.Method && u.Target == r.Target || u.Method == "")
		}) || slices.ContainsFunc(v.ends, func(e *audit.Event) bool {
			return (e.HTTP.Status >= 400 || e.Error != nil) && e.HTTP.Method == r.Method
		})
		if !refused {
			fault("the origin did not understand: %v", r)
		}
	}
	for _, u := range v.understood {
		if u.partial && u.Method != "" && !slices.ContainsFunc(v.forwarded, func(r request) bool {
			return r.Method == u.Method && r.Target == u.Target && (r.partial || u.status != 0)
		}) {
			fault("broken off at the origin alone: %v", u)
		}
	}
}

// difference is empty if both are the same requests. Those of one connection
// may go upstream on several.
func difference(want, got []request) string {
	if len(want) != len(got) {
		return fmt.Sprintf("%d and %d requests", len(want), len(got))
	}
	order := func(a, b request) int { return strings.Compare(a.String(), b.String()) }
	want, got = slices.SortedFunc(slices.Values(want), order), slices.SortedFunc(slices.Values(got), order)
	for i := range want {
		if want[i] != got[i] {
			return fmt.Sprintf("%v and %v", want[i], got[i])
		}
	}
	return ""
}

func decisions(es []*audit.Event) string {
	var out []string
	for _, e := range es {
		out = append(out, fmt.Sprintf("%s %s %q (%s %s)", e.Conn, e.HTTP.Method, e.HTTP.Path, e.Reason, e.Message))
	}
	return strings.Join(out, "; ")
}

func ends(es []*audit.Event) string {
	var out []string
	for _, e := range es {
		out = append(out, fmt.Sprintf("%s %q %d %s %+v", e.HTTP.Method, e.HTTP.Path, e.HTTP.Status, e.Reason, e.Error))
	}
	return strings.Join(out, "; ")
}
