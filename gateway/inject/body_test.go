package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"sallyport/policy"
	"sallyport/secrets"
)

func bodyTable() *Table {
	body := &policy.BodyPlace{Fields: []string{"client_secret", "auth.token", "list.*.key"}, Max: 64 << 10}
	return NewTable([]Secret{
		{Name: "BODY_KEY", Spec: &policy.Secret{Body: body}, Covers: covers(goodHost)},
		{Name: "API_KEY", Spec: &policy.Secret{}, Covers: covers(goodHost)},
		{Name: "OTHER_KEY", Spec: &policy.Secret{}, Covers: covers("other.test")},
	}, []string{"s1"}, testKey)
}

const (
	jsonType = "application/json"
	formType = "application/x-www-form-urlencoded"
	partType = `multipart/form-data; boundary="b0"`
)

// post makes a request with a body, announced or chunked, that is read as
// how says.
func post(media, body string, chunked bool, how func(io.Reader) io.Reader) *http.Request {
	r := request("POST", "https://good.test/token", "Content-Type: "+media)
	r.Body, r.ContentLength = io.NopCloser(how(strings.NewReader(body))), int64(len(body))
	if chunked {
		r.ContentLength = -1
	}
	return r
}

func asIs(r io.Reader) io.Reader { return r }

// sentBody plans and applies, and returns what the upstream would receive.
func sentBody(t testing.TB, r *http.Request, value string) (string, *http.Request, error) {
	t.Helper()
	p, refusal := bodyTable().Plan(input(r, "BODY_KEY", "API_KEY"))
	if refusal != nil {
		return "", nil, refusal
	}
	out := r.Clone(r.Context())
	values := map[string]secrets.Value{}
	for _, n := range p.Secrets() {
		values[n] = mustValue(t, value)
	}
	if err := p.Apply(out, values); err != nil {
		return "", nil, err
	}
	b, err := io.ReadAll(out.Body)
	if err == nil && out.ContentLength >= 0 && out.ContentLength != int64(len(b)) {
		t.Errorf("length %d announced, %d sent", out.ContentLength, len(b))
	}
	return string(b), out, err
}

func parts(list ...string) string {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	_ = w.SetBoundary("b0")
	for i := 0; i < len(list); i += 2 {
		p, _ := w.CreateFormField(list[i])
		_, _ = io.WriteString(p, list[i+1])
	}
	_ = w.Close()
	return b.String()
}

