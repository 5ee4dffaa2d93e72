package inject

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"sallyport/policy"
)

// TestSignedPairs: so it is with a form of pairs, as requests of version 2 are
// signed; one without a signature goes out as it came.
func TestSignedPairs(t *testing.T) {
	for name, tt := range map[string]struct {
		media, body string
		foreign     policy.Foreign
		reason      policy.Reason
	}{
		"version 2":        {formType, "Action=ListQueues&AWSAccessKeyId=AKIAATTACKER&Signature=00", policy.ForeignStrip, policy.ForeignCredential},
		"in another case":  {formType + "; charset=utf-8", "a=b&aws%61ccesskeyid=AKIAATTACKER", policy.ForeignBlock, policy.ForeignCredential},
		"version 4":        {formType, "a=b;X-Amz-Credential=AKIAATTACKER", policy.ForeignStrip, policy.ForeignCredential},
		"far behind":       {formType, "a=" + strings.Repeat("x", 200<<10) + "&AWSAccessKeyId=AKIAATTACKER", policy.ForeignStrip, policy.ForeignCredential},
		"too far behind":   {formType, "a=" + strings.Repeat("x", 1<<20) + "&AWSAccessKeyId=AKIAATTACKER", policy.ForeignStrip, policy.BodyTooLarge},
		"type in two ways": {formType + "; charset*=utf-8''utf-16", "a=b", policy.ForeignStrip, policy.UninspectableBody},
		"other charset":    {formType + "; charset=utf-16", "a=b", policy.ForeignStrip, policy.UninspectableBody},
		"charset utf8":     {formType + "; charset=utf8", "a=b", policy.ForeignStrip, ""},
		"file, starred":    {partType, part("x", `Content-Disposition: form-data; name="a"; filename="a"; filename*=utf-8''%C3%A9`, "Content-Type: text/plain; charset=utf8") + "--b0--\r\n", policy.ForeignStrip, ""},
		"file, starred, 2": {partType, part("x\r\n\x00--b", `Content-Disposition: form-data; name=a; filename*="UTF-8''a"`) + "--b0--\r\n", policy.ForeignBlock, ""},
		"let pass":         {formType, "AWSAccessKeyId=AKIAATTACKER", policy.ForeignPass, ""},
		"no signature":     {formType, "Action=AssumeRoleWithSAML&SAMLAssertion=" + strings.Repeat("AWSAccessKeyId", 10000) + "&&=", policy.ForeignStrip, ""},
	} {
		r := signRequest("POST", "https://s3.amazonaws.com/x", "Content-Type: "+tt.media)
		r.Body, r.ContentLength = io.NopCloser(iotest.HalfReader(strings.NewReader(tt.body))), int64(len(tt.body))
		in := input(r, "AWS_KEY")
		in.Host, in.Decision.Rule = "s3.amazonaws.com", &policy.Rule{Foreign: tt.foreign}
		p, refusal := signTable().Plan(in)
		if refusal != nil {
			if refusal.Reason != tt.reason {
				t.Errorf("%s: %v", name, refusal)
			}
			continue
		}
		err := p.Apply(r, nil)
		if tt.reason != "" {
			if !isRefusal(err, tt.reason) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if got, rerr := io.ReadAll(r.Body); err != nil || rerr != nil || string(got) != tt.body {
			t.Errorf("%s: %d bytes of %d, %v %v", name, len(got), len(tt.body), err, rerr)
		}
	}
}
