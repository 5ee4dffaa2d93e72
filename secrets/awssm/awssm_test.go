package awssm

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"go.uber.org/goleak"

	"crypto/sha256"
	"encoding/hex"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testID  = "AKIAIOSFODNN7EXAMPLE"
	testKey = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
)

// server verifies signatures as the service does, and is a metadata service
// as well.
type server struct {
	*httptest.Server
	mu      sync.Mutex
	secrets map[string]string // id → answer
	session string
	expires time.Time
	roles   int
	status  int
}

func newServer(t *testing.T) *server {
	s := &server{secrets: map[string]string{}, expires: time.Now().Add(time.Hour)}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
		t.Setenv(name, "")
	}
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := r.Header.Get("X-Aws-Ec2-Metadata-Token") == "METADATA-TOKEN"
	role := func() {
		s.roles++
		_ = json.NewEncoder(w).Encode(map[string]any{"AccessKeyId": testID, "SecretAccessKey": testKey, "Token": s.session, "Expiration": s.expires.UTC().Format(time.RFC3339)})
	}
	switch {
	case r.Method == "PUT" && r.URL.Path == "/latest/api/token" && r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds") != "":
		fmt.Fprint(w, "METADATA-TOKEN")
	case r.Method == "GET" && r.URL.Path == "/latest/meta-data/iam/security-credentials/" && token:
		fmt.Fprint(w, "reader\n")
	case r.Method == "GET" && r.URL.Path == "/latest/meta-data/iam/security-credentials/reader" && token:
		role()
	case r.Method == "GET" && r.URL.Path == "/v2/credentials/task":
		role()
	case r.Method == "POST" && r.URL.Path == "/":
		s.secret(w, r)
	default:
		w.WriteHeader(http.StatusUnauthorized)
	}
}

