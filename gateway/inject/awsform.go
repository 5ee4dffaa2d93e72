package inject

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"

	"sallyport/policy"
)

// maxFormFields is how much of a form is held to see its fields, in bytes. S3
// takes 20 kB before the file, which is the last.
const maxFormFields = 64 << 10

// formCheck looks whether a form is signed, as S3 lets browsers upload (POST
// policy). Such a signature is over the policy in the form, with a key that is
// not the gateway's, and is not made anew.
type formCheck struct {
	boundary string
	own      string // name of the secret that signs
	foreign  bool   // one with another key may pass
}

// form plans to look into a form that goes where requests are signed.
func (s *scan) form(r *http.Request) *formCheck {
	if r.Method != http.MethodPost || !s.injects || s.resigned != nil {
		return nil
	}
	if !strings.Contains(strings.ToLower(strings.Join(r.Header["Content-Type"], ",")), "form-data") {
		return nil
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	unclear := err != nil || !plainType(r.Header)
	if !unclear && media != "multipart/form-data" {
		return nil
	}
	for _, n := range s.in.Decision.Inject {
		if c := s.t.creds[n]; c != nil && c.sign != nil && s.approved(c) {
			foreign := s.in.Decision.Rule != nil && s.in.Decision.Rule.Foreign == policy.ForeignPass
			if unclear && !foreign {
				s.refuse(policy.UninspectableBody, "the type of the form, which may be signed, cannot be read, or can be in two ways")
			}
			return &formCheck{boundary: params["boundary"], own: n, foreign: foreign}
		}
	}
	return nil
}

// apply reads the fields of out's body and refuses one that is signed.
func (f *formCheck) apply(p *Plan, out *http.Request) error {
	if out.Body == nil || out.Body == http.NoBody {
		return nil
	}
	head, err := p.readHeld(out.Body, maxFormFields)
	if err != nil {
		return err
	}
	out.Body = tee{io.MultiReader(bytes.NewReader(head), out.Body), out.Body}
	refuse := func(reason policy.Reason, message string) error {
		return &Refusal{Reason: reason, Message: message, Uses: []Use{{Name: f.own, Place: "form", Action: Withheld, Count: 1}}}
	}
	if h, ok := p.table.find.next(string(head), 0, p.own); ok && h.cred != nil && h.cred.sign != nil {
		return refuse(policy.PlaceholderPlace, h.cred.name+" cannot sign a form (POST policy); upload with a signed PUT, or a presigned URL")
	}
	if f.foreign {
		return nil
	}
	form := multipart.NewReader(bytes.NewReader(head), f.boundary)
	for {
		part, err := form.NextRawPart()
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil // of the form, or of what is held
		default:
			return malformed("form")
		}
		name := strings.ToLower(part.FormName())
		if signsAlone(name) && name != "x-amz-security-token" {
			return refuse(policy.ForeignCredential, "the form is signed with a key that is not this gateway's")
		}
		if !f.plain(part) {
			return &Refusal{Reason: policy.UninspectableBody, Message: "the form, which may be signed, can be read in two ways"}
		}
	}
}

// plain says whether a part is one field to everybody.
func (f *formCheck) plain(part *multipart.Part) bool {
	if partDoubt(part.Header) != "" || nests(part.Header) {
		return false
	}
	if part.FileName() != "" {
		return true // S3 takes a file as it is, and nothing behind it
	}
	line := delimiterLine{delimiter: []byte("--" + f.boundary)}
	line.begin()
	text, _ := io.ReadAll(part) // what is held ends in a part, too
	return line.find(text) < 0
}
