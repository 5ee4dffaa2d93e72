package audit

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// maxRecord is the most that a line may be long, in bytes without its newline.
// A record that would be longer is written again with a quarter of every cap.
const maxRecord = 16 << 10

// Caps of attacker-controlled text, in encoded bytes, and of lists, in
// elements.
const (
	capWord    = 256  // names, enums, addresses, versions
	capHost    = 1024 // host, SNI, authority, query name
	capPath    = 4096
	capText    = 1024 // message, user agent, error detail, working directory
	capElement = 256  // one element of a list
	capList    = 32
)

// encoder appends the members of one event. The caps of the constants above
// are halved tight times.
type encoder struct {
	b     []byte
	tight uint8
}

// appendHead appends the opening brace and the members that tie a record to
// its place in the log. They always come first and in this order, so that a
// verifier can read them without a JSON parser.
func appendHead(dst []byte, e *Event) []byte {
	return appendPlace(dst, e.Time, e.ID, e.Seq, e.Instance, e.Prev)
}

// appendPlace is appendHead of an event that is not there.
func appendPlace[T string | []byte](dst []byte, at time.Time, id T, seq uint64, instance string, prev T) []byte {
	dst = append(dst, `{"schema":"`+Schema+`","time":"`...)
	dst = appendTime(dst, at)
	dst = append(dst, `","id":"`...)
	dst = append(dst, id...)
	dst = append(dst, `","seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, `,"instance":"`...)
	dst = append(dst, instance...)
	dst = append(dst, `","prev":"`...)
	dst = append(dst, prev...)
	return append(dst, '"')
}

// appendBody appends the members after the head and the closing brace, without
// a newline. Absent is null: a zero value is left out, but for a sandbox
// without a name (name null), and for the uid of a command that starts, the
// counts of bytes and the members that make no sense alone.
func appendBody(dst []byte, e *Event) []byte {
	start := len(dst)
	w := encoder{b: dst}
	w.event(e)
	if len(w.b)-start > maxRecord-headRoom {
		w = encoder{b: w.b[:start], tight: 2}
		w.event(e)
	}
	return w.b
}

// headRoom is more than appendHead ever appends.
const headRoom = 320

// event appends every member of the body. It begins after a head, so the first
// one takes a comma.
func (w *encoder) event(e *Event) {
	w.b = append(w.b, ',')
	w.b = append(w.b, `"kind":`...)
	w.b = appendString(w.b, string(e.Kind), capWord)
	w.word(`"phase":`, string(e.Phase))
	w.word(`"verdict":`, e.Verdict)
	if e.Would != nil {
		w.open(`"would":{`)
		w.word(`"verdict":`, e.Would.Verdict)
		w.word(`"reason":`, e.Would.Reason)
		w.close()
	}
	w.word(`"reason":`, e.Reason)
	w.text(`"message":`, e.Message, capText)
	w.word(`"severity":`, string(e.Severity))
	w.sandbox(e.Sandbox)
	w.addr(`"src":{`, e.Src)
	w.addr(`"dst":{`, e.Dst)
	w.word(`"proto":`, e.Proto)
	w.text(`"host":`, e.Host, capHost)
	w.int(`"port":`, int64(e.Port))
	w.text(`"sni":`, e.SNI, capHost)
	w.text(`"authority":`, e.Authority, capHost)
	w.protocols(e)
	w.rule(e.Rule)
	w.policy(e.Policy)
	w.secrets(e.Secrets)
	w.bytes(e.Bytes)
	if e.Error != nil {
		w.open(`"error":{`)
		w.word(`"class":`, e.Error.Class)
		w.text(`"detail":`, e.Error.Detail, capText)
		w.close()
	}
	w.run(e.Run)
	w.note(e.Note)
	w.word(`"alert":`, e.Alert)
	w.float(`"duration_ms":`, e.DurationMS)
	w.float(`"gateway_ms":`, e.GatewayMS)
	w.word(`"conn":`, e.Conn)
	w.word(`"req":`, e.Req)
	w.uint(`"count":`, e.Count)
	w.time(`"first_seen":`, e.FirstSeen)
	w.time(`"last_seen":`, e.LastSeen)
	w.close()
}

// key appends the name of a member, after a comma unless it is the first of
// its object. No value ends in an opening brace.
func (w *encoder) key(name string) {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(w.b, name...)
}

func (w *encoder) open(name string) { w.key(name) }

func (w *encoder) close() { w.b = append(w.b, '}') }

func (w *encoder) word(name, s string) { w.text(name, s, capWord) }

func (w *encoder) text(name, s string, limit int) {
	if s == "" {
		return
	}
	b := w.b
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	w.b = appendString(append(b, name...), s, limit>>w.tight)
}

func (w *encoder) int(name string, v int64) {
	if v != 0 {
		w.key(name)
		w.b = strconv.AppendInt(w.b, v, 10)
	}
}

func (w *encoder) uint(name string, v uint64) {
	if v != 0 {
		w.key(name)
		w.b = strconv.AppendUint(w.b, v, 10)
	}
}

func (w *encoder) bool(name string, v bool) {
	if v {
		w.key(name)
		w.b = append(w.b, "true"...)
	}
}

// float appends milliseconds to the microsecond. A duration is never negative
// (AUD-10), and what is not a number is absent.
func (w *encoder) float(name string, v float64) {
	if v > 0 && v <= math.MaxInt64/1000 {
		us := int64(v*1000 + 0.5)
		w.key(name)
		w.b = strconv.AppendInt(w.b, us/1000, 10)
		if frac := us % 1000; frac != 0 {
			w.b = append(w.b, '.', byte('0'+frac/100), byte('0'+frac/10%10), byte('0'+frac%10))
		}
	}
}

func (w *encoder) time(name string, t *time.Time) {
	if t != nil {
		w.key(name)
		w.b = append(w.b, '"')
		w.b = appendTime(w.b, *t)
		w.b = append(w.b, '"')
	}
}

// list appends an array of strings. What is beyond the cap is counted in a
// last element.
func (w *encoder) list(name string, list []string) {
	if len(list) == 0 {
		return
	}
	w.key(name)
	w.b = append(w.b, '[')
	limit := capList >> w.tight
	for i, s := range list {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		if i == limit {
			w.b = appendString(w.b, restMark(len(list)), capWord)
			break
		}
		w.b = appendString(w.b, s, capElement>>w.tight)
	}
	w.b = append(w.b, ']')
}

// restMark is the last element of a list that was cut.
func restMark(n int) string { return "...[" + strconv.Itoa(n) + " in all]" }

// stringMap appends an object of strings in the order of its keys.
func (w *encoder) stringMap(name string, m map[string]string) {
	if len(m) == 0 {
		return
	}
	w.key(name)
	w.b = append(w.b, '{')
	if len(m) == 1 {
		for k, v := range m {
			w.pair(k, v)
		}
		w.b = append(w.b, '}')
		return
	}
	var few [capList]string
	keys := few[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for i, k := range keys {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		if i == capList>>1>>w.tight {
			w.b = appendString(w.b, restMark(len(keys)), capWord)
			w.b = append(w.b, `:""`...)
			break
		}
		w.pair(k, m[k])
	}
	w.b = append(w.b, '}')
}

// pair appends one member of an object of strings.
func (w *encoder) pair(k, v string) {
	w.b = appendString(w.b, k, capElement>>w.tight)
	w.b = append(w.b, ':')
	w.b = appendString(w.b, v, capElement>>w.tight)
}

// appendTime appends t in UTC as RFC 3339 with nine digits of the second.
func appendTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	year = min(max(year, 0), 9999)
	dst = appendDigits(dst, uint(year), 4)
	dst = append(dst, '-')
	dst = appendDigits(dst, uint(month), 2)
	dst = append(dst, '-')
	dst = appendDigits(dst, uint(day), 2)
	dst = append(dst, 'T')
	dst = appendDigits(dst, uint(hour), 2)
	dst = append(dst, ':')
	dst = appendDigits(dst, uint(minute), 2)
	dst = append(dst, ':')
	dst = appendDigits(dst, uint(second), 2)
	dst = append(dst, '.')
	dst = appendDigits(dst, uint(t.Nanosecond()), 9)
	return append(dst, 'Z')
}

// appendDigits appends v in n digits, with zeros before it.
func appendDigits(dst []byte, v uint, n int) []byte {
	var b [9]byte
	for i := n - 1; i >= 0; i-- {
		b[i] = byte('0' + v%10)
		v /= 10
	}
	return append(dst, b[:n]...)
}
