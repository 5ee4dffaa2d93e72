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
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "multipart/form-data" {
		return nil
	}
	for _, n := range s.in.Decision.Inject {
		if c := s.t.creds[n]; c != nil && c.sign != nil && s.approved(c) {
			rule := s.in.Decision.Rule
			return &formCheck{boundary: params["boundary"], own: n, foreign: rule != nil && rule.Foreign == policy.ForeignPass}
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
		switch strings.ToLower(part.FormName()) {
		case "x-amz-signature", "x-amz-credential", "awsaccesskeyid":
			return refuse(policy.ForeignCredential, "the form is signed with a key that is not this gateway's")
		}
	}
}
