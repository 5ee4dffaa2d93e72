package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// encode is one line of the log for e.
func encode(e *Event) []byte {
	return appendBody(appendHead(nil, e), e)
}

func fullEvent() *Event {
	e := hostileEvent("x")
	e.Schema, e.ID, e.Seq, e.Instance, e.Prev = Schema, NewID(), 7, NewID(), strings.Repeat("ab", 32)
	e.Kind, e.Phase = KindHTTP, PhaseDecision
	e.Run.UID, e.Run.CPUMS, e.Run.MaxRSS, e.Run.Bytes = 1000, 12, 1<<30, &Bytes{Sent: 1}
	exit := 0
	e.Run.Exit = &exit
	e.Note.Offset, e.Note.Bytes, e.Note.Segments, e.Note.Seq = 1, 2, 3, math.MaxUint64
	return e
}

func TestEncodeEqualsJSON(t *testing.T) {
	tests := map[string]*Event{
		"full":       fullEvent(),
		"denial":     denial("a.test"),
		"empty":      {},
		"no name":    {Kind: KindConn, Sandbox: &Sandbox{ID: "1"}},
		"no bytes":   {Bytes: &Bytes{}},
		"root":       {Run: &Run{Argv: []string{"id"}}},
		"zero parts": {DNS: &DNS{}, TLS: &TLS{}, HTTP: &HTTP{}, Upstream: &Upstream{}, Rule: &Rule{}, Policy: &Policy{}, Src: &Addr{}, Error: &Error{}, Run: &Run{}, Note: &Note{}, Secrets: []SecretUse{{}, {}}},
	}
	for name, e := range tests {
		t.Run(name, func(t *testing.T) {
			e.Schema, e.Seq, e.Time = Schema, max(e.Seq, 1), time.Unix(1700000000, 120).UTC()
			line := encode(e)
			got, err := DecodeLine(line)
			if err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			if diff := cmp.Diff(e, got); diff != "" {
				t.Error(diff)
			}
			std, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			viaStd := &Event{}
			if err := json.Unmarshal(std, viaStd); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(viaStd, got); diff != "" {
				t.Error("encoding/json decodes another event:", diff)
			}
		})
	}
}

// sanitise is what appendString means s to be read as.
func sanitise(s string) string {
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

// checkString encodes s and fails if what comes out is no capped, plain JSON
// string with the meaning of s.
func checkString(t *testing.T, s string, limit int) {
	t.Helper()
	b := appendString(nil, s, limit)
	if len(b)-2 > max(limit, cutMarkRoom) {
		t.Fatalf("%d bytes, limit %d", len(b)-2, limit)
	}
	for _, c := range b {
		if c < 0x20 || c > 0x7e {
			t.Fatalf("byte %#x in %q", c, b)
		}
	}
	var got string
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	want := sanitise(s)
	if kept, _, cut := strings.Cut(got, "...["); cut && got != want {
		if !strings.HasPrefix(want, kept) || !strings.Contains(got, fmt.Sprintf("...[%d bytes sha256:", len(s))) {
			t.Fatalf("cut to %q", got)
		}
		return
	}
	if got != want {
		t.Fatalf("%q reads as %q", want, got)
	}
}

func TestAUD01StringsAreEscaped(t *testing.T) {
	for _, s := range hostileText {
		checkString(t, s, 1024)
		checkString(t, s, 8)
		checkString(t, s+s, 64)
	}
}

func TestAUD01OneObjectPerLine(t *testing.T) {
	l := openTest(t, Options{})
	for _, s := range hostileText {
		if err := l.Write(hostileEvent(s)); err != nil {
			t.Fatal(err)
		}
	}
	all := lines(t, l.o.Dir)
	if len(all) != len(hostileText) {
		t.Fatalf("%d lines for %d events", len(all), len(hostileText))
	}
	checkChain(t, all)
	for _, line := range all {
		for i := range len(line) {
			if line[i] < 0x20 || line[i] > 0x7e {
				t.Fatalf("byte %#x in %q", line[i], line)
			}
		}
	}
}

func TestAUD08HugeFieldsAreCutAndTold(t *testing.T) {
	long := strings.Repeat("\xff\x00\u202eé", 300_000)
	e := hostileEvent(long)
	many := make([]string, 20_000)
	for i := range many {
		many[i] = long[:1000]
	}
	e.HTTP.QueryKeys, e.DNS.Answers, e.Run.Argv = many, many, many
	e.Secrets = make([]SecretUse, 20_000)
	e.Sandbox.Labels = map[string]string{}
	for i := range 1000 {
		e.Sandbox.Labels[fmt.Sprint(i, long[:900])] = long
		e.Secrets[i] = SecretUse{Name: long, Place: long, Action: long, Count: 1}
	}
	e.Schema, e.Seq = Schema, 1
	line := encode(e)
	if len(line) > maxRecord {
		t.Errorf("record of %d bytes, want at most %d", len(line), maxRecord)
	}
	got, err := DecodeLine(line)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got.HTTP.Path, fmt.Sprintf("[%d bytes sha256:", len(long))) || !strings.HasPrefix(got.HTTP.Path, `\xff`) {
		t.Errorf("path %q does not tell its length", got.HTTP.Path)
	}
	if n := len(got.HTTP.QueryKeys); n > capList+1 || got.HTTP.QueryKeys[n-1] != "...[20000 in all]" {
		t.Errorf("%d query keys, last %q", n, got.HTTP.QueryKeys[n-1])
	}
}