func TestSEC12BodyFields(t *testing.T) {
	const value = `q"b\é&=+ %$API_KEY`
	inJSON := `"q\"b\\é&=+ %$API_KEY"`
	inForm := escape(value)
	tests := map[string]struct {
		media, body string
		want        string
		reason      policy.Reason
	}{
		"json":                    {jsonType, `{"client_secret":"$BODY_KEY","n":1}`, `{"client_secret":` + inJSON + `,"n":1}`, ""},
		"json, white space":       {jsonType, " { \"client_secret\" :\t\"$BODY_KEY\" ,\"n\":[1, -2.5e+3,true,null,{}] }\n", " { \"client_secret\" :\t" + inJSON + " ,\"n\":[1, -2.5e+3,true,null,{}] }\n", ""},
		"json, nested":            {jsonType, `{"auth":{"x":[],"token":"p-${BODY_KEY}-s"}}`, `{"auth":{"x":[],"token":"p-` + strings.Trim(inJSON, `"`) + `-s"}}`, ""},
		"json, in an array":       {jsonType, `{"list":{"a":[{"key":"$BODY_KEY"}]}}`, `{"list":{"a":[{"key":` + inJSON + `}]}}`, ""},
		"json, escaped":           {jsonType, `{"client\u005fsecret":"\u0024BODY\u005fKEY\n\/"}`, `{"client\u005fsecret":` + strings.TrimSuffix(inJSON, `"`) + `\n\/"}`, ""},
		"json, surrogates":        {jsonType, `{"client_secret":"\ud83d\ude00$BODY_KEY\ud83d"}`, `{"client_secret":"\ud83d\ude00` + strings.Trim(inJSON, `"`) + `\ud83d"}`, ""},
		"json, unchanged":         {jsonType, `{"a":"\u00e9 \/ é","b":[1.0,1e5]}`, `{"a":"\u00e9 \/ é","b":[1.0,1e5]}`, ""},
		"json, several texts":     {jsonType, "{\"client_secret\":\"$BODY_KEY\"}\n1 \"x\"\n", "{\"client_secret\":" + inJSON + "}\n1 \"x\"\n", ""},
		"json, media parameters":  {jsonType + "; charset=utf-8", `{"client_secret":"$BODY_KEY"}`, `{"client_secret":` + inJSON + `}`, ""},
		"json, unknown name":      {jsonType, `{"comment":"$FOO costs $5"}`, `{"comment":"$FOO costs $5"}`, ""},
		"json, another field":     {jsonType, `{"body":"$BODY_KEY"}`, "", policy.PlaceholderPlace},
		"json, field deeper":      {jsonType, `{"x":{"client_secret":"$BODY_KEY"}}`, "", policy.PlaceholderPlace},
		"json, escaped elsewhere": {jsonType, `{"body":"\u0024BODY_KEY"}`, "", policy.PlaceholderPlace},
		"json, name":              {jsonType, `{"$BODY_KEY":1}`, "", policy.PlaceholderPlace},
		"json, top string":        {jsonType, `"$BODY_KEY"`, "", policy.PlaceholderPlace},
		"json, of no body":        {jsonType, `{"client_secret":"$API_KEY"}`, "", policy.PlaceholderPlace},
		"json, of another host":   {jsonType, `{"client_secret":"$OTHER_KEY"}`, "", policy.PlaceholderLeak},
		"json, cut short":         {jsonType, `{"client_secret":"$BODY_KEY"`, "", policy.UninspectableBody},
		"json, no json":           {jsonType, `client_secret=$BODY_KEY`, "", policy.UninspectableBody},
		"json, comment":           {jsonType, `{/*"*/"client_secret":"$BODY_KEY"}`, "", policy.UninspectableBody},
		"json, single quotes":     {jsonType, `{'client_secret':'$BODY_KEY'}`, "", policy.UninspectableBody},
		"json, comma at the end":  {jsonType, `{"a":1,}`, "", policy.UninspectableBody},
		"json, wrong bracket":     {jsonType, `{"a":[1}`, "", policy.UninspectableBody},
		"json, raw newline":       {jsonType, "{\"a\":\"\n\"}", "", policy.UninspectableBody},
		"json, deep":              {jsonType, strings.Repeat("[", 1000), "", policy.UninspectableBody},
		"json, other charset":     {jsonType + "; charset=utf-16", `{"client_secret":"$BODY_KEY"}`, "", policy.UninspectableBody},
		"json, UTF-16":            {jsonType, "{\x00\"\x00", "", policy.UninspectableBody},
		"form":                    {formType, "grant=x&client_secret=$BODY_KEY&n=1", "grant=x&client_secret=" + inForm + "&n=1", ""},
		"form, longer name":       {formType, "client%5Fsecret=%24BODY_KEY%41x", "client%5Fsecret=%24BODY_KEY%41x", ""},
		"form, dollar escaped":    {formType, "client%5Fsecret=a+%24BODY_KEY+%7e&%zz=%", "client%5Fsecret=a+" + inForm + "+%7e&%zz=%", ""},
		"form, another field":     {formType, "a=$BODY_KEY", "", policy.PlaceholderPlace},
		"form, name":              {formType, "client_secret&$BODY_KEY=1", "", policy.PlaceholderPlace},
		"form, nothing":           {formType, "a=b&&c=&=d&e", "a=b&&c=&=d&e", ""},
		"multipart":               {partType, parts("a", "b", "client_secret", "$BODY_KEY"), parts("a", "b", "client_secret", value), ""},
		"multipart, other part":   {partType, parts("a", "x $BODY_KEY"), "", policy.PlaceholderPlace},
		"multipart, no boundary":  {"multipart/form-data", parts("a", "b"), "", policy.UninspectableBody},
		"multipart, cut short":    {partType, "--b0\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nxyz", "", policy.UninspectableBody},
		"multipart, a file":       {partType, "--b0\r\nContent-Disposition: form-data; name=\"client_secret\"; filename=\"f\"\r\n\r\n$BODY_KEY\r\n--b0--\r\n", "", policy.PlaceholderPlace},
		"multipart, encoded":      {partType, "--b0\r\nContent-Disposition: form-data; name=\"client_secret\"\r\nContent-Transfer-Encoding: base64\r\n\r\nJEJPRFlfS0VZ\r\n--b0--\r\n", "", policy.UninspectableBody},
		"multipart, two names":    {partType, "--b0\r\nContent-Disposition: form-data; name=\"client_secret\"\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n$BODY_KEY\r\n--b0--\r\n", "", policy.UninspectableBody},
		"type that is unreadable": {"application/json;;=", "{}", "", policy.UninspectableBody},
		"type without fields":     {"text/plain", "$BODY_KEY", "$BODY_KEY", ""},
	}
	readers := map[string]func(io.Reader) io.Reader{"whole": asIs, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "with the end": iotest.DataErrReader}
	for name, tt := range tests {
		for how, read := range readers {
			for _, chunked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/chunked=%v", name, how, chunked), func(t *testing.T) {
					got, _, err := sentBody(t, post(tt.media, tt.body, chunked, read), value)
					if tt.reason != "" {
						var refusal *Refusal
						if !errors.As(err, &refusal) || refusal.Reason != tt.reason || strings.Contains(got, value) && !chunked {
							t.Errorf("got %q, error %v, want %q", got, err, tt.reason)
						}
						return
					}
					if err != nil || got != tt.want {
						t.Errorf("got  %q, error %v\nwant %q", got, err, tt.want)
					}
				})
			}
		}
	}
}

