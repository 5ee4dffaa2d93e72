package inject

import (
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport/policy"
	"sallyport/secrets"
)

// TestFormOfPartsIsKept: a form in which no value is put goes out as it came,
// with the order of its headers, what is around its parts and its digest.
func TestFormOfPartsIsKept(t *testing.T) {
	odd := part("x", `Content-Disposition: form-data; name="f"; filename="f"`, "Content-Type: text/plain", "A: b") + "--b0--"
	for name, body := range map[string]string{
		"order":               odd,
		"around":              "before\r\n" + odd + "\r\nbehind",
		"no parts":            "--b0--",
		"blanks":              strings.Replace(odd, "--b0\r\n", "--b0 \t\r\n", 1),
		"newlines":            strings.ReplaceAll(odd, "\r\n", "\n"),
		"an unknown name":     "$FOO\r\n" + odd + "\r\n$BODY_KE",
		"far behind":          odd + "\r\n" + strings.Repeat("x", 3*bodyChunk),
		"as the writer does":  parts("a", "b"),
		"as long as may be":   odd + "\r\n" + strings.Repeat("x", 64<<10-len(odd)-2),
		"behind what is kept": parts("a", "b", "c", "$FOO"),
	} {
		r := post(partType, body, false, asIs)
		r.Header.Set("Content-MD5", "x")
		if got, _, err := sentBody(t, r, "v"); err != nil || got != body {
			t.Errorf("%s: %q became %q, %v", name, body, got, err)
		}
		for coding := range compressors() {
			r := post(partType, packed(t, coding, body), false, asIs)
			r.Header.Set("Content-Encoding", coding)
			got, _, err := sentBody(t, r, "v")
			if err != nil || got != packed(t, coding, body) {
				t.Errorf("%s, %s: changed, %v", name, coding, err)
			}
		}
	}
}

// TestAroundTheParts: what stands there, and goes out, is judged as in a part.
func TestAroundTheParts(t *testing.T) {
	form := parts("a", "b")
	for name, tt := range map[string]struct {
		body   string
		reason policy.Reason
	}{
		"before":            {"$BODY_KEY\r\n" + form, policy.PlaceholderPlace},
		"behind":            {form + "$BODY_KEY", policy.PlaceholderPlace},
		"far behind":        {form + strings.Repeat("x", 3*bodyChunk-4) + "$BODY_KEY", policy.PlaceholderPlace},
		"of another host":   {form + "$OTHER_KEY", policy.PlaceholderLeak},
		"behind delimiters": {form + "--b0\r\n" + ofSecret + "\r\n\r\n$BODY_KEY\r\n--b0--\r\n", policy.PlaceholderPlace},
	} {
		for _, pass := range []bool{false, true} {
			for _, coding := range []string{"", "gzip"} {
				t.Run(fmt.Sprint(name, pass, coding), func(t *testing.T) { aroundParts(t, tt.body, coding, pass, tt.reason) })
			}
		}
	}
	value := "REAL-value-of-the-key"
	r := post(partType, packed(t, "gzip", form+strings.Repeat("x", bodyChunk)+value), false, asIs)
	r.Header.Set("Content-Encoding", "gzip")
	if _, _, err := sentBody(t, r, value); !isRefusal(err, policy.SecretExfiltration) {
		t.Errorf("a value behind the parts: %v", err)
	}
}

func aroundParts(t *testing.T, body, coding string, pass bool, reason policy.Reason) {
	r := post(partType, body, false, asIs)
	if coding != "" {
		r = post(partType, packed(t, coding, body), false, asIs)
		r.Header.Set("Content-Encoding", coding)
	}
	in := input(r, "BODY_KEY", "API_KEY")
	in.Decision.Rule.OnLeakPass = pass
	p, refusal := bodyTable().Plan(in)
	if refusal != nil {
		t.Fatal(refusal)
	}
	err := p.Apply(r, map[string]secrets.Value{"BODY_KEY": mustValue(t, "v")})
	name := "BODY_KEY"
	if strings.Contains(body, "OTHER_KEY") {
		name = "OTHER_KEY"
	}
	if diff := cmp.Diff([]Use{{Name: name, Place: "body", Action: Withheld, Count: 1}}, p.Later()); diff != "" {
		t.Error(diff)
	}
	if !pass {
		if !errors.As(err, &refusal) || refusal.Reason != reason {
			t.Errorf("error %v, want %q", err, reason)
		}
		return
	}
	got, rerr := io.ReadAll(r.Body)
	if coding != "" {
		got, rerr = io.ReadAll(decompress(t, coding, strings.NewReader(string(got))))
	}
	if err != nil || rerr != nil || string(got) != body {
		t.Errorf("sent %q, %v %v", got, err, rerr)
	}
}

// TestDigestThatFollows: so it is with a digest in the trailer.
func TestDigestThatFollows(t *testing.T) {
	for _, name := range []string{"Content-Md5", "Digest", "Content-Digest", "Repr-Digest"} {
		r := post(partType, parts("a", "b"), true, asIs)
		r.Trailer = http.Header{name: nil}
		if _, _, err := sentBody(t, r, "v"); !isRefusal(err, policy.UninspectableBody) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzFormOfParts: a form in which nothing is replaced goes out as it came,
// and in any other values stand in named fields only.
func FuzzFormOfParts(f *testing.F) {
	for _, s := range []string{
		parts("a", "b", "client_secret", "$BODY_KEY"), "x\r\n" + parts("a", "b") + "y", "--b0--", part("$BODY_KEY", ofSecret, "A: b") + "--b0--\r\n$BODY_KEY",
		"$BODY_KEY\n--b0\nContent-Disposition: form-data; name=client_secret; filename=a\n\nx\n--b0--",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if strings.Contains(body, "<v>") || len(body) > 32<<10 {
			return
		}
		r := post(partType, body, false, asIs)
		p, refusal := bodyTable().Plan(input(r, "BODY_KEY"))
		if refusal != nil {
			t.Fatal(refusal)
		}
		if err := p.Apply(r, map[string]secrets.Value{"BODY_KEY": mustValue(t, "<v>")}); err != nil {
			return
		}
		got, err := io.ReadAll(r.Body)
		if err != nil || int64(len(got)) != r.ContentLength {
			t.Fatalf("%q: %d bytes of %d, %v", body, len(got), r.ContentLength, err)
		}
		if len(p.Later()) == 0 {
			if _, found := p.table.find.next(body, 0, p.own); found || string(got) != body {
				t.Fatalf("%q became %q", body, got)
			}
			return
		}
		form := multipart.NewReader(strings.NewReader(string(got)), "b0")
		for {
			q, err := form.NextRawPart()
			if err == io.EOF {
				return
			}
			if err != nil {
				t.Fatalf("%q became %q: %v", body, got, err)
			}
			text, err := io.ReadAll(q)
			if err != nil || strings.Contains(string(text), "<v>") && (q.FormName() != "client_secret" || q.FileName() != "") {
				t.Fatalf("%q became %q, %v", body, got, err)
			}
		}
	})
}
