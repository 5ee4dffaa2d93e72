//go:build linux

package secrets_test

import (
	"context"
	"crypto/md5"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"sallyport/test/lab"
)

const placesPolicy = `
secret "API_KEY" {
  hosts     = ["*.places.test"]
  query     = ["key"]
  path      = true
  websocket = true
  body {
    types  = ["application/json", "application/x-www-form-urlencoded", "multipart/form-data"]
    fields = ["auth.token", "token"]
  }
  source "file" { path = "SECRETFILE" }
}
sandbox "s1" {
  allow "*.places.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
}
`

// sent is a request with the placeholder in one place.
type sent struct {
	name, method, path, body, media string
	lines                           []string
	got                             func(q *lab.Request) string // what stands there at the origin
	want                            string
}

func header(name string) func(*lab.Request) string {
	return func(q *lab.Request) string { return strings.Join(q.Header[name], "|") }
}

func multipartBody(t *testing.T) (body, media string) {
	t.Helper()
	var b strings.Builder
	w := multipart.NewWriter(&b)
	for _, f := range [][2]string{{"title", "a title"}, {"token", "$API_KEY"}} {
		if err := w.WriteField(f[0], f[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String(), w.FormDataContentType()
}

func partOf(t *testing.T, q *lab.Request) string {
	_, boundary, _ := strings.Cut(q.Header["Content-Type"][0], "boundary=")
	f, err := multipart.NewReader(strings.NewReader(q.Body), boundary).ReadForm(1 << 20)
	if err != nil {
		t.Error(err)
		return ""
	}
	return strings.Join(f.Value["token"], "|")
}

func eachPlace(t *testing.T) []sent {
	t.Helper()
	body := func(q *lab.Request) string { return q.Body }
	field := func(key string) func(q *lab.Request) string {
		return func(q *lab.Request) string {
			v, _ := url.ParseQuery(q.Body) // what cannot be read differs
			return v.Get(key)
		}
	}
	object := func(q *lab.Request) string {
		var v struct{ Auth struct{ Token string } }
		if err := json.Unmarshal([]byte(q.Body), &v); err != nil {
			return q.Body
		}
		return v.Auth.Token
	}
	parts, media := multipartBody(t)
	return []sent{
		{name: "bearer", lines: []string{"Authorization: Bearer $API_KEY"}, got: header("Authorization"), want: "Bearer " + real},
		{name: "braces", lines: []string{"Authorization: token ${API_KEY}"}, got: header("Authorization"), want: "token " + real},
		{name: "X-Api-Key", lines: []string{"X-Api-Key: $API_KEY"}, got: header("X-Api-Key"), want: real},
		{name: "Basic password", lines: []string{"Authorization: " + basicAuth("u:$API_KEY")}, got: header("Authorization"), want: basicAuth("u:" + real)},
		{name: "Basic user", lines: []string{"Authorization: " + basicAuth("$API_KEY:")}, got: header("Authorization"), want: basicAuth(real + ":")},
		{name: "query", path: "?a=1&key=$API_KEY&b=2", got: func(q *lab.Request) string { return q.Target }, want: "/?a=1&key=" + escaped(real) + "&b=2"},
		{name: "escaped query", path: "?key=%24API_KEY", got: func(q *lab.Request) string { return q.Target }, want: "/?key=" + escaped(real)},
		{name: "path", path: "bot$API_KEY/send", got: func(q *lab.Request) string { return q.Target }, want: "/bot" + escaped(real) + "/send"},
		{name: "JSON field", method: "POST", media: "application/json", body: `{"auth":{"token":"$API_KEY"},"n":1.50}`, got: object, want: real},
		{name: "rest of JSON", method: "POST", media: "application/json", body: `{"auth": {"token":"x"}, "n": 1.50}`, got: body, want: `{"auth": {"token":"x"}, "n": 1.50}`},
		{name: "form field", method: "POST", media: "application/x-www-form-urlencoded", body: "a=1&token=$API_KEY", got: field("token"), want: real},
		{name: "escaped form field", method: "POST", media: "application/x-www-form-urlencoded", body: "token=%24API_KEY&b=2", got: field("token"), want: real},
		{name: "multipart field", method: "POST", media: media, body: parts, got: func(q *lab.Request) string { return partOf(t, q) }, want: real},
	}
}

// escaped writes every byte but the unreserved as RFC 3986 says.
func escaped(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// TestPlacesEachProtocol: the origin receives the value in each place, over
// HTTP/1.1 and HTTP/2 on either side, and exactly once. SEC-03, SEC-08,
// SEC-10, SEC-16.
func TestPlacesEachProtocol(t *testing.T) {
	s := start(t, placesPolicy, real)
	n := 0
	for _, up := range []string{"http/1.1", "h2"} {
		host := "h" + up[len(up)-1:] + ".places.test"
		origin(host).SetProtocols(up)
		for _, h2 := range []bool{false, true} {
			c := s.Client(t, h2)
			for _, chunked := range []bool{false, true} {
				for _, p := range eachPlace(t) {
					if chunked && p.body == "" {
						continue
					}
					name := p.name + map[bool]string{true: ", of unknown length"}[chunked]
					req := lab.NewRequest(t, cmpOr(p.method, "GET"), "https://"+host+"/"+p.path, p.body, p.lines...)
					if p.media != "" {
						req.Header.Set("Content-Type", p.media)
					}
					if chunked {
						req.Body = io.NopCloser(oneByOne{strings.NewReader(p.body)})
						req.ContentLength, req.GetBody = -1, nil
					}
					a := s.do(t, c, req)
					n++
					if a.Status != 200 {
						t.Errorf("%s from h2=%v to %s: %d %s", name, h2, up, a.Status, a.Body)
						continue
					}
					if got := p.got(last(t, host)); got != p.want {
						t.Errorf("%s from h2=%v to %s: the origin saw %q, not %q", name, h2, up, got, p.want)
					}
				}
			}
		}
	}
	if n < 60 {
		t.Errorf("only %d requests were made", n)
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// oneByOne gives a body in the smallest pieces, so that a placeholder is
// split over as many DATA frames or chunks.
type oneByOne struct{ r io.Reader }

func (o oneByOne) Read(b []byte) (int, error) { return o.r.Read(b[:1]) }

// TestPlacesOtherFieldsOfBodies: a field that is not named is no place, so
// the key cannot be published in a comment. SEC-09.
func TestPlacesOtherFieldsOfBodies(t *testing.T) {
	s := start(t, placesPolicy, real)
	const host = "fields.places.test"
	for _, tt := range []struct{ media, body string }{
		{"application/json", `{"comment":"$API_KEY"}`},
		{"application/json", `{"auth":{"other":"$API_KEY"}}`},
		{"application/json", `{"$API_KEY":1}`},
		{"application/json", `{"comment":"\u0024API_KEY"}`},
		{"application/x-www-form-urlencoded", "comment=$API_KEY"},
		{"application/x-www-form-urlencoded", "comment=%24API_KEY"},
	} {
		refused(t, s.post(t, "https://"+host+"/", tt.media, tt.body), "placeholder_place")
	}
	a := s.post(t, "https://"+host+"/", "text/plain", "$API_KEY")
	if !origin(host).Silent() && strings.Contains(string(origin(host).Raw()), real) {
		t.Errorf("%d: the value went into a body of plain text", a.Status)
	}
}

// TestPlacesFormKept: a form of parts without a placeholder arrives as it was
// sent, and so as its digest says; with utf8 for its charset as well.
func TestPlacesFormKept(t *testing.T) {
	s := start(t, placesPolicy, real)
	const host = "kept.places.test"
	form := "before\r\n--b\r\nContent-Type: text/plain; charset=utf8\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\na\r\n--b--"
	sum := md5.Sum([]byte(form))
	digest := base64.StdEncoding.EncodeToString(sum[:])
	passed(t, s.post(t, "https://"+host+"/", "multipart/form-data; boundary=b; charset=utf8", form, "Content-MD5: "+digest))
	if q := last(t, host); q.Body != form || header("Content-Md5")(q) != digest {
		t.Errorf("the origin saw %q, %q", q.Body, q.Header)
	}
	form = strings.Replace(form, "title", "token", 1)
	form = strings.Replace(form, "\r\na\r\n", "\r\n$API_KEY\r\n", 1)
	refused(t, s.post(t, "https://"+host+"/", "multipart/form-data; boundary=b", form, "Content-MD5: "+digest), "uninspectable_body")
	passed(t, s.post(t, "https://"+host+"/", "multipart/form-data; boundary=b", form))
	if q := last(t, host); partOf(t, q) != real {
		t.Errorf("the origin saw %q", q.Body)
	}
}

// TestPlacesGRPC: metadata is a header of HTTP/2; what the service sends back
// in its own is covered.
func TestPlacesGRPC(t *testing.T) {
	s := start(t, placesPolicy, real)
	const host = "grpc.places.test"
	c, err := grpc.NewClient("passthrough:///"+host+":443",
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: s.Roots})),
		grpc.WithContextDialer(func(_ context.Context, address string) (net.Conn, error) { return s.Dial("tcp", address) }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var head metadata.MD
	in := &testpb.SimpleRequest{Payload: &testpb.Payload{Body: []byte("hello")}}
	out, err := testpb.NewTestServiceClient(c).UnaryCall(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer $API_KEY"), in, grpc.Header(&head))
	if err != nil || string(out.GetPayload().GetBody()) != "hello" {
		t.Fatalf("%v %v", out, err)
	}
	s.keep(strings.Join(head["x-authorization"], "|"))
	if got := strings.Join(head["x-authorization"], ""); got != "Bearer "+strings.Repeat("*", len(real)) {
		t.Errorf("the sandbox got %q", got)
	}
	if got := header("Authorization")(last(t, host)); got != "Bearer "+real {
		t.Errorf("the origin saw %q", got)
	}
}

// TestPlacesWebSocket: a text message carries the value out, split over
// frames or not, and what comes back is covered. A binary message is left as
// it is.
func TestPlacesWebSocket(t *testing.T) {
	s := start(t, placesPolicy, real)
	const host = "ws.places.test"
	heard := make(chan string, 16)
	origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionContextTakeover})
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			kind, b, err := c.Read(r.Context())
			if err != nil {
				return
			}
			heard <- string(b)
			if c.Write(r.Context(), kind, b) != nil {
				return
			}
		}
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "wss://"+host+"/", &websocket.DialOptions{HTTPClient: s.Client(t, false),
		HTTPHeader: http.Header{"Authorization": {"Bearer $API_KEY"}}, CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if got := header("Authorization")(last(t, host)); got != "Bearer "+real {
		t.Errorf("the handshake carried %q", got)
	}
	for _, tt := range []struct {
		kind   websocket.MessageType
		pieces []string
		want   string
	}{
		{websocket.MessageText, []string{`{"auth":"$API_KEY"}`}, `{"auth":"` + jsonText() + `"}`},
		{websocket.MessageText, []string{"auth $API", "_KEY now"}, "auth " + real + " now"},
		{websocket.MessageBinary, []string{"auth $API_KEY"}, "auth $API_KEY"},
	} {
		w, err := c.Writer(ctx, tt.kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range tt.pieces {
			if _, err := io.WriteString(w, p); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got := <-heard; got != tt.want {
			t.Errorf("%q: the origin heard %q", tt.pieces, got)
		}
		_, back, err := c.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s.keep(string(back))
		if len(back) != len(tt.want) {
			t.Errorf("%q: %d bytes came back, not %d", tt.pieces, len(back), len(tt.want))
		}
	}
}

// jsonText is the value as a string of JSON holds it.
func jsonText() string { return strings.ReplaceAll(real, `"`, `\"`) }
