package inject

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"sallyport/policy"
	"sallyport/secrets"
)

// The key ID and key of the examples that AWS publishes.
const (
	exampleID  = "AKIAIOSFODNN7EXAMPLE"
	exampleKey = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
)

func signTable() *Table {
	return NewTable([]Secret{
		{Name: "AWS_KEY", Spec: &policy.Secret{}, Covers: func(h string) bool { return h == "s3.amazonaws.com" || h == "good.test" }, Sign: &Signing{Services: []string{"s3"}, Regions: []string{"us-east-1"}}},
		{Name: "API_KEY", Spec: &policy.Secret{}, Covers: covers("s3.amazonaws.com")},
	}, []string{"s1"}, testKey)
}

func exampleValue(t testing.TB) map[string]secrets.Value {
	t.Helper()
	v, err := secrets.Compound(exampleID, exampleKey)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]secrets.Value{"AWS_KEY": v}
}

var exampleDay = time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)

// fakeSignature is a header as a client makes it with the placeholder.
func fakeSignature(signed string) string {
	return "AWS4-HMAC-SHA256 Credential=$AWS_KEY/20130524/us-east-1/s3/aws4_request, SignedHeaders=" + signed + ", Signature=" + strings.Repeat("0", 64)
}

func signRequest(method, target string, lines ...string) *http.Request {
	r := request(method, target, lines...)
	r.Header.Del("User-Agent")
	return r
}

func resign(t *testing.T, r *http.Request) (*http.Request, error) {
	t.Helper()
	in := input(r, "AWS_KEY")
	in.Host = r.URL.Hostname()
	p, refusal := signTable().Plan(in)
	if refusal != nil {
		return nil, refusal
	}
	if p.resigned == nil {
		t.Fatal("no signature was found")
	}
	if err := p.Apply(r, exampleValue(t)); err != nil { // with the time of day
		return nil, err
	}
	return r, p.resigned.apply(p, r, exampleValue(t), exampleDay)
}

// signatureOf is the last part of an Authorization header.
func signatureOf(r *http.Request) string {
	_, s, _ := strings.Cut(r.Header.Get("Authorization"), "Signature=")
	return s
}

