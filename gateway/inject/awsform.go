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

const (
	// maxFormFields is how much of a form of parts is held to see its fields,
	// in bytes. S3 takes 20 kB before the file, which is the last.
	maxFormFields = 64 << 10
	// maxFormPairs is how long a form of pairs may be, whose signature stands
	// anywhere, in bytes.
	maxFormPairs = 1 << 20
)

// formCheck looks whether a form is signed, as S3 lets browsers upload (POST
// policy), or as requests of version 2 are. Such a signature is over the policy
// or the fields in the form, with a key that is not the gateway's, and is not
// made anew.
type formCheck struct {
	pairs    bool   // it is application/x-www-form-urlencoded
	boundary string // of its parts, else
	own      string // name of the secret that signs
	foreign  bool   // one with another key may pass
}

// form plans to look into a form that goes where requests are signed.
func (s *scan) form(r *http.Request) *formCheck {
	if r.Method != http.MethodPost || !s.injects || s.resigned != nil {
		return nil
	}
	if text := strings.ToLower(strings.Join(r.Header["Content-Type"], ",")); !strings.Contains(text, "form-data") && !strings.Contains(text, "form-urlencoded") {
		return nil
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	unclear := err != nil || !plainType(r.Header) || !ascii(params["charset"])
	pairs := media == "application/x-www-form-urlencoded"
	if !unclear && !pairs && media != "multipart/form-data" {
		return nil
	}
	for _, n := range s.in.Decision.Inject {
		if c := s.t.creds[n]; c != nil && c.sign != nil && s.approved(c) {
			foreign := s.in.Decision.Rule != nil && s.in.Decision.Rule.Foreign == policy.ForeignPass
			if unclear && !foreign {
				s.refuse(policy.UninspectableBody, "the type of the form, which may be signed, cannot be read, or can be in two ways")
			}
			if pairs && foreign {
				return nil
			}
			return &formCheck{pairs: pairs, boundary: params["boundary"], own: n, foreign: foreign}
		}
	}
	return nil
}

// apply reads the fields of out's body and refuses one that is signed.
func (f *formCheck) apply(p *Plan, out *http.Request) error {
	if out.Body == nil || out.Body == http.NoBody {
		return nil
	}
	if f.pairs {
		return f.applyPairs(p, out)
	}
	head, err := p.readHeld(out.Body, maxFormFields)
	if err != nil {
		return err
	}
	out.Body = tee{io.MultiReader(bytes.NewReader(head), out.Body), out.Body}
	if h, ok := p.table.find.next(string(head), 0, p.own); ok && h.cred != nil && h.cred.sign != nil {
		return f.refuse(policy.PlaceholderPlace, h.cred.name+" cannot sign a form (POST policy); upload with a signed PUT, or a presigned URL")
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
			return f.refuse(policy.ForeignCredential, foreignForm)
		}
		if !f.plain(part) {
			return &Refusal{Reason: policy.UninspectableBody, Message: "the form, which may be signed, can be read in two ways"}
		}
	}
}

// foreignForm is said of a form with a signature.
const foreignForm = "the form is signed with a key that is not this gateway's"

func (f *formCheck) refuse(reason policy.Reason, message string) error {
	return &Refusal{Reason: reason, Message: message, Uses: []Use{{Name: f.own, Place: "form", Action: Withheld, Count: 1}}}
}

// applyPairs is apply for a form of pairs.
func (f *formCheck) applyPairs(p *Plan, out *http.Request) error {
	body, err := p.readHeld(out.Body, maxFormPairs+1)
	if err != nil {
		return err
	}
	if len(body) > maxFormPairs {
		return &Refusal{Reason: policy.BodyTooLarge, Message: "the form, which may be signed, is larger than the gateway holds of one"}
	}
	out.Body = tee{bytes.NewReader(body), out.Body}
	for pair := range bytes.FieldsFuncSeq(body, func(r rune) bool { return r == '&' || r == ';' }) {
		name, _, _ := bytes.Cut(pair, []byte("="))
		if name := strings.ToLower(unescape(string(name))); signsAlone(strings.Trim(name, " +\r\n\t")) && name != "x-amz-security-token" {
			return f.refuse(policy.ForeignCredential, foreignForm)
		}
	}
	return nil
}

// plain says whether a part is one field to everybody. A file may have its name
// in another charset as well: it says nothing of the field. A part that has it
// so, and is a file to some only, is held to what a field is.
func (f *formCheck) plain(part *multipart.Part) bool {
	const starred = "filename*"
	if partDoubtBut(part.Header, starred) != "" || nests(part.Header) {
		return false
	}
	if part.FileName() != "" && !strings.Contains(strings.ToLower(part.Header.Get("Content-Disposition")), starred) {
		return true // S3 takes a file as it is, and nothing behind it
	}
	line := delimiterLine{delimiter: []byte("--" + f.boundary)}
	line.begin()
	text, _ := io.ReadAll(part) // what is held ends in a part, too
	return line.find(text) < 0
}
