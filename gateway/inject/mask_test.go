package inject

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"

	"pgregory.net/rapid"

	"sallyport/secrets"
)

const reflected = `RE/AL+val&ue<"é'>0123`

func maskerOf(t testing.TB, values ...string) *Masker {
	t.Helper()
	var held []secrets.Held
	for i, v := range values {
		held = append(held, secrets.Held{Name: fmt.Sprintf("KEY_%d", i), Value: mustValue(t, v)})
	}
	names := make([]string, len(held))
	for i, h := range held {
		names[i] = h.Name
	}
	return NewGuard(held).Masker(names, nil)
}

func noHit(string) {}

// everyReflection returns a text for each way in which an upstream may send
// a value back.
func everyReflection(v string) map[string]string {
	j, _ := json.Marshal(map[string]string{"authorization": "Bearer " + v})
	plain := strings.TrimSpace(jsonEscape(v))
	out := map[string]string{
		"raw":          "you sent: " + v + "\n",
		"json":         string(j),
		"json, plain":  `{"a":"` + plain + `"}`,
		"json, slash":  `{"a":"` + strings.ReplaceAll(plain, "/", `\/`) + `"}`,
		"json, ascii":  `{"a":"` + jsonASCII(plain) + `"}`,
		"query":        "/x?t=" + url.QueryEscape(v) + "&u=1",
		"path":         "/x/" + url.PathEscape(v) + "/y",
		"lower":        "/x/" + lowerHex(url.PathEscape(v)) + "/y",
		"html":         "<p>" + html.EscapeString(v) + "</p>",
		"URL, all":     escaped(v, "%%%02x", false),
		"URL, mixed":   mixed(v, "%%%02X", "%%%02x", false),
		"json, all":    `{"a":"` + escaped(v, `\u%04X`, true) + `"}`,
		"json, mixed":  `{"a":"` + mixed(v, `\u%04X`, `\u%04x`, true) + `"}`,
		"html, all":    "<p>" + escaped(v, "&#%d;", true) + "</p>",
		"html, zeros":  "<p>" + mixed(v, "&#x%016X;", "&#%018d;", true) + "</p>",
		"html, open":   "<p>" + escaped(v, "&#%d", true),
		"html, hex":    "<p>" + mixed(v, "&#x%X;", "&#X%04x;", true) + "</p>",
		"html, names":  "<p>" + strings.NewReplacer("+", "&plus;", "/", "&sol;", "&", "&AMP;", "<", "&lt;", `"`, "&quot;", "'", "&apos;", ">", "&gt;").Replace(v) + "</p>",
		"hex":          hex.EncodeToString([]byte(v)),
		"hex, upper":   strings.ToUpper(hex.EncodeToString([]byte(v))),
		"twice":        v + v,
		"nothing else": v,
	}
	for phase := range 3 {
		text := []byte(strings.Repeat("u", phase) + v + ":tail")
		out[fmt.Sprintf("base64 %d", phase)] = "Basic " + base64.StdEncoding.EncodeToString(text)
		if phase == 0 { // its core has a slash and pluses
			b := base64.StdEncoding.EncodeToString(text)
			out["base64 in a URL"] = "?t=" + url.QueryEscape(b)
			out["base64 in JSON"] = `"Basic ` + strings.ReplaceAll(b, "/", `\/`) + ` "`
		}
		for _, before := range []int{38, 46, 56} {
			b := base64.StdEncoding.EncodeToString(append(bytes.Repeat([]byte("u"), before+phase), text...))
			for name, end := range map[string]string{"lf": "\n", "crlf": "\r\n", "json": `\n`, "json crlf": `\r\n`, "URL": "%0D%0a"} {
				out[fmt.Sprintf("base64 %d, %d, lines by %s", phase, before, name)] = b[:64] + end + b[64:] + end
			}
		}
		out[fmt.Sprintf("base64 url %d", phase)] = base64.RawURLEncoding.EncodeToString(text)
	}
	return out
}