func TestAUD08InvalidBytesStayDifferent(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []string{"/\xff", "/\xfe", "/\ufffd", "/\xc3", "/é"} {
		line := string(appendString(nil, s, 100))
		if other, ok := seen[line]; ok {
			t.Errorf("%q and %q are both %s", s, other, line)
		}
		seen[line] = s
	}
}

func TestAUD02NoQueryNoBodyNoHeaderValues(t *testing.T) {
	e := &Event{Schema: Schema, Seq: 1, Kind: KindHTTP, HTTP: &HTTP{Path: "/p?token=S3CR3T#frag", QueryKeys: []string{"token"}}}
	line := string(encode(e))
	if strings.Contains(line, "S3CR3T") || strings.Contains(line, "frag") || !strings.Contains(line, `"path":"/p"`) {
		t.Errorf("line %s", line)
	}
	var all map[string]any
	if err := json.Unmarshal(encode(fullEvent()), &all); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"body", "query", "headers", "header", "value", "cookie", "authorization", "env", "environment", "fragment", "url"} {
		checkNoMember(t, all, name)
	}
}

func checkNoMember(t *testing.T, object map[string]any, name string) {
	t.Helper()
	for k, v := range object {
		if k == name {
			t.Errorf("there is a member %q", name)
		}
		if below, ok := v.(map[string]any); ok {
			checkNoMember(t, below, name)
		}
	}
}

func TestAUD10DurationsAreNeverNegative(t *testing.T) {
	for _, v := range []float64{-1, math.Inf(-1), math.NaN(), math.Inf(1), 0} {
		e := &Event{Schema: Schema, Seq: 1, DurationMS: v, GatewayMS: v}
		if line := encode(e); bytes.Contains(line, []byte("_ms")) {
			t.Errorf("%v is written: %s", v, line)
		}
	}
	for v, want := range map[float64]string{1: "1", 0.001: "0.001", 1.5: "1.500", 1234567.0125: "1234567.013", 0.0004: "0"} {
		e := &Event{Schema: Schema, Seq: 1, DurationMS: v}
		if line := string(encode(e)); !strings.Contains(line, `"duration_ms":`+want+"}") {
			t.Errorf("%v is not written as %s: %s", v, want, line)
		}
	}
}

func TestTimesAreUTCWithNanoseconds(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 8, time.FixedZone("x", 7200))
	if got, want := string(appendTime(nil, at)), "2026-03-04T03:06:07.000000008Z"; got != want {
		t.Errorf("time %s, want %s", got, want)
	}
	back, ok := parseStamp(appendTime(nil, at))
	if !ok || !back.Equal(at) {
		t.Errorf("read back as %v", back)
	}
}