func TestBodyIsLeftAloneWithoutABodyPlace(t *testing.T) {
	r := post(jsonType, "no json at all $API_KEY", false, asIs)
	p, refusal := bodyTable().Plan(input(r, "API_KEY"))
	if refusal != nil || !p.Empty() {
		t.Errorf("%+v %v", p, refusal)
	}
}

func TestBodyThatCannotBeLookedInto(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*http.Request)
		body   string
		want   policy.Reason
	}{
		"not compressed":          {func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, "x", policy.UninspectableBody},
		"compressed twice":        {func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip, br") }, "x", policy.UninspectableBody},
		"unknown coding":          {func(r *http.Request) { r.Header.Set("Content-Encoding", "compress") }, "x", policy.UninspectableBody},
		"identity":                {func(r *http.Request) { r.Header.Set("Content-Encoding", "identity") }, `{}`, ""},
		"too long":                {func(*http.Request) {}, strings.Repeat(" ", 65<<10), policy.BodyTooLarge},
		"digest of what changes":  {func(r *http.Request) { r.Header.Set("Content-MD5", "x") }, `{"client_secret":"$BODY_KEY"}`, policy.UninspectableBody},
		"digest of what does not": {func(r *http.Request) { r.Header.Set("Content-MD5", "x") }, `{"a":"b"}`, ""},
		"digest while it streams": {func(r *http.Request) { r.Header.Set("Digest", "x"); r.ContentLength = -1 }, `{}`, policy.UninspectableBody},
		"too many placeholders":   {func(*http.Request) {}, `{"client_secret":"` + strings.Repeat("$BODY_KEY ", 101) + `"}`, policy.PlaceholderPlace},
		"two types":               {func(r *http.Request) { r.Header.Add("Content-Type", "text/plain") }, `{}`, policy.UninspectableBody},
	} {
		t.Run(name, func(t *testing.T) {
			r := post(jsonType, tt.body, false, asIs)
			tt.change(r)
			_, _, err := sentBody(t, r, "v")
			var refusal *Refusal
			if errors.As(err, &refusal) != (tt.want != "") || refusal != nil && refusal.Reason != tt.want || refusal == nil && err != nil {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestLongBodyStreamsInLittleMemory(t *testing.T) {
	long := `{"data":"` + strings.Repeat("0123456789abcdef\\n", 1<<18) + `","client_secret":"$BODY_KEY"}`
	r := post(jsonType, long, true, asIs)
	p, refusal := bodyTable().Plan(input(r, "BODY_KEY"))
	if refusal != nil {
		t.Fatal(refusal)
	}
	if err := p.Apply(r, map[string]secrets.Value{"BODY_KEY": mustValue(t, "v")}); err != nil {
		t.Fatal(err)
	}
	b := r.Body.(*bodyReader)
	got, err := io.ReadAll(b)
	if err != nil || string(got) != strings.Replace(long, "$BODY_KEY", "v", 1) {
		t.Fatalf("%d bytes, error %v", len(got), err)
	}
	if held := b.out.Cap() + cap(b.text.raw) + cap(b.text.decoded) + 8*cap(b.text.ends); held > 1<<20 {
		t.Errorf("%d bytes held", held)
	}
	if later := p.Later(); len(later) != 1 || later[0] != (Use{Name: "BODY_KEY", Place: "body field client_secret", Action: Injected, Count: 1}) {
		t.Errorf("later %+v", later)
	}
}

// TestRefusedBodyInjectsNothing: of a body that is refused before a byte of it
// has left, no value has.
func TestRefusedBodyInjectsNothing(t *testing.T) {
	for _, tt := range []struct {
		first string // placeholders are behind it
		want  string // of the first of them
	}{{"", Withheld}, {strings.Repeat("x", 64<<10), Injected}} {
		r := post(jsonType, `{"client_secret":"$BODY_KEY","a":"`+tt.first+`","b":"$BODY_KEY"}`, true, asIs)
		p, refusal := bodyTable().Plan(input(r, "BODY_KEY"))
		if refusal != nil {
			t.Fatal(refusal)
		}
		if err := p.Apply(r, map[string]secrets.Value{"BODY_KEY": mustValue(t, "v")}); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r.Body)
		if errors.As(err, &refusal); refusal == nil || refusal.Reason != policy.PlaceholderPlace {
			t.Fatalf("error %v", err)
		}
		later := p.Later()
		want := []Use{{Name: "BODY_KEY", Place: "body field b", Action: Withheld, Count: 1}, {Name: "BODY_KEY", Place: "body field client_secret", Action: tt.want, Count: 1}}
		if (len(got) > 0) != (tt.want == Injected) || !slices.Equal(later, want) {
			t.Errorf("%d bytes left, later %+v", len(got), later)
		}
	}
}

func TestSourceErrorIsPassedOn(t *testing.T) {
	broken := errors.New("connection reset")
	for _, media := range []string{jsonType, formType, partType} {
		for _, chunked := range []bool{false, true} {
			r := post(media, "", chunked, func(io.Reader) io.Reader {
				return io.MultiReader(strings.NewReader("{\"client_secret\":\"$BODY"), iotest.ErrReader(broken))
			})
			r.ContentLength = max(r.ContentLength, 0)
			if chunked {
				r.ContentLength = -1
			}
			if _, _, err := sentBody(t, r, "v"); !errors.Is(err, broken) {
				t.Errorf("%s: error %v", media, err)
			}
		}
	}
}

// FuzzBody holds that what goes out does not depend on how the body arrives,
// and that what an upstream reads has values in named fields only.
func FuzzBody(f *testing.F) {
	for _, s := range []string{
		`{"client_secret":"$BODY_KEY","a":["x",{"b":"\u0024FOO"}]}`, `[{"auth":{"token":"${BODY_KEY}"}}] 1 2`, `{"a":"\ud800\u0024","b":-1e5}`, `"`, `{"":""}`, "client_secret=%24BODY_KEY&a=b%", "a&b=&&=$BODY_KEY",
	} {
		f.Add(s, uint8(3))
	}
	f.Fuzz(func(t *testing.T, body string, n uint8) {
		for _, media := range []string{jsonType, formType} {
			whole, _, err := sentBody(t, post(media, body, true, asIs), "<v>")
			split, _, err2 := sentBody(t, post(media, body, true, func(r io.Reader) io.Reader {
				return &pieces{r, int(n%17) + 1}
			}), "<v>")
			if whole != split || fmt.Sprint(err) != fmt.Sprint(err2) {
				t.Fatalf("%q: whole %q %v, split %q %v", body, whole, err, split, err2)
			}
			if err != nil || strings.Contains(body, "v>") {
				continue
			}
			if media == formType {
				checkForm(t, body, whole)
			} else if json.Valid([]byte(body)) && !json.Valid([]byte(whole)) {
				t.Fatalf("%q became %q", body, whole)
			}
		}
	})
}

func checkForm(t *testing.T, body, sent string) {
	in, err := url.ParseQuery(body)
	out, err2 := url.ParseQuery(sent)
	if err != nil || err2 != nil {
		return
	}
	for name, list := range out {
		for i, v := range list {
			if name != "client_secret" && v != in[name][i] {
				t.Fatalf("%q became %q", body, sent)
			}
		}
	}
}

type pieces struct {
	io.Reader
	n int
}

func (p *pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.n)]) }