// escaped is v with every character, or byte, escaped in one way.
func escaped(v, form string, characters bool) string { return mixed(v, form, form, characters) }

// mixed is v with two of three characters, or bytes, escaped, in two ways in
// turn; all of them if those are one.
func mixed(v, one, other string, characters bool) string {
	var b strings.Builder
	write := func(i int, c rune, raw string) {
		switch {
		case i%3 == 1 && c < 0x80 && one != other && strings.IndexByte(`\"&<>%`, byte(c)) < 0:
			b.WriteString(raw)
		case i%2 == 0:
			fmt.Fprintf(&b, one, c)
		default:
			fmt.Fprintf(&b, other, c)
		}
	}
	if characters {
		for i, c := range []rune(v) {
			write(i, c, string(c))
		}
		return b.String()
	}
	for i := range len(v) {
		write(i, rune(v[i]), v[i:i+1])
	}
	return b.String()
}

// shows says whether a piece of v of six bytes or more can be read from text.
func shows(text, v string) bool {
	text = strings.NewReplacer("\r\n", "", "\n", "", `\r\n`, "", `\n`, "", "%0D%0a", "", `\/`, "/", "%2F", "/", "%2B", "+").Replace(text)
	texts := []string{text, html.UnescapeString(text), unescape(text), strings.ReplaceAll(text, "+", " ")}
	var decoded any
	if json.Unmarshal([]byte(text), &decoded) == nil {
		texts = append(texts, fmt.Sprint(decoded))
	}
	for _, t := range append([]string{}, strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '*' || r == '\n' })...) {
		for cut := range 4 {
			part := strings.TrimRight(t, "=")
			if cut < len(part) {
				for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
					b, _ := enc.DecodeString(part[cut : cut+(len(part)-cut)/4*4])
					texts = append(texts, string(b))
				}
			}
		}
		b, _ := hex.DecodeString(t)
		texts = append(texts, string(b))
	}
	for _, t := range texts {
		for i := 0; i+6 <= len(v); i++ {
			if strings.Contains(t, v[i:i+6]) {
				return true
			}
		}
	}
	return false
}

func TestSEC21EveryEncodingIsCovered(t *testing.T) {
	m := maskerOf(t, reflected)
	for name, text := range everyReflection(reflected) {
		t.Run(name, func(t *testing.T) {
			if !shows(text, reflected) {
				t.Error("this test could not see the value if it were not covered")
			}
			for how, read := range map[string]func(io.Reader) io.Reader{"whole": asIs, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "with the end": iotest.DataErrReader} {
				hits := 0
				got, err := io.ReadAll(m.Reader(read(strings.NewReader(text)), func(string) { hits++ }))
				if err != nil || len(got) != len(text) || hits == 0 || shows(string(got), reflected) {
					t.Errorf("%s: %q became %q (%d hits, %v)", how, text, got, hits, err)
				}
			}
		})
	}
	t.Run("what is no value stays", func(t *testing.T) {
		text := strings.ReplaceAll(reflected[:len(reflected)-1]+"9 RE/AL", "0123", "012")
		if got := m.Text(text, noHit); got != text {
			t.Errorf("%q became %q", text, got)
		}
	})
}

func TestSEC22HeadersAndRedirectsAreCovered(t *testing.T) {
	m := maskerOf(t, reflected)
	h := http.Header{
		"Location":   {"https://evil.test/?t=" + url.QueryEscape(reflected)},
		"Set-Cookie": {"a=" + url.PathEscape(reflected), "b=c"},
		"Etag":       {`"` + reflected + `"`},
	}
	before := h.Clone()
	hits := map[string]int{}
	m.Header(h, func(name, header string) { hits[header]++ })
	for name, lines := range h {
		for i, text := range lines {
			if shows(text, reflected) || len(text) != len(before[name][i]) {
				t.Errorf("%s: %q", name, text)
			}
		}
	}
	if hits["Location"] == 0 || hits["Set-Cookie"] == 0 || hits["Etag"] == 0 || h["Set-Cookie"][1] != "b=c" {
		t.Errorf("hits %v, header %v", hits, h)
	}
}