func TestHeadIsRead(t *testing.T) {
	e := fullEvent()
	h, ok := parseHead(encode(e))
	if !ok || h.seq != e.Seq || !h.time.Equal(e.Time) || h.prev[0] != 0xab {
		t.Errorf("head %+v, %v", h, ok)
	}
}

func TestNewID(t *testing.T) {
	seen := map[string]bool{}
	before := NewID()
	time.Sleep(2 * time.Millisecond)
	for range 10_000 {
		id := NewID()
		if len(id) != 26 || id <= before[:10] || seen[id] || strings.Trim(id, crockford) != "" {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
}

// decision is an allowed request as the gateway records it.
func decision() *Event {
	return &Event{
		Schema: Schema, Time: time.Unix(1700000000, 1), ID: "01JB0000000000000000000000", Seq: 123456, Instance: "01JB0000000000000000000000", Prev: strings.Repeat("ab", 32),
		Kind: KindHTTP, Phase: PhaseDecision, Verdict: "allow", Reason: "rule_allow", Severity: Info,
		Sandbox: &Sandbox{Name: "ci", ID: "01JB0000000000000000000000", Labels: map[string]string{"job": "42"}},
		Src:     &Addr{IP: "10.77.4.2", Port: 40000}, Dst: &Addr{IP: "198.18.0.7", Port: 443}, Proto: "tcp",
		Host: "api.github.com", Port: 443, HTTP: &HTTP{Version: "2", Method: "GET", Scheme: "https", Path: "/repos/acme/app/pulls", QueryKeys: []string{"page"}, UserAgent: "git/2.47"},
		Rule:    &Rule{ID: `sandbox "ci" allow "api.github.com"`, Action: "allow", File: "ci.hcl", Line: 12},
		Policy:  &Policy{Generation: 3, SHA256: strings.Repeat("cd", 32)},
		Secrets: []SecretUse{{Name: "GITHUB_TOKEN", Place: "header Authorization", Action: "injected", Count: 1}},
		Conn:    "01JB0000000000000000000001", Req: "01JB0000000000000000000002", GatewayMS: 0.25,
	}
}

func TestEncodeAllocatesNothing(t *testing.T) {
	e := decision()
	buf := make([]byte, 0, 8<<10)
	if n := testing.AllocsPerRun(100, func() { buf = appendBody(appendHead(buf[:0], e), e) }); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkEncode(b *testing.B) {
	e := decision()
	buf := make([]byte, 0, 8<<10)
	b.ReportAllocs()
	start := cpuTime()
	for b.Loop() {
		buf = appendBody(appendHead(buf[:0], e), e)
	}
	b.SetBytes(int64(len(buf)))
	reportCPU(b, start)
}

// cpuTime is what the process has used so far, which a machine that is shared
// with others measures better than the clock.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func reportCPU(b *testing.B, start time.Duration) {
	b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op")
}

func FuzzEscape(f *testing.F) {
	for _, s := range hostileText {
		f.Add(s[:min(len(s), 4096)], 40)
	}
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = limit & 0x3ff
		checkString(t, s, limit)
		got := Escape(s, limit)
		if n := utf8.RuneCountInString(got); limit > 0 && n > limit && got != "…" {
			t.Fatalf("%d characters, limit %d", n, limit)
		}
		for _, r := range got {
			if r != ' ' && (r < 0x20 || r == 0x7f || r == utf8.RuneError || (r > 0x7f && !visible(r))) {
				t.Fatalf("%U in %q", r, got)
			}
		}
	})
}

func TestPlainPrefix(t *testing.T) {
	for n := range 20 {
		for at := range n {
			for c := range 256 {
				b := bytes.Repeat([]byte{'a'}, n)
				b[at] = byte(c)
				want := n
				if !plain(byte(c)) {
					want = at
				}
				if got := plainPrefix(string(b)); got != want {
					t.Fatalf("%q: %d plain bytes, want %d", b, got, want)
				}
			}
		}
	}
}
