package inject

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"sallyport/policy"
)

// part is a part with header lines and a text, between delimiters b0.
func part(text string, lines ...string) string {
	return "--b0\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n" + text + "\r\n"
}

const ofSecret = `Content-Disposition: form-data; name="client_secret"`

// TestSEC09ReadInTwoWays: where servers may take the field of a placeholder
// for another than the gateway does, its value does not leave.
func TestSEC09ReadInTwoWays(t *testing.T) {
	const value = "REAL-value"
	key, end := "$BODY_KEY", "--b0--\r\n"
	of := func(disposition string) string {
		return part(key, "Content-Disposition: form-data; "+disposition) + end
	}
	nested := part("--b1\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n"+key+"\r\n--b1--", ofSecret, "Content-Type: Multipart/Mixed; boundary=b1") + end
	object := `{"client_secret":"$BODY_KEY"}`
	within := func(outer, inner string) string {
		return "--b0\r\n" + outer + "\r\n\r\n\r\n--b1\r\n" + inner + "\r\n\r\n" + key + "\r\n--b1--\r\n\r\n--b0--\r\n"
	}
	const other = `Content-Disposition: form-data; name="a"`
	both, starred := within(other, ofSecret), within(ofSecret, other)
	for name, tt := range map[string]struct{ media, body string }{
		"name in RFC 8187":              {partType, of(`name="a"; name*=utf-8''client_secret`)},
		"name in RFC 8187 alone":        {partType, of(`name*=utf-8''client_secret`)},
		"name in pieces":                {partType, of(`name="a"; name*0=client_; name*1=secret`)},
		"two names":                     {partType, of(`name="a"; name="client_secret"`)},
		"one name twice":                {partType, of(`name=client_secret; Name="client_secret"`)},
		"name in another parameter":     {partType, of(`xname="a"; name="client_secret"`)},
		"name in a quoted text":         {partType, of(`name="client_secret"; x="\"; name=a; y="`)},
		"disposition before a space":    {partType, part(key, `Content-Disposition : form-data; name="a"`, ofSecret) + end},
		"disposition behind a return":   {partType, part(key, "X: y\rContent-Disposition: form-data; name=\"a\"", ofSecret) + end},
		"delimiter behind a newline":    {partType, part("x\n--b0\nContent-Disposition: form-data; name=\"a\"\n\n"+key, ofSecret) + end},
		"delimiter behind a return":     {partType, part("x\r--b0\rContent-Disposition: form-data; name=\"a\"\r\r"+key, ofSecret) + end},
		"delimiter at the beginning":    {partType, part("--b0x\nContent-Disposition: form-data; name=\"a\"\n\n"+key, ofSecret) + end},
		"delimiter that goes on":        {partType, part("x\r\n--b0x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n"+key, ofSecret) + end},
		"delimiter far before":          {partType, part("x\n--b0\n"+strings.Repeat("x", 3*bodyChunk)+key, ofSecret) + end},
		"nested":                        {partType, nested},
		"nested, of two types":          {partType, part(key, ofSecret, "Content-Type: text/plain", "Content-Type: multipart/mixed; boundary=b1") + end},
		"nested message":                {partType, part(key, ofSecret, "Content-Type: message/rfc822") + end},
		"nested in an earlier part":     {partType, part("x", `Content-Disposition: form-data; name="a"`, "Content-Type: multipart/mixed; boundary=b1") + part("\r\n--b1\r\n\r\n"+key, ofSecret) + end},
		"part in another charset":       {partType, part(key, ofSecret, "Content-Type: text/plain; charset=utf-7") + end},
		"part in a hidden charset":      {partType, part(key, ofSecret, "Content-Type: text/plain; charset*=utf-8''utf-7") + end},
		"boundary in RFC 8187":          {"multipart/form-data; boundary=b1; boundary*=utf-8''b0", starred},
		"boundary in pieces":            {"multipart/form-data; boundary=b1; boundary*0=b0", starred},
		"two boundaries":                {"multipart/form-data; boundary=b1; Boundary=b0", both},
		"boundary in another parameter": {"multipart/form-data; xboundary=b0; boundary=b1", both},
		"boundary in a text":            {`multipart/form-data; x="; boundary=b0"; boundary=b1`, both},
		"form, semicolon":               {formType, "client_secret=a;a=" + key},
		"form, semicolon, bare":         {formType, "client_secret=a;" + key},
		"form, semicolon far before":    {formType, "client_secret=a;a=" + strings.Repeat("x", 3*bodyChunk) + key},
		"form, other charset":           {formType + "; charset=iso-8859-1", "client_secret=" + key},
		"json, charset in RFC 8187":     {jsonType + "; charset*=utf-8''utf-8; charset=utf-7", object},
		"json, charset twice":           {jsonType + "; charset=utf-8; charset=utf-8", object},
		"json, charset in another":      {jsonType + `; x="charset=utf-7"; charset=utf-8`, object},
		"json, other charset":           {jsonType + `; Charset="ISO-8859-1"`, object},
		"json, utf8 twice":              {jsonType + "; charset=utf8; charset=utf-8", object},
		"json, utf8 with another":       {jsonType + "; charset=utf8,utf-7", object},
		"json, an alias of Python's":    {jsonType + "; charset=utf_8", object},
		"file of another charset":       {partType, part(key, ofSecret+"; filename*=utf-8''a") + end},
		"json, UTF-7":                   {jsonType + `; charset="UTF-7"`, object},
	} {
		for how, read := range map[string]func(io.Reader) io.Reader{"whole": asIs, "bytes": iotest.OneByteReader} {
			for _, chunked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/chunked=%v", name, how, chunked), func(t *testing.T) {
					r := post(tt.media, tt.body, chunked, read)
					got, _, err := sentBody(t, r, value)
					var refusal *Refusal
					if !errors.As(err, &refusal) || refusal.Reason != policy.PlaceholderPlace && refusal.Reason != policy.UninspectableBody || strings.Contains(got, value) {
						t.Errorf("sent %.200q, error %v", got, err)
					}
				})
			}
		}
	}
}

