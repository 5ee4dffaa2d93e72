package policy

import (
	"encoding/binary"
	"maps"
	"slices"
)

// shape is what rules have in common that differ by nothing but their host and
// their place. A large policy has many rules and few shapes, so that a rule is
// little memory, and little for the collector of garbage to look at.
type shape struct {
	like    Rule // normal form of what was written, without host and place, see shapeOf
	ends    endpointSet
	methods methodSet
	paths   []pathGlob // empty: any path
	git     *gitRepo   // ActionGit only; stands for methods and paths
	conds   []condition
	body    *bodyCondition // nil: it is not looked at
	inject  []string       // sorted
	owner   owner
}

// shapeOf returns a rule without its host and its place in the file. What it
// refers to is placed from there.
func shapeOf(r *Rule) Rule {
	s := *r
	s.Host, s.Pos = "", Pos{File: r.Pos.File}
	s.Inject = moveRefs(r.Inject, -r.Pos.Line, -r.Pos.Column)
	return s
}

// placed returns the rule of a shape that stands there. It shares with the
// shape what neither may change.
func (r *Rule) placed(host string, line, column int) Rule {
	out := *r
	out.Host, out.Pos.Line, out.Pos.Column = host, line, column
	out.Inject = moveRefs(r.Inject, line, column)
	return out
}

func moveRefs(refs []Ref, lines, columns int) []Ref {
	if len(refs) == 0 {
		return refs
	}
	out := slices.Clone(refs)
	for i := range out {
		out[i].Pos.Line += lines
		out[i].Pos.Column += columns
	}
	return out
}

// appendShape appends what is the same of two rules only if they are of one
// shape: every field but the host and the place, in one order. It keeps apart
// what is empty from what is not there.
func (r *Rule) appendShape(b []byte) []byte {
	b = append(b, byte(r.Action), byte(r.Foreign), bit(r.NoWebSocket)|bit(r.EncodedSlash)<<1|bit(r.OnLeakPass)<<2|bit(r.NoScrub)<<3)
	for _, s := range [...]string{r.Pos.File, r.Owner, r.Repo, r.Access, r.Ticket, r.Reason, r.Alert} {
		b = appendText(b, s)
	}
	b = appendList(b, r.Ports, func(b []byte, port uint16) []byte { return binary.BigEndian.AppendUint16(b, port) })
	b = appendList(b, r.Schemes, func(b []byte, s Scheme) []byte { return append(b, byte(s)) })
	b = appendList(b, r.Methods, appendText)
	b = appendList(b, r.Paths, appendText)
	b = appendConditions(b, r.Query)
	b = appendConditions(b, r.Headers)
	b = r.appendBody(b)
	b = append(b, bit(r.Addresses == nil))
	b = binary.AppendUvarint(b, uint64(len(r.Addresses)))
	for _, p := range r.Addresses {
		b = appendText(b, p.Addr().Zone())
		b = append(b, byte(p.Addr().BitLen()), byte(p.Bits()))
		a := p.Addr().As16()
		b = append(b, a[:]...)
	}
	b = appendList(b, r.Inject, func(b []byte, ref Ref) []byte {
		return appendNumbers(appendText(appendText(b, ref.Name), ref.Pos.File), int64(ref.Pos.Line-r.Pos.Line), int64(ref.Pos.Column-r.Pos.Column))
	})
	b = append(b, bit(r.Expires.IsZero()))
	if !r.Expires.IsZero() {
		b = appendText(appendNumbers(b, r.Expires.Unix(), int64(r.Expires.Nanosecond())), r.Expires.Location().String())
	}
	l := r.Limits
	return appendNumbers(b, l.RequestsPerMinute, l.BytesSentPerDay, l.BytesReceivedPerDay, l.Connections, l.MaxRequest, l.MaxResponse)
}

func (r *Rule) appendBody(b []byte) []byte {
	b = append(b, bit(r.GraphQL != nil)|bit(r.JSONRPC != nil)<<1)
	if g := r.GraphQL; g != nil {
		b = appendNumbers(appendList(appendList(b, g.Operations, appendText), g.Fields, appendText), g.Max)
	}
	if j := r.JSONRPC; j != nil {
		b = appendNumbers(append(appendList(appendList(b, j.Methods, appendText), j.Tools, appendText), bit(j.Responses)), j.Max)
	}
	return b
}

func appendConditions(b []byte, m map[string][]string) []byte {
	b = append(b, bit(m == nil))
	b = binary.AppendUvarint(b, uint64(len(m)))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		b = appendList(appendText(b, name), m[name], appendText)
	}
	return b
}

func appendList[T any](b []byte, list []T, one func([]byte, T) []byte) []byte {
	b = append(b, bit(list == nil))
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, x := range list {
		b = one(b, x)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendNumbers(b []byte, list ...int64) []byte {
	for _, n := range list {
		b = binary.AppendVarint(b, n)
	}
	return b
}

func bit(is bool) byte {
	if is {
		return 1
	}
	return 0
}