// TestResignPublishedExamples: the signatures are those of the examples in the
// Amazon S3 API reference, "Authenticating Requests".
func TestResignPublishedExamples(t *testing.T) {
	empty := "X-Amz-Content-Sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for name, tt := range map[string]struct {
		method, target string
		lines          []string
		signed, want   string
	}{
		"get object": {"GET", "https://examplebucket.s3.amazonaws.com/test.txt", []string{"Range: bytes=0-9", empty, "X-Amz-Date: 20130524T000000Z"},
			"host;range;x-amz-content-sha256;x-amz-date", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		"bucket lifecycle": {"GET", "https://examplebucket.s3.amazonaws.com/?lifecycle", []string{empty, "X-Amz-Date: 20130524T000000Z"},
			"host;x-amz-content-sha256;x-amz-date", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		"list objects": {"GET", "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", []string{empty, "X-Amz-Date: 20130524T000000Z"},
			"host;x-amz-content-sha256;x-amz-date", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		t.Run(name, func(t *testing.T) {
			r := signRequest(tt.method, tt.target, append(tt.lines, "Authorization: "+fakeSignature(tt.signed), "X-Amz-Security-Token: fake")...)
			in := input(r, "AWS_KEY")
			table := NewTable([]Secret{{Name: "AWS_KEY", Spec: &policy.Secret{}, Covers: covers("examplebucket.s3.amazonaws.com"), Sign: &Signing{}}}, []string{"s1"}, testKey)
			in.Host = "examplebucket.s3.amazonaws.com"
			p, refusal := table.Plan(in)
			if refusal != nil {
				t.Fatal(refusal)
			}
			if err := p.resigned.apply(p, r, exampleValue(t), exampleDay); err != nil {
				t.Fatal(err)
			}
			if got := signatureOf(r); got != tt.want {
				t.Errorf("signature %s, want %s\n%v", got, tt.want, r.Header)
			}
			if r.Header.Get("X-Amz-Security-Token") != "" || !strings.Contains(r.Header.Get("Authorization"), "Credential="+exampleID+"/20130524/us-east-1/s3/aws4_request") {
				t.Errorf("sent with %v", r.Header)
			}
		})
	}
}

// TestResignShaped: the key ID may be a placeholder with the form of one.
func TestResignShaped(t *testing.T) {
	table := NewTable([]Secret{{Name: "AWS_KEY", Spec: &policy.Secret{Placeholder: "AKIA{rand:16}"}, Covers: covers(goodHost), Sign: &Signing{}}}, []string{"s1", "s2"}, testKey)
	for sandbox, want := range map[string]policy.Reason{"s1": "", "s2": policy.PlaceholderLeak} {
		id := table.Placeholder(sandbox, "AWS_KEY")
		r := signRequest("GET", "https://good.test/", "Authorization: "+strings.Replace(fakeSignature("host"), "$AWS_KEY", id, 1))
		p, refusal := table.Plan(input(r, "AWS_KEY")) // as s1
		if want != "" {
			if refusal == nil || refusal.Reason != want {
				t.Errorf("%s: %v", sandbox, refusal)
			}
			continue
		}
		if refusal != nil || p.resigned == nil {
			t.Errorf("%s: %v", sandbox, refusal)
			continue
		}
		if err := p.Apply(r, exampleValue(t)); err != nil || !strings.Contains(r.Header.Get("Authorization"), exampleID) || strings.Contains(r.Header.Get("Authorization"), id) {
			t.Errorf("%s: %v, sent with %v", sandbox, err, r.Header)
		}
		if env := table.Environment(sandbox, []string{"AWS_KEY"}); env["AWS_ACCESS_KEY_ID"] != id || env["AWS_SECRET_ACCESS_KEY"] != id || env["AWS_KEY"] != id {
			t.Errorf("the environment is %v", env)
		}
	}
}

func TestResignPresigned(t *testing.T) {
	r := signRequest("GET", "https://s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%24AWS_KEY%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature="+strings.Repeat("0", 64))
	in := input(r, "AWS_KEY")
	in.Host = "s3.amazonaws.com"
	p, refusal := signTable().Plan(in)
	if refusal != nil {
		t.Fatal(refusal)
	}
	r.Host, r.URL.Host = "examplebucket.s3.amazonaws.com", "examplebucket.s3.amazonaws.com"
	if err := p.resigned.apply(p, r, exampleValue(t), exampleDay); err != nil {
		t.Fatal(err)
	}
	if q := r.URL.Query(); q.Get("X-Amz-Signature") != "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404" || strings.Contains(r.URL.RawQuery, "AWS_KEY") {
		t.Errorf("sent with %s", r.URL.RawQuery)
	}
}

// exampleChunks is the body of the published example of signed chunks, with
// signatures of the client's own.
func exampleChunks() string {
	fake := ";chunk-signature=" + strings.Repeat("f", 64) + "\r\n"
	return "10000" + fake + strings.Repeat("a", 65536) + "\r\n" + "400" + fake + strings.Repeat("a", 1024) + "\r\n" + "0" + fake + "\r\n"
}

func TestResignSignedChunks(t *testing.T) {
	for how, cut := range map[string]func(io.Reader) io.Reader{"at once": asIs, "in bytes": iotest.OneByteReader} {
		body := exampleChunks()
		r := signRequest("PUT", "https://s3.amazonaws.com/examplebucket/chunkObject.txt", "X-Amz-Date: 20130524T000000Z",
			"X-Amz-Storage-Class: REDUCED_REDUNDANCY", "Content-Encoding: aws-chunked", "X-Amz-Decoded-Content-Length: 66560",
			"X-Amz-Content-Sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
			"Authorization: "+fakeSignature("content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class"))
		r.Body, r.ContentLength = io.NopCloser(cut(strings.NewReader(body))), int64(len(body))
		in := input(r, "AWS_KEY")
		in.Host = "s3.amazonaws.com"
		p, refusal := signTable().Plan(in)
		if refusal != nil {
			t.Fatal(refusal)
		}
		if err := p.resigned.apply(p, r, exampleValue(t), exampleDay); err != nil {
			t.Fatal(err)
		}
		if got := signatureOf(r); got != "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9" {
			t.Errorf("%s: seed signature %s", how, got)
		}
		got, err := io.ReadAll(r.Body)
		if err != nil || len(got) != len(body) {
			t.Fatalf("%s: %d bytes, %v", how, len(got), err)
		}
		for _, want := range []string{
			"10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n",
			"400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\n",
			"0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n\r\n",
		} {
			if !bytes.Contains(got, []byte(want)) {
				t.Errorf("%s: no chunk %q", how, want)
			}
		}
	}
}

func TestResignRefused(t *testing.T) {
	sum := "X-Amz-Content-Sha256: UNSIGNED-PAYLOAD"
	scope := func(s string) string {
		return strings.Replace(fakeSignature("host"), "$AWS_KEY/20130524/us-east-1/s3/aws4_request", s, 1)
	}
	for name, lines := range map[string][]string{
		"bearer":            {"Authorization: Bearer $AWS_KEY"},
		"basic":             {"Authorization: Basic JEFXU19LRVk6eA=="},
		"other header":      {"X-Api-Key: $AWS_KEY"},
		"other service":     {sum, "Authorization: " + scope("$AWS_KEY/20130524/us-east-1/iam/aws4_request")},
		"other region":      {sum, "Authorization: " + scope("$AWS_KEY/20130524/eu-west-1/s3/aws4_request")},
		"no scope":          {sum, "Authorization: " + scope("$AWS_KEY")},
		"more before":       {sum, "Authorization: " + scope("x$AWS_KEY/20130524/us-east-1/s3/aws4_request")},
		"asymmetric":        {"Authorization: " + strings.Replace(fakeSignature("host"), "HMAC-SHA256", "ECDSA-P256-SHA256", 1)},
		"unknown payload":   {"X-Amz-Content-Sha256: STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "Authorization: " + fakeSignature("host")},
		"in the query too":  {sum, "Authorization: " + fakeSignature("host")},
		"no signed headers": {sum, "Authorization: " + fakeSignature("")},
	} {
		target := "https://s3.amazonaws.com/x"
		if name == "in the query too" {
			target += "?X-Amz-Credential=$AWS_KEY"
		}
		r := signRequest("GET", target, lines...)
		if _, err := resign(t, r); !isRefusal(err, policy.PlaceholderPlace) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, body := range map[string]string{
		"not chunked":    strings.Repeat("x", 200),
		"no signature":   "3\r\nabc\r\n0\r\n\r\n",
		"cut off":        exampleChunks()[:60000],
		"more behind":    exampleChunks() + "x",
		"no end of data": strings.Replace(exampleChunks(), "a\r\n4", "aa\n4", 1),
		"huge":           "ffffffff;chunk-signature=" + strings.Repeat("f", 64) + "\r\nabc",
	} {
		r := signRequest("PUT", "https://s3.amazonaws.com/x", "X-Amz-Content-Sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "Authorization: "+fakeSignature("host"))
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		in := input(r, "AWS_KEY")
		in.Host = "s3.amazonaws.com"
		p, refusal := signTable().Plan(in)
		if refusal != nil {
			t.Fatal(refusal)
		}
		if err := p.Apply(r, exampleValue(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(r.Body); err == nil {
			t.Errorf("%s: was signed", name)
		}
	}
}

func isRefusal(err error, reason policy.Reason) bool {
	var refusal *Refusal
	return errors.As(err, &refusal) && refusal.Reason == reason
}

// TestResignForeign: a signature with a key of the sandbox's own does not
// reach the host, neither in a header nor in the query.
func TestResignForeign(t *testing.T) {
	own := strings.Replace(fakeSignature("host"), "$AWS_KEY", "AKIAATTACKER", 1)
	for _, r := range []*http.Request{
		signRequest("GET", "https://s3.amazonaws.com/x", "Authorization: "+own),
		signRequest("GET", "https://s3.amazonaws.com/x?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAATTACKER%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-SignedHeaders=host&X-Amz-Signature=00"),
		signRequest("GET", "https://s3.amazonaws.com/x?x-amz-algorithm=AWS4-HMAC-SHA256&x%2damz-credential=AKIAATTACKER%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-AMZ-Signature=00"),
		signRequest("GET", "https://s3.amazonaws.com/x", "Authorization: AWS AKIAATTACKER:c2lnbmF0dXJl"),
		signRequest("GET", "https://s3.amazonaws.com/x", "authorization: aws AKIAATTACKER:c2lnbmF0dXJl"),
		signRequest("GET", "https://s3.amazonaws.com/x?AWSAccessKeyId=AKIAATTACKER&Signature=00&Expires=1893456000"),
		signRequest("GET", "https://s3.amazonaws.com/x?awsaccesskeyid=AKIAATTACKER&signature=00&Expires=1893456000"),
		signRequest("GET", "https://s3.amazonaws.com/x?AWS%41ccessKeyId=AKIAATTACKER&SIGNATURE=00"),
	} {
		in := input(r, "AWS_KEY")
		in.Host = "s3.amazonaws.com"
		p, refusal := signTable().Plan(in)
		if refusal != nil {
			t.Fatal(refusal)
		}
		if err := p.Apply(r, nil); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(r.URL.RawQuery+r.Header.Get("Authorization"), "ATTACKER") || strings.Contains(strings.ToLower(r.URL.RawQuery), "signature") {
			t.Errorf("sent with %s %v", r.URL, r.Header)
		}
	}
	for _, query := range []string{"AWSAccessKeyId=AKIAATTACKER&Signature=00", "x-amz-credential=AKIAATTACKER", "X-AMZ-SIGNATURE=00"} {
		r := signRequest("GET", "https://s3.amazonaws.com/x?"+query, "X-Amz-Content-Sha256: UNSIGNED-PAYLOAD", "Authorization: "+fakeSignature("host"))
		if _, err := resign(t, r); !isRefusal(err, policy.PlaceholderPlace) {
			t.Errorf("beside the gateway's signature, %s: %v", query, err)
		}
	}
}

// formOf is a form as S3 lets browsers upload.
func formOf(fields ...string) string {
	var b strings.Builder
	for i := 0; i+1 < len(fields); i += 2 {
		b.WriteString("--b\r\nContent-Disposition: form-data; name=\"" + fields[i] + "\"\r\n\r\n" + fields[i+1] + "\r\n")
	}
	return b.String() + "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n" + strings.Repeat("x", 100000) + "\r\n--b--\r\n"
}

// TestSignedForms: a form with a signature of a POST policy does not go out,
// whoever's key it names; any other does, as it came.
func TestSignedForms(t *testing.T) {
	own := formOf("key", "a", "policy", "eyJ9", "x-amz-algorithm", "AWS4-HMAC-SHA256", "x-amz-credential", "$AWS_KEY/20130524/us-east-1/s3/aws4_request", "x-amz-signature", "00")
	for name, tt := range map[string]struct {
		body, says string
		reason     policy.Reason
		foreign    policy.Foreign
	}{
		"its own":        {own, "AWS_KEY cannot sign a form (POST policy)", policy.PlaceholderPlace, policy.ForeignStrip},
		"its own, pass":  {own, "AWS_KEY cannot sign a form (POST policy)", policy.PlaceholderPlace, policy.ForeignPass},
		"another's":      {formOf("X-Amz-Signature", "00"), "not this gateway's", policy.ForeignCredential, policy.ForeignStrip},
		"another's, old": {formOf("AWSAccessKeyId", "AKIAATTACKER", "signature", "00"), "not this gateway's", policy.ForeignCredential, policy.ForeignStrip},
		"let pass":       {formOf("x-amz-signature", "00"), "", "", policy.ForeignPass},
		"no signature":   {formOf("key", "a"), "", "", policy.ForeignStrip},
		"no form":        {"--b\r\nContent-Disposition\r\n\r\n", "well-formed form", policy.UninspectableBody, policy.ForeignStrip},
	} {
		r := signRequest("POST", "https://s3.amazonaws.com/x", "Content-Type: multipart/form-data; boundary=b")
		r.Body, r.ContentLength = io.NopCloser(iotest.HalfReader(strings.NewReader(tt.body))), int64(len(tt.body))
		in := input(r, "AWS_KEY")
		in.Host, in.Decision.Rule = "s3.amazonaws.com", &policy.Rule{Foreign: tt.foreign}
		p, refusal := signTable().Plan(in)
		if refusal != nil {
			t.Fatal(refusal)
		}
		err := p.Apply(r, nil)
		if tt.reason == "" {
			if got, rerr := io.ReadAll(r.Body); err != nil || rerr != nil || string(got) != tt.body {
				t.Errorf("%s: %d bytes of %d, %v %v", name, len(got), len(tt.body), err, rerr)
			}
			continue
		}
		if !isRefusal(err, tt.reason) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSignedFormsReadInTwoWays: a form whose signature the gateway reads as
// something else, and S3 may not, does not go out.
func TestSignedFormsReadInTwoWays(t *testing.T) {
	form := "multipart/form-data; boundary="
	field := func(lines, text string) string { return "--b\r\n" + lines + "\r\n\r\n" + text + "\r\n--b--\r\n" }
	disposition := func(d string) string { return field("Content-Disposition: form-data; "+d, "AKIAATTACKER") }
	for name, tt := range map[string]struct{ media, body string }{
		"boundary in RFC 8187": {form + "b; boundary*=utf-8''a", formOf("X-Amz-Signature", "00")},
		"boundary of pieces":   {form + "b; boundary*0=a", formOf("X-Amz-Signature", "00")},
		"two boundaries":       {form + "b; boundary=a", formOf("X-Amz-Signature", "00")},
		"one boundary twice":   {form + "b; boundary=b", formOf("key", "a")},
		"type of no grammar":   {form + "b; =", formOf("X-Amz-Signature", "00")},
		"name in RFC 8187":     {form + "b", disposition(`name="a"; name*=utf-8''AWSAccessKeyId`)},
		"two names":            {form + "b", disposition(`name="a"; name="AWSAccessKeyId"`)},
		"bare newlines":        {form + "b", formOf("a", "x\n--b\nContent-Disposition: form-data; name=\"AWSAccessKeyId\"\n\nAKIAATTACKER")},
		"nested":               {form + "b", field("Content-Disposition: form-data; name=\"a\"\r\nContent-Type: multipart/mixed; boundary=c", "--c\r\n")},
		"file in pieces":       {form + "b", disposition(`name="a"; filename*0*=utf-8''a`)},
		"file twice":           {form + "b", disposition(`name="a"; filename*=utf-8''a; Filename*=utf-8''b`)},
		"file in quotes":       {form + "b", disposition(`name="a"; filename*="\"; name=AWSAccessKeyId; x=\""`)},
		"file and two names":   {form + "b", disposition(`name="a"; filename*=utf-8''a; name=AWSAccessKeyId`)},
		"file to some only":    {form + "b", field(`Content-Disposition: form-data; name="a"; filename*=utf-8''a`, "x\n--b\nContent-Disposition: form-data; name=\"AWSAccessKeyId\"\n\nAKIAATTACKER")},
		"signed with a file":   {form + "b", disposition(`name="AWSAccessKeyId"; filename*=utf-8''a`)},
	} {
		r := signRequest("POST", "https://s3.amazonaws.com/x", "Content-Type: "+tt.media)
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(tt.body)), int64(len(tt.body))
		in := input(r, "AWS_KEY")
		in.Host = "s3.amazonaws.com"
		p, refusal := signTable().Plan(in)
		if refusal != nil {
			if refusal.Reason != policy.UninspectableBody {
				t.Errorf("%s: %v", name, refusal)
			}
			continue
		}
		if err := p.Apply(r, nil); !isRefusal(err, policy.UninspectableBody) && !isRefusal(err, policy.ForeignCredential) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzResignChunks: whatever comes, what goes out has the same length and the
// same data, up to where it was refused.
func FuzzResignChunks(f *testing.F) {
	f.Add([]byte(exampleChunks()), true)
	f.Add([]byte("0;chunk-signature="+strings.Repeat("0", 64)+"\r\nx-amz-checksum-crc32c:AA==\n\r\nx-amz-trailer-signature:"+strings.Repeat("0", 64)+"\r\n\r\n"), true)
	f.Fuzz(func(t *testing.T, body []byte, trail bool) {
		sig := &signature{region: "r", service: "s3", payload: signedChunks}
		if trail {
			sig.payload = signedTail
		}
		r := signRequest("PUT", "https://s3.amazonaws.com/x", "Authorization: Signature="+strings.Repeat("0", 64))
		r.Body = io.NopCloser(bytes.NewReader(body))
		sig.cred = &credential{name: "AWS_KEY"}
		creds, err := sig.credentials(exampleValue(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := sig.stream(r, creds, exampleDay); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r.Body)
		if len(got) > len(body)+100 || err == nil && !trail && len(got) != len(body) {
			t.Fatalf("%d bytes of %d, %v", len(got), len(body), err)
		}
	})
}