// TestNamesOfHeadersAreCovered: a value in the name of a field, in whatever form
// of it survives there, takes the field out.
func TestNamesOfHeadersAreCovered(t *testing.T) {
	const value = "sk-REAL0123456789"
	escaped := ""
	for i := range len(value) {
		escaped += fmt.Sprintf("%%%02x", value[i])
	}
	m := maskerOf(t, value)
	for form, name := range map[string]string{
		"itself":         value,
		"hexadecimal":    hex.EncodeToString([]byte(value)),
		"base64":         base64.RawURLEncoding.EncodeToString([]byte(value)),
		"escaped":        escaped,
		"escaped partly": strings.Replace(value, "-", "%2d", 1),
	} {
		hits := 0
		h := http.Header{"X-Kept": {"1"}, http.CanonicalHeaderKey("x-" + name): {"1"}}
		m.Header(h, func(_, _ string) { hits++ })
		if len(h) != 1 || h["X-Kept"] == nil || hits == 0 {
			t.Errorf("%s: %v (%d hits)", form, h, hits)
		}
	}
}

func TestMaskHoldsNothingBack(t *testing.T) {
	m := maskerOf(t, "sk-REAL0123456789")
	r, w := io.Pipe()
	defer w.Close()
	masked := m.Reader(r, noHit)
	buf := make([]byte, 8<<10)
	for _, event := range []string{"data: one\n\n", "data: {\"a\":1}\n\n", "x\n"} {
		go io.WriteString(w, event)
		n, err := masked.Read(buf)
		if err != nil || string(buf[:n]) != event {
			t.Fatalf("read %q, %v; want %q at once", buf[:n], err, event)
		}
	}
	go func() {
		io.WriteString(w, "data: sk-RE")
		io.WriteString(w, "AL0123456789\n\n")
	}()
	n, err := masked.Read(buf)
	if err != nil || string(buf[:n]) != "data: " {
		t.Fatalf("read %q, %v", buf[:n], err)
	}
	if n, err = masked.Read(buf); err != nil || string(buf[:n]) != strings.Repeat("*", 17)+"\n\n" {
		t.Fatalf("read %q, %v", buf[:n], err)
	}
}