// TestReadInOneWay: what resembles the above and has one reading, or no
// placeholder, goes out.
func TestReadInOneWay(t *testing.T) {
	key, end := "$BODY_KEY", "--b0--\r\n"
	file := part("x\n--b0\n", `Content-Disposition: form-data; name="f"; filename="a\"b;.txt"; filename*=utf-8''a`, "Content-Type: application/octet-stream")
	for name, tt := range map[string]struct{ media, body string }{
		"behind a file":             {partType, file + part(key, ofSecret) + end},
		"type of the part":          {partType, part(key, ofSecret, `Content-Type: text/plain; charset="UTF-8"`, "Content-Transfer-Encoding: 8bit", "Content-Length: 9") + end},
		"name without quotes":       {partType, part(key, "Content-Disposition: form-data;name=client_secret") + end},
		"delimiter within a line":   {partType, part("x --b0 --b1\n"+key, ofSecret) + end},
		"delimiter behind it":       {partType, part(key+"\nx\n--b0\n", ofSecret) + end},
		"nested behind it":          {partType, part(key, ofSecret) + part("x", `Content-Disposition: form-data; name="a"`, "Content-Type: multipart/mixed; boundary=b1") + end},
		"nested without one":        {partType, part("x", `Content-Disposition: form-data; name="a"`, "Content-Type: multipart/mixed; boundary=b1") + end},
		"boundary with a charset":   {`multipart/form-data; charset=UTF-8; boundary="b0"`, part(key, ofSecret) + end},
		"form, semicolon escaped":   {formType, "client_secret=a%3Ba=" + key},
		"form, semicolon behind":    {formType, "client_secret=" + key + ";a=b"},
		"form, semicolon elsewhere": {formType, "a=b;c=d&client_secret=" + key},
		"form, other charset":       {formType + "; charset=iso-8859-1", "a=b;c"},
		"boundary with utf8":        {`multipart/form-data; charset="UTF8"; boundary="b0"`, part(key, ofSecret, "Content-Type: text/plain; charset=utf8") + end},
		"form, charset utf8":        {formType + "; charset=utf8", "client_secret=" + key},
		"json, charset utf8":        {jsonType + "; charset=UTF8", `{"client_secret":"$BODY_KEY"}`},
		"json, charset":             {jsonType + `;charset="UTF-8";`, `{"client_secret":"$BODY_KEY","a":"x;y="}`},
	} {
		for how, read := range map[string]func(io.Reader) io.Reader{"whole": asIs, "bytes": iotest.OneByteReader} {
			t.Run(name+"/"+how, func(t *testing.T) {
				got, _, err := sentBody(t, post(tt.media, tt.body, false, read), "v")
				if want := strings.ReplaceAll(tt.body, key, "v"); err != nil || len(got) != len(want) || strings.Count(got, "v") != strings.Count(want, "v") {
					t.Errorf("sent %q, error %v", got, err)
				}
			})
		}
	}
}

