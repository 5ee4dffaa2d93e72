package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sallyport/gateway"
)

// TestComparePolicyCall holds the answers of the control socket's plan: what
// a new policy would change, or what is wrong with it.
func TestComparePolicyCall(t *testing.T) {
	c := &control{d: &daemonProcess{stack: &stack{gateway: &gateway.Gateway{Deps: gateway.Deps{Now: time.Now}}, loader: &loader{}}}}
	call := func(body string) (int, string) {
		w := httptest.NewRecorder()
		c.comparePolicy(w, httptest.NewRequest(http.MethodPost, "/v1/policy/plan", strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	code, body := call(`{"files": {"ci.hcl": "sandbox \"ci\" {\n  allow \"a.test\" {}\n}\n"}}`)
	var p plan
	if err := json.Unmarshal([]byte(body), &p); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s: %v", code, body, err)
	}
	if p.Widenings != 1 || p.Live == nil || p.Live.Open != 0 {
		t.Errorf("plan %s", body)
	}
	if text := p.text(); !strings.Contains(text, "WIDENS + any method  https://a.test  [ci.hcl:2]") || !strings.Contains(text, "0 of 0 live connections would be cut") {
		t.Errorf("text %s", text)
	}
	if code, body := call(`{"files": {"ci.hcl": "sandbox \"ci\" {\n  alow \"a.test\" {}\n}\n"}}`); code != http.StatusUnprocessableEntity || !strings.Contains(body, "did you mean") {
		t.Errorf("a policy with an error: %d %s", code, body)
	}
	for _, bad := range []string{`{"paths": ["/etc"]}`, `{`, `[]`} {
		if code, body := call(bad); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, code, body)
		}
	}
}