func TestGuardKnowsValuesThatCameAfterIt(t *testing.T) {
	g := NewGuard([]secrets.Held{{Name: "KEY", Value: mustValue(t, "old-REAL-value")}, {Name: "KEY", Value: mustValue(t, "older-REAL-value")}, {Name: "OTHER", Value: mustValue(t, "other-REAL-value")}})
	text := "old-REAL-value older-REAL-value other-REAL-value fresh-REAL-value"
	for want, used := range map[string]map[string]secrets.Value{
		"************** **************** other-REAL-value fresh-REAL-value": {"KEY": mustValue(t, "old-REAL-value")},
		"************** **************** other-REAL-value ****************": {"KEY": mustValue(t, "fresh-REAL-value")},
	} {
		if got := g.Masker([]string{"KEY"}, used).Text(text, noHit); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if g.Masker([]string{"KEY"}, nil) != g.Masker([]string{"KEY"}, nil) {
		t.Error("a masker is made twice")
	}
	if g.Masker(nil, nil) != nil || g.Masker([]string{"UNKNOWN"}, nil) != nil {
		t.Error("a masker of nothing")
	}
}

func TestPartOfAValueAtTheEdgesOfARange(t *testing.T) {
	m := maskerOf(t, "sk-REAL0123456789")
	for text, want := range map[string]string{
		"0123456789 and on":   "********** and on",
		"and then sk-REAL01":  "and then *********",
		"REAL0123":            "********",
		"789 is short":        "789 is short",
		"EAL":                 "***", // and the next three in the next answer
		"!":                   "!",
		"whole sk-":           "whole sk-",
		"plain":               "plain",
		"%34567%38%39 and on": strings.Repeat("*", 12) + " and on",
		"34567%38%39 and on":  "*********** and on",
		"and then %73k-RE%4":  "and then *********",
		"ARI3456":             "ARI3456",
		"x sk-REAL0123456789": "x " + strings.Repeat("*", 17),
	} {
		hits := 0
		part := m.part(strings.NewReader(text), func(string) { hits-- }, func(string) { hits++ }).(*maskReader)
		part.least = 0
		got, err := io.ReadAll(part)
		if whole := strings.Contains(text, "sk-REAL0123456789"); hits > 0 != (want != text && !whole) {
			t.Errorf("%q: %d pieces of values are told", text, hits)
		}
		if err != nil || string(got) != want {
			t.Errorf("%q became %q, want %q (%v)", text, got, want, err)
		}
	}
}

// naive covers every pattern at every place.
func naive(m *Masker, text string) string {
	out := []byte(text)
	for _, p := range m.seek.patterns {
		for i := 0; i+len(p) <= len(text); i++ {
			if text[i:i+len(p)] == p {
				fill(out[i : i+len(p)])
			}
		}
	}
	for i := range text {
		for k := range m.seek.loose.values {
			r := reading{v: &m.seek.loose.values[k], text: text, known: map[[4]int]bool{}}
			r.from(i, 0, lineLeast, 0)
			fill(out[i:max(i, r.end)])
		}
	}
	return string(out)
}

// reading tells how far a value goes in a text in the longest of all ways to
// read it: each byte may stand for itself or be part of an escape, whatever
// else is so, and lines may be broken behind the value's first byte. The last
// byte stands for itself where it can.
type reading struct {
	v     *looseValue
	text  string
	known map[[4]int]bool
	end   int
}

func (r *reading) from(i, k, line, breaks int) {
	if k == len(r.v.text) {
		r.end = max(r.end, i)
		return
	}
	state := [4]int{i, k, min(line, lineLeast), breaks}
	if i >= len(r.text) || r.known[state] {
		return
	}
	r.known[state] = true
	itself := r.text[i] == r.v.text[k]
	if itself {
		r.from(i+1, k+1, line+1, 0)
		if k == len(r.v.text)-1 {
			return
		}
	}
	u := unit{}
	if isEscape(r.text[i]) {
		u = unescapeAt(r.text, i)
	}
	means := string(u.b[:u.n])
	if u.size > 0 && strings.HasPrefix(r.v.text[k:], means) {
		r.from(i+u.size, k+u.n, line+1, 0)
	}
	if !r.v.wrapped || k == 0 || line < lineLeast && breaks != 1 {
		return
	}
	if rest := r.text[i:]; rest[0] == '\n' || rest == "\r" || strings.HasPrefix(rest, "\r\n") {
		r.from(i+1, k, 0, breaks+1)
	} else if u.size > 0 && (means == "\r" || means == "\n") {
		r.from(i+u.size, k, 0, breaks+1)
	}
}

func TestMaskAtEverySplit(t *testing.T) {
	m := maskerOf(t, "abcabcabd", "bcabca", "aaaa", "xyz&<>xyz")
	pieces := []string{"a", "b", "c", "d", "abc", "abcabcabd", "aaa", "&amp;", "xyz", "xyz&<>xyz", "=", "%26", "%61", `\u0062`, "&#99;", "&#99", "&#x62", "&#0000000000098;", "&lt;>xyz", "\r\n", "YWJjYWJj", "YWJk", "x%79z", "%", "&", `\`}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 20).Draw(t, "pieces"), "")
		want := naive(m, text)
		for cut := range len(text) + 1 {
			src := io.MultiReader(strings.NewReader(text[:cut]), strings.NewReader(text[cut:]))
			got, err := io.ReadAll(m.Reader(src, noHit))
			if err != nil || string(got) != want {
				t.Fatalf("%q cut at %d: %q, want %q (%v)", text, cut, got, want, err)
			}
		}
	})
}

func FuzzMask(f *testing.F) {
	f.Add([]byte("abcabcabcabcabcaaaa"), "abcabc", uint8(3))
	f.Add([]byte("YWJjYWJjYWJj"), "abcabcabc", uint8(1))
	f.Add([]byte("x%73ecr\\u0065t&#x31;23%"), "secret123", uint8(2))
	f.Add([]byte("uuuuc2Vjcm\r\nV0MTIz"), "secret123", uint8(1))
	f.Add([]byte("a%2&am&#a%25%26"), "a%&a%&", uint8(0))
	f.Add([]byte("s&#101&#x0000063;ret&#49&#50"), "secret12", uint8(3))
	f.Add([]byte("abc\\\\\\\\\\\\abc"), "abc\\\\\\\\\\abc", uint8('3'))
	f.Add([]byte("\\'\x89\xd5,>\\\\\\\\\\"), "\\'\x89\xd5,>\\\\\\", uint8(2))
	f.Add([]byte("m\r\nV0MTIz"), "et123", uint8('M'))
	f.Add([]byte("\\'\x89\xd5,>\\\\\\\\|"), "\\'\x89\xd5,>\\\\|", uint8(1)) // its first backslash stands for itself
	f.Add([]byte("c2Vjcm\rV0"), "secret", uint8(0x9d))                      // a bare CR breaks no lines
	f.Add([]byte(strings.Repeat("q", 9000)+"secret"), "qqqqsecret", uint8(200))
	f.Add([]byte("abc\xa3\xa3\xa3\xb3\xa3\xa3\xb4\xa3a0c\xf200\x1e"), "abc\xa3\xa3\xa3\xb3\xa3\xa3\xb4\xa3a0c\xf200", uint8(0))
	f.Add([]byte("%61bcd\\\\ef"), "abcd\\\\ef", uint8(3)) // both backslashes stand for themselves
	f.Add([]byte("0"), "}\xc7!\n", uint8(7))              // without its newline it is too short to be masked
	f.Fuzz(func(t *testing.T, text []byte, value string, n uint8) {
		v, err := secrets.NewValue([]byte(value))
		if err != nil || len(v.Reveal()) < minRaw || len(value) > 64 || len(text) > 20000 {
			return
		}
		m := newMasker([]secrets.Held{{Name: "KEY", Value: v}})
		// Without the slight piece of a value that may go out before the rest.
		firm := &maskReader{m: m, src: &pieces{bytes.NewReader(text), int(n) + 1}, hit: noHit, firm: true}
		got, err := io.ReadAll(firm)
		if err != nil || len(got) != len(text) {
			t.Fatalf("%q in pieces of %d: %q, %v", text, int(n)+1, got, err)
		}
		want := naive(m, string(text))
		if whole := m.Text(string(text), noHit); whole != want {
			t.Fatalf("%q: %q, want %q", text, whole, want)
		}
		if string(got) != want {
			t.Fatalf("%q in pieces of %d: %q, want %q", text, int(n)+1, got, want)
		}
	})
}

func BenchmarkMask(b *testing.B) {
	prose := []byte(strings.Repeat("The quick brown fox jumps over the lazy dog, and \"id\":12345 is a number.\n", 14000))
	random := []byte(base64.StdEncoding.EncodeToString([]byte(strings.Repeat(testTable().Placeholder("s1", "GH_TOKEN"), 20000))))
	for name, text := range map[string][]byte{"prose": prose, "base64": random} {
		for value, secret := range map[string]string{"sk-40": "sk-ant-REAL0123456789abcdefghijABCDEFGHIJ", "short": "hunter22"} {
			m := maskerOf(b, secret)
			b.Run(name+"/"+value, func(b *testing.B) {
				buf := make([]byte, 32<<10)
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					r := m.Reader(bytes.NewReader(text), noHit)
					for {
						if _, err := r.Read(buf); err != nil {
							break
						}
					}
				}
			})
		}
	}
}

// jsonASCII returns the inside of a JSON string with all that is not ASCII as
// \u escapes.
func jsonASCII(s string) string {
	var b []byte
	for _, r := range s {
		switch {
		case r < 0x80:
			b = append(b, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return string(b)
}