// TestSEC09QueryReadInTwoWays: so it is with a parameter that some servers
// end at a semicolon.
func TestSEC09QueryReadInTwoWays(t *testing.T) {
	for query, want := range map[string]string{
		"key=a;q=$MAP_KEY":        "",
		"key=a;$MAP_KEY":          "",
		"key=a;q=%24MAP_KEY":      "",
		"key=$MAP_KEY;q=$MAP_KEY": "",
		"x=a;b&key=$MAP_KEY;b=c":  "x=a;b&key=v;b=c",
		"key=a%3Bq=$MAP_KEY":      "key=a%3Bq=v",
	} {
		r := request("GET", "https://good.test/")
		r.URL.RawQuery = query
		in := input(r, "MAP_KEY")
		in.Decision.Rule.Foreign = policy.ForeignPass // what stands beside it is not looked at
		out, refusal := sentTarget(t, in, "v")
		if want == "" {
			if refusal == nil || refusal.Reason != policy.PlaceholderPlace || !strings.Contains(refusal.Message, "%3B") {
				t.Errorf("%s: %v", query, refusal)
			}
			continue
		}
		if refusal != nil || out.URL.RawQuery != want {
			t.Errorf("%s: %v", query, refusal)
		}
	}
}

// FuzzPlain: what is plain has in Go's own reading the same parameters.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{
		`form-data; name="a"; filename*=utf-8''b; filename=c`, `form-data; filename*=b;name*=c`,
		"multipart/form-data; boundary=b0", `form-data; name="a"; filename="b"`, `application/json;charset="utf-8";`, "a/b; c*=utf-8''d", `a; b="\""`, "a;;b=c ; d=e", "", "a; a=b; A=b", `x; y="z`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, plain := plainParams(text)
		ok := plain
		if !plain {
			list, ok = plainParamsBut(text, "filename*")
			list = slices.DeleteFunc(list, func(p param) bool { return p.name == "filename" || p.name == "filename*" })
		}
		if !ok {
			return
		}
		_, params, err := mime.ParseMediaType(text)
		if !plain { // Go gives one name of the two
			delete(params, "filename")
		}
		if err != nil || len(params) != len(list) {
			t.Fatalf("%q: %v, and Go reads %v, %v", text, list, params, err)
		}
		for _, p := range list {
			if got, ok := params[p.name]; !ok || got != p.value {
				t.Fatalf("%q: %v, and Go reads %v", text, list, params)
			}
		}
	})
}

// FuzzDelimiterLine: where a line is found does not depend on how the text
// comes, and it begins with the delimiter.
func FuzzDelimiterLine(f *testing.F) {
	for _, s := range []string{"--b0", "x\n--b0", "x--b0\r\n--b0x", "----b0\n--b\n--b0", "\xe2\x80\xa8--b0", " --b0\t--b0"} {
		f.Add([]byte(s), uint8(2))
	}
	f.Fuzz(func(t *testing.T, text []byte, n uint8) {
		whole, pieces := delimiterLine{delimiter: []byte("--b0")}, delimiterLine{delimiter: []byte("--b0")}
		whole.begin()
		want := whole.find(text)
		pieces.begin()
		got := -1
		for at, step := 0, int(n%9)+1; at < len(text) && got < 0; at += step {
			if i := pieces.find(text[at:min(at+step, len(text))]); i >= 0 {
				got = at + i
			}
		}
		if got != want || want >= 0 && !strings.HasSuffix(string(text[:want]), "--b0") {
			t.Fatalf("%q: %d at once, %d in pieces of %d", text, want, got, n%9+1)
		}
	})
}
