package secrets

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tlsServer is a server and the file of its certificate.
func tlsServer(t *testing.T, h http.HandlerFunc) (address, caFile string) {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.URL, file
}

func TestClientErrorsQuoteNothing(t *testing.T) {
	const hidden = "REAL-4c1f"
	for name, tt := range map[string]struct {
		code int
		body string
		want string
	}{
		"ok":             {200, `{"token":"` + hidden + `"}`, ""},
		"created":        {201, `{"token":"` + hidden + `"}`, ""},
		"OAuth error":    {400, `{"error":"invalid_grant","error_description":"` + hidden + `"}`, "answers with status 400: invalid_grant"},
		"odd error":      {400, `{"error":"` + hidden + `"}`, "answers with status 400"},
		"error":          {500, hidden, "answers with status 500"},
		"redirect":       {302, hidden, "answers with status 302"},
		"no JSON":        {200, hidden, "answers with something that is no JSON of the form expected"},
		"too long":       {200, `{"token":"` + strings.Repeat("x", maxAnswer) + `"}`, "the answer is too long"},
		"wrong type":     {200, `{"token":["` + hidden + `"]}`, "answers with something that is no JSON of the form expected"},
		"no body at all": {200, ``, "answers with something that is no JSON of the form expected"},
	} {
		t.Run(name, func(t *testing.T) {
			address, ca := tlsServer(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.code)
				fmt.Fprint(w, tt.body)
			})
			c, err := NewClient(ca)
			if err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequest(http.MethodPost, address+"/token", strings.NewReader("a=b"))
			if err != nil {
				t.Fatal(err)
			}
			var out struct{ Token string }
			err = c.JSON(context.Background(), req, &out)
			if tt.want == "" {
				if err != nil || out.Token != hidden {
					t.Errorf("got %q, %v", out.Token, err)
				}
				return
			}
			if err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

func TestClientVerifies(t *testing.T) {
	address, _ := tlsServer(t, func(http.ResponseWriter, *http.Request) { t.Error("it was asked") })
	c, err := NewClient("")
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.JSON(context.Background(), req, nil); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("error %v", err)
	}
	for _, bad := range []string{filepath.Join(t.TempDir(), "none"), "/dev/null"} {
		if _, err := NewClient(bad); err == nil {
			t.Errorf("%s was taken for roots", bad)
		}
	}
}

func TestEndpoint(t *testing.T) {
	for text, ok := range map[string]bool{
		"https://login.example/token": true, "https://login.example:8443/a?b=c": true, "http://127.0.0.1:8200/x": true, "http://[::1]:1/": true,
		"http://login.example/": false, "login.example": false, "": false, "https://": false, "https://u:p@login.example/": false,
		"https://login.example/#x": false, "file:///etc/passwd": false, "http://127.0.0.1.example/": false,
	} {
		if _, err := Endpoint(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestRSAKey(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "no PEM": "REAL-4c1f", "no key": "-----BEGIN PRIVATE KEY-----\nUkVBTC00YzFm\n-----END PRIVATE KEY-----\n",
		"of a curve": "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n",
	} {
		if _, err := RSAKey([]byte(text)); err == nil || strings.Contains(err.Error(), "REAL") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
