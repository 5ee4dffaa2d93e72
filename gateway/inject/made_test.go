package inject

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sallyport/secrets"
)

// TestSEC24SignaturesAreCovered: the signature that leaves is covered in the
// answer to its request, whose sender could use it past the gateway.
func TestSEC24SignaturesAreCovered(t *testing.T) {
	for name, r := range map[string]*http.Request{
		"header": signRequest("GET", "https://s3.amazonaws.com/test.txt", "X-Amz-Date: 20130524T000000Z", "Authorization: "+fakeSignature("host;x-amz-date")),
		"query":  signRequest("GET", "https://s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%24AWS_KEY%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature="+strings.Repeat("0", 64)),
		"chunks": signRequest("PUT", "https://s3.amazonaws.com/test.txt", "X-Amz-Date: 20130524T000000Z", "X-Amz-Content-Sha256: "+signedChunks, "X-Amz-Decoded-Content-Length: 0", "Authorization: "+fakeSignature("host;x-amz-content-sha256;x-amz-date")),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "chunks" {
				text := "0;chunk-signature=" + strings.Repeat("0", 64) + "\r\n\r\n"
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
			}
			p, refusal := signTable().Plan(input(r, "AWS_KEY"))
			if refusal != nil {
				t.Fatal(refusal)
			}
			values := exampleValue(t)
			if err := p.Apply(r, values); err != nil {
				t.Fatal(err)
			}
			signature := signatureOf(r)
			if name == "query" {
				signature = r.URL.Query().Get("X-Amz-Signature")
			}
			if len(signature) != 64 || strings.Trim(signature, "0") == "" {
				t.Fatalf("signature %q", signature)
			}
			g := NewGuard([]secrets.Held{{Name: "AWS_KEY", Value: values["AWS_KEY"].Parts()[0]}})
			m := g.Masker(p.Covered(), values, p.Made()...)
			var of []string
			got := m.Text("signed "+signature+" as "+exampleKey, func(name string) { of = append(of, name) })
			if got != "signed "+strings.Repeat("*", 64)+" as "+strings.Repeat("*", len(exampleKey)) || strings.Join(of, " ") != "AWS_KEY AWS_KEY" {
				t.Errorf("%q, of %q", got, of)
			}
			if got := g.Masker(p.Covered(), values).Text(signature, func(string) {}); got != signature {
				t.Error("it is covered in the answers to other requests")
			}
		})
	}
}

// BenchmarkMaskerOfASignature is what a signed request costs more.
func BenchmarkMaskerOfASignature(b *testing.B) {
	values := exampleValue(b)
	g := NewGuard([]secrets.Held{{Name: "AWS_KEY", Value: values["AWS_KEY"].Parts()[0]}})
	r := signRequest("GET", "https://s3.amazonaws.com/test.txt", "X-Amz-Date: 20130524T000000Z", "Authorization: "+fakeSignature("host;x-amz-date"))
	p, refusal := signTable().Plan(input(r, "AWS_KEY"))
	if refusal != nil {
		b.Fatal(refusal)
	}
	if err := p.resigned.apply(p, r, values, time.Now()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		g.Masker(p.Covered(), values, p.Made()...)
	}
}
