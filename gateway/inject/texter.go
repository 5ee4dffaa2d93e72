package inject

import (
	"bytes"
	"slices"

	"sallyport/policy"
	"sallyport/secrets"
)

// holdBack is how much of a text that goes on is not judged yet: the longest
// placeholder in braces, and the byte by which it ends, in bytes.
const holdBack = secrets.MaxPlaceholder + 4

// maxSwaps is how many placeholders of one body are replaced, so that a body
// of nothing else does not grow out of all proportion.
const maxSwaps = 100

// texter replaces placeholders in texts that come in pieces, such as the
// value of a field of a body. The text is judged decoded; what goes out are
// the bytes as they came, and values in the encoding of the place.
type texter struct {
	plan   *Plan
	scan   *scan
	values map[string]secrets.Value
	media  string
	swaps  int // so far

	where  place
	encode func(string) string
	always string // why all of the body may be read otherwise; "": it may not
	doubt  string // why the text may be, from a byte on
	from   int    // that byte, of decoded

	raw     []byte // as it came
	decoded []byte
	ends    []int // of each byte of decoded: where it ends in raw
}

// begin starts a text that stands in a place.
func (t *texter) begin(where place, encode func(string) string) {
	t.where, t.encode = where, encode
	t.raw, t.decoded, t.ends = t.raw[:0], t.decoded[:0], t.ends[:0]
	t.doubt, t.from = t.always, 0
}

// unsure notes why what stands behind the first n bytes that are held may be
// read as another field.
func (t *texter) unsure(why string, n int) {
	if t.doubt == "" {
		t.doubt, t.from = why, n
	}
}

// add appends the bytes of one unit of the encoding, and what they decode to.
func (t *texter) add(raw []byte, decoded ...byte) {
	t.raw = append(t.raw, raw...)
	for _, b := range decoded {
		t.decoded, t.ends = append(t.decoded, b), append(t.ends, len(t.raw))
	}
}

// plain appends bytes that stand for themselves.
func (t *texter) plain(raw []byte) {
	for i := range raw {
		t.ends = append(t.ends, len(t.raw)+i+1)
	}
	t.raw, t.decoded = append(t.raw, raw...), append(t.decoded, raw...)
}

// full says whether so much has come that a part can be judged.
func (t *texter) full() bool { return len(t.decoded) >= bodyChunk }

// flush judges the text and appends what goes out. Unless the text is over,
// its last bytes are kept: a placeholder may end in what is still to come.
func (t *texter) flush(out *bytes.Buffer, over bool) error {
	text := string(t.decoded)
	limit := len(text)
	if !over {
		limit -= holdBack
	}
	done := 0 // of decoded
	for from := 0; from < limit; {
		h, ok := t.scan.t.find.next(text, from, t.scan.own)
		if !ok || h.start >= limit {
			break
		}
		from = h.end
		where := t.where
		if h.start >= t.from {
			where.doubt = t.doubt
		}
		f := t.scan.judge(h, where, text)
		if f.refused {
			return &Refusal{Reason: t.scan.reason, Message: t.scan.message, Uses: t.scan.uses.sorted()}
		}
		if !f.swapped || !slices.Contains(t.plan.secrets, h.cred.name) {
			continue
		}
		if t.swaps++; t.swaps > maxSwaps {
			return &Refusal{Reason: policy.PlaceholderPlace, Message: "the body holds too many placeholders", Uses: t.scan.uses.sorted()}
		}
		v, err := reveal(h.cred.name, t.values)
		if err != nil {
			return err
		}
		out.Write(t.raw[t.end(done):t.end(h.start)])
		out.WriteString(t.encode(v))
		done = h.end
	}
	keep := max(limit, done, 0)
	if over {
		out.Write(t.raw[t.end(done):])
		t.raw, t.decoded, t.ends = t.raw[:0], t.decoded[:0], t.ends[:0]
		return nil
	}
	cut := t.end(keep)
	out.Write(t.raw[t.end(done):cut])
	t.raw = append(t.raw[:0], t.raw[cut:]...)
	t.decoded = append(t.decoded[:0], t.decoded[keep:]...)
	t.ends = append(t.ends[:0], t.ends[keep:]...)
	t.from = max(t.from-keep, 0)
	for i := range t.ends {
		t.ends[i] -= cut
	}
	return nil
}

// end returns where in raw the first n bytes of decoded end.
func (t *texter) end(n int) int {
	if n == 0 {
		return 0
	}
	return t.ends[n-1]
}

// whole judges a short text that is no place, such as the name of a field.
func (t *texter) whole(text string) error {
	s := t.scan
	if s.text(place{kind: inBody, fixed: true}, text).refused {
		return &Refusal{Reason: s.reason, Message: s.message, Uses: s.uses.sorted()}
	}
	return nil
}

// verbatim is the encoding of a place that has none.
func verbatim(s string) string { return s }