func (s *server) secret(w http.ResponseWriter, r *http.Request) {
	fail := func(status int, kind string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"__type":"com.amazonaws.secretsmanager#%s","Message":"not for REAL"}`, kind)
	}
	body, _ := io.ReadAll(r.Body)
	if !s.signed(r, body) {
		fail(400, "InvalidSignatureException")
		return
	}
	if s.status != 0 {
		fail(s.status, "Odd_Kind<script>")
		return
	}
	var in struct{ SecretId string }
	if json.Unmarshal(body, &in) != nil || r.Header.Get("X-Amz-Target") != "secretsmanager.GetSecretValue" {
		fail(400, "ValidationException")
		return
	}
	answer, ok := s.secrets[in.SecretId]
	if !ok {
		fail(400, "ResourceNotFoundException")
		return
	}
	fmt.Fprint(w, answer)
}

// signed signs what came with the real key, and compares.
func (s *server) signed(r *http.Request, body []byte) bool {
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || time.Since(at).Abs() > 5*time.Minute || r.Header.Get("X-Amz-Security-Token") != s.session {
		return false
	}
	again, _ := http.NewRequest(r.Method, "http://"+r.Host+r.URL.Path, bytes.NewReader(body))
	for _, name := range []string{"Content-Type", "X-Amz-Target"} {
		again.Header.Set(name, r.Header.Get(name))
	}
	sum := sha256.Sum256(body)
	creds := aws.Credentials{AccessKeyID: testID, SecretAccessKey: testKey, SessionToken: s.session}
	err = v4.NewSigner().SignHTTP(r.Context(), creds, again, hex.EncodeToString(sum[:]), "secretsmanager", "eu-west-1", at)
	return err == nil && again.Header.Get("Authorization") == r.Header.Get("Authorization")
}

func secretString(text string) string {
	b, _ := json.Marshal(map[string]string{"Name": "app", "SecretString": text})
	return string(b)
}

func TestFetch(t *testing.T) {
	for name, tt := range map[string]struct {
		answer, field string
		config        func(*Config)
		server        func(*server)
		want, err     string
	}{
		"string":        {answer: secretString("REAL"), want: "REAL"},
		"field":         {answer: secretString(`{"user":"u","password":"REAL"}`), field: "password", want: "REAL"},
		"number":        {answer: secretString(`{"pin":12345678901}`), field: "pin", want: "12345678901"},
		"binary":        {answer: `{"SecretBinary":"` + base64.StdEncoding.EncodeToString([]byte("REAL")) + `"}`, want: "REAL"},
		"no field":      {answer: secretString(`{"a":"REAL"}`), field: "b", err: `has no field "b"`},
		"no object":     {answer: secretString("REAL"), field: "b", err: "is no JSON object"},
		"list":          {answer: secretString(`{"b":["REAL"]}`), field: "b", err: `field "b" is no string`},
		"empty":         {answer: secretString(""), err: "value is empty"},
		"nothing":       {answer: `{}`, err: "value is empty"},
		"line":          {answer: secretString("REAL\nX: y"), err: "control character"},
		"no JSON":       {answer: "REAL", err: "cannot be read"},
		"bad binary":    {answer: `{"SecretBinary":"REAL!"}`, err: "cannot be read"},
		"too long":      {answer: strings.Repeat("R", 2<<20), err: "longer than"},
		"no secret":     {config: func(c *Config) { c.ID = "other" }, err: "secret other: status 400: ResourceNotFoundException"},
		"wrong region":  {config: func(c *Config) { c.Region = "us-east-1" }, err: "InvalidSignatureException"},
		"service fails": {server: func(s *server) { s.status = 500 }, err: "status 500"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			t.Setenv("AWS_ACCESS_KEY_ID", testID)
			t.Setenv("AWS_SECRET_ACCESS_KEY", testKey)
			srv.secrets["app"] = tt.answer
			c := Config{ID: "app", Region: "eu-west-1", Field: tt.field, Endpoint: srv.URL}
			if tt.config != nil {
				tt.config(&c)
			}
			if tt.server != nil {
				tt.server(srv)
			}
			s, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			f, err := s.Fetch(t.Context())
			if tt.err == "" {
				if err != nil || f.Value.Reveal() != tt.want || f.TTL != defaultTTL {
					t.Errorf("%q, %v, %v", f.Value.Reveal(), f.TTL, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "REAL") || strings.Contains(err.Error(), "script") || !f.Value.IsZero() {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestWhoseCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials")
	text := "[default]\naws_access_key_id = " + testID + "\naws_secret_access_key=WRONG\n\n[ ci ]\n# a comment = x\naws_access_key_id=" + testID + "\naws_secret_access_key = " + testKey + "\naws_session_token = SESSION\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		env    map[string]string
		config func(*Config)
		server func(*server)
		err    string
	}{
		"environment":           {env: map[string]string{"AWS_ACCESS_KEY_ID": testID, "AWS_SECRET_ACCESS_KEY": testKey}},
		"with a session":        {env: map[string]string{"AWS_ACCESS_KEY_ID": testID, "AWS_SECRET_ACCESS_KEY": testKey, "AWS_SESSION_TOKEN": "SESSION"}, server: func(s *server) { s.session = "SESSION" }},
		"file":                  {config: func(c *Config) { c.CredentialsFile, c.Profile = file, "ci" }, server: func(s *server) { s.session = "SESSION" }},
		"file, wrong key":       {config: func(c *Config) { c.CredentialsFile = file }, err: "InvalidSignatureException"},
		"file, no such profile": {config: func(c *Config) { c.CredentialsFile, c.Profile = file, "x" }, err: `no keys for profile "x"`},
		"no file":               {config: func(c *Config) { c.CredentialsFile = "/no/such/file" }, err: "no such file"},
		"instance":              {server: func(s *server) { s.session = "SESSION" }},
		"container":             {env: map[string]string{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials/task"}},
		"container, wrong":      {env: map[string]string{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/x"}, err: "status 401 and no credentials"},
		"none":                  {config: func(c *Config) { c.NoInstance = true }, err: "none in the environment"},
		"no metadata service":   {config: func(c *Config) { c.Metadata = "http://127.0.0.1:1" }, err: "no metadata service answers"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			srv.secrets["app"] = secretString("REAL")
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			if tt.server != nil {
				tt.server(srv)
			}
			c := Config{ID: "app", Region: "eu-west-1", Endpoint: srv.URL, Metadata: srv.URL}
			if tt.config != nil {
				tt.config(&c)
			}
			s, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			f, err := s.Fetch(t.Context())
			if tt.err == "" && (err != nil || f.Value.Reveal() != "REAL") {
				t.Errorf("error %v", err)
			}
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if text := fmt.Sprintf("%+v %#v %v", s, s, err); strings.Contains(text, testKey) || strings.Contains(text, "SESSION") {
				t.Error("a key is printed")
			}
		})
	}
	t.Run("a role is kept until shortly before its end", func(t *testing.T) {
		srv := newServer(t)
		srv.secrets["app"] = secretString("REAL")
		s, err := New(Config{ID: "app", Region: "eu-west-1", Endpoint: srv.URL, Metadata: srv.URL})
		if err != nil {
			t.Fatal(err)
		}
		fetch := func(roles int) {
			t.Helper()
			if _, err := s.Fetch(t.Context()); err != nil || srv.roles != roles {
				t.Errorf("%v, %d roles asked for, want %d", err, srv.roles, roles)
			}
		}
		fetch(1)
		fetch(1)
		s.(*source).role.expires = time.Now().Add(early - time.Second)
		fetch(2)
	})
}

func TestNewRefuses(t *testing.T) {
	for want, c := range map[string]Config{
		"id is missing": {Region: "eu-west-1"}, "is no region": {ID: "x", Region: "eu-west-1.evil.test/"}, `region ""`: {ID: "x"},
		"is not https": {ID: "x", Region: "eu-west-1", Endpoint: "http://secrets.test"}, "negative": {ID: "x", Region: "eu-west-1", TTL: -1},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for region, want := range map[string]string{"eu-west-1": "https://secretsmanager.eu-west-1.amazonaws.com/", "cn-north-1": "https://secretsmanager.cn-north-1.amazonaws.com.cn/"} {
		s, err := New(Config{ID: "x", Region: region})
		if err != nil || s.(*source).endpoint != want {
			t.Errorf("%s: %v, %v", region, s, err)
		}
	}
}
