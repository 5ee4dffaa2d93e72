//go:build linux

package secrets_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"sallyport/test/lab"
)

// theKeys are the real credentials.
var theKeys = awsKeys{id: "AKIAREALKEYID0000001", key: "REALsecretKEY/7f+2c91bd0aQ", token: "REALtoken//5be1c0+a9f7=="}

func awsPolicy(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf(`
secret "AWS_KEY" {
  hosts = ["*.aws.test"]
  source "aws" {
    credentials_file = %q
    services         = ["s3", "dynamodb", "sts"]
    regions          = ["eu-west-1"]
  }
}
sandbox "s1" {
  allow "*.aws.test" {
    addresses = DOCS
    inject    = ["AWS_KEY"]
  }
  allow "*.elsewhere.test" { addresses = DOCS }
}
`, file(t, fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\naws_session_token = %s\n", theKeys.id, theKeys.key, theKeys.token)))
}

// awsHosts are names of origins that take requests of theKeys alone. It
// returns what they took, and the signatures that they sent back.
func awsHosts(t *testing.T, hosts ...string) (took, echoed func() []string) {
	t.Helper()
	var mu sync.Mutex
	var taken, signatures []string
	for _, h := range hosts {
		origin(h).SetHandler(theKeys.origin(func(w http.ResponseWriter, r *http.Request, body []byte) {
			mu.Lock()
			defer mu.Unlock()
			taken = append(taken, fmt.Sprintf("%s %s%s %d %s", r.Method, r.Host, r.URL.Path, len(body), r.Header.Get("X-Amz-Content-Sha256")))
			switch {
			case strings.Contains(r.Header.Get("X-Amz-Target"), "ListTables"):
				w.Header().Set("Content-Type", "application/x-amz-json-1.0")
				_, _ = io.WriteString(w, `{"TableNames":["one"]}`)
			case r.Method == http.MethodGet:
				_, sum, _ := strings.Cut(r.Header.Get("Authorization")+"&"+r.URL.RawQuery, "Signature=")
				signatures = append(signatures, sum[:64])
				_, _ = io.WriteString(w, "an object of "+theKeys.key+", signed "+sum)
			default:
				w.Header().Set("Etag", `"e"`)
			}
		}, func(err error) { t.Error(err) }))
	}
	tell := func(list *[]string) func() []string {
		return func() []string { mu.Lock(); defer mu.Unlock(); return *list }
	}
	return tell(&taken), tell(&signatures)
}

// TestAWSClients: boto3, unmodified, whose keys are
// placeholders, reach services that take the real ones alone. SEC-17, SEC-23.
func TestAWSClients(t *testing.T) {
	taken, signatures := awsHosts(t, "s3.aws.test", "bucket.s3.aws.test", "dynamodb.aws.test")
	const script = `
import io, os, boto3, urllib.request, ssl
from botocore.config import Config
def client(name, **kw):
    return boto3.client(name, region_name="eu-west-1", endpoint_url="https://%s.aws.test" % name, config=Config(retries={"max_attempts": 1}, **kw))
s3 = client("s3")
s3.put_object(Bucket="bucket", Key="a key/with+signs", Body=b"x" * 70000)
s3.put_object(Bucket="bucket", Key="stream", Body=io.BytesIO(b"y" * 100000))
print(s3.get_object(Bucket="bucket", Key="a key/with+signs")["Body"].read())
url = client("s3", signature_version="s3v4").generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "signed"}, ExpiresIn=60)
print(urllib.request.urlopen(url, context=ssl.create_default_context(cafile=os.environ["AWS_CA_BUNDLE"])).read())
print(client("dynamodb").list_tables()["TableNames"])
`
	r := world.lab.Run(t, lab.RunOptions{Policy: world.lab.MustPolicy(t, awsPolicy(t), ""), Sandbox: "s1", Argv: []string{"/usr/bin/python3", "-c", script},
		Env: []string{"AWS_EC2_METADATA_DISABLED=true"}})
	if r.Code != 0 || !strings.Contains(r.Stdout, "['one']") || strings.Count(r.Stdout, "an object of "+strings.Repeat("*", len(theKeys.key))) != 2 {
		t.Errorf("exit %d: %s\n%s", r.Code, r.Stdout, r.Stderr)
	}
	for _, secret := range append(signatures(), theKeys.key, theKeys.token) {
		if strings.Contains(r.Stdout+r.Stderr, secret) {
			t.Error("the sandbox received a real key or signature")
		}
	}
	if got := taken(); len(got) != 5 {
		t.Errorf("the services took %q", got)
	}
}

// TestAWSSignedChunks: a payload in signed chunks is signed anew while it
// streams.
func TestAWSSignedChunks(t *testing.T) {
	s := start(t, awsPolicy(t), theKeys.key)
	taken, _ := awsHosts(t, "s3.aws.test")
	fake := ";chunk-signature=" + strings.Repeat("0", 64) + "\r\n"
	body := "10000" + fake + strings.Repeat("a", 65536) + "\r\n" + "3" + fake + "abc\r\n" + "0" + fake + "\r\n"
	for _, h2 := range []bool{false, true} {
		a := s.do(t, s.Client(t, h2), lab.NewRequest(t, "PUT", "https://s3.aws.test/bucket/key", body,
			"X-Amz-Date: 20261129T000000Z", "X-Amz-Content-Sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "X-Amz-Decoded-Content-Length: 65539", "Content-Encoding: aws-chunked",
			"X-Amz-Security-Token: fake", "Authorization: AWS4-HMAC-SHA256 Credential=$AWS_KEY/20261129/eu-west-1/s3/aws4_request, SignedHeaders=content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length, Signature="+strings.Repeat("0", 64)))
		passed(t, a)
	}
	for _, part := range []string{theKeys.key, theKeys.token} {
		refused(t, s.get(t, "https://a.elsewhere.test/?x="+url.QueryEscape(part)), "secret_exfiltration")
	}
	if got := taken(); len(got) != 2 || !strings.Contains(got[0], fmt.Sprint(len(body))) {
		t.Errorf("the service took %q", got)
	}
}

// TestAWSRefused: a fake signature goes nowhere: not to another service or
// region, not to another host, not in another form, and no other key to an
// approved host.
func TestAWSRefused(t *testing.T) {
	s := start(t, awsPolicy(t), theKeys.key)
	const host, other = "refuse.aws.test", "a.elsewhere.test"
	signed := func(scope string) string {
		return "Authorization: AWS4-HMAC-SHA256 Credential=" + scope + ", SignedHeaders=host, Signature=" + strings.Repeat("0", 64)
	}
	for _, tt := range []struct{ name, host, target, line, reason string }{
		{"another region", host, "/", signed("$AWS_KEY/20261129/us-east-1/s3/aws4_request"), "placeholder_place"},
		{"another service", host, "/", signed("$AWS_KEY/20261129/eu-west-1/iam/aws4_request"), "placeholder_place"},
		{"another host", other, "/", signed("$AWS_KEY/20261129/eu-west-1/s3/aws4_request"), "placeholder_leak"},
		{"another host, presigned", other, "/?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%24AWS_KEY%2F20261129%2Feu-west-1%2Fs3%2Faws4_request&X-Amz-SignedHeaders=host&X-Amz-Signature=00", "X: y", "placeholder_leak"},
		{"as a bearer", host, "/", "Authorization: Bearer $AWS_KEY", "placeholder_place"},
		{"asymmetric", host, "/", "Authorization: AWS4-ECDSA-P256-SHA256 Credential=$AWS_KEY/20261129/s3/aws4_request, SignedHeaders=host, Signature=00", "placeholder_place"},
	} {
		a := s.get(t, "https://"+tt.host+tt.target, tt.line)
		refused(t, a, tt.reason)
		if tt.name == "asymmetric" && !strings.Contains(a.Body, "Signature Version 4A") {
			t.Errorf("the refusal says %q", a.Body)
		}
		if !origin(tt.host).Silent() {
			t.Errorf("%s: the origin saw %q", tt.name, origin(tt.host).Raw())
		}
	}
	form := "--b\r\nContent-Disposition: form-data; name=\"x-amz-credential\"\r\n\r\n$AWS_KEY/20261129/eu-west-1/s3/aws4_request\r\n--b\r\nContent-Disposition: form-data; name=\"x-amz-signature\"\r\n\r\n00\r\n--b--\r\n"
	for reason, body := range map[string]string{"placeholder_place": form, "foreign_credential": strings.Replace(form, "$AWS_KEY", "AKIAATTACKER", 1)} {
		for _, h2 := range []bool{false, true} {
			a := s.do(t, s.Client(t, h2), lab.NewRequest(t, "POST", "https://"+host+"/", body, "Content-Type: multipart/form-data; boundary=b"))
			refused(t, a, reason)
			if !strings.Contains(a.Body, "form") || !origin(host).Silent() {
				t.Errorf("%s: the refusal says %q", reason, a.Body)
			}
		}
	}
	passed(t, s.get(t, "https://"+host+"/?X-Amz-Signature=00&a=1", signed("AKIAATTACKER/20261129/eu-west-1/s3/aws4_request")))
	if q := last(t, host); len(q.Header["Authorization"]) > 0 || q.Target != "/?a=1" {
		t.Errorf("a key of the sandbox's own went out: %+v", q)
	}
}
