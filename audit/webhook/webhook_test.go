package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sallyport/audit"
)

func notice() audit.Alert {
	return audit.Alert{ID: "01", Name: "exfiltration", State: audit.Firing, Severity: audit.Critical, Count: 2, LastSeen: time.Unix(1700000000, 0).UTC(), Message: "m\x1b[2J"}
}

// newSink returns a sink to h that signs with "key".
func newSink(t *testing.T, h http.HandlerFunc) *Sink {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	s, err := New(Config{URL: audit.Fixed(server.URL + "/hook?token=S3CR3T"), Secret: audit.Fixed("key"), Headers: map[string]string{"X-Team": "sec"}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSendIsSigned(t *testing.T) {
	var got audit.Alert
	s := newSink(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := Verify("key", r.Header.Get(SignatureHeader), body, time.Now(), time.Minute); err != nil {
			t.Error(err)
		}
		if err := Verify("other", r.Header.Get(SignatureHeader), body, time.Now(), time.Minute); err == nil {
			t.Error("another secret verifies")
		}
		if r.Header.Get(DeliveryHeader) != "01-firing-1700000000000" || r.Header.Get("X-Team") != "sec" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("header %v", r.Header)
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
	})
	if err := s.Send(t.Context(), notice()); err != nil {
		t.Fatal(err)
	}
	if got.Name != "exfiltration" || got.Count != 2 {
		t.Errorf("received %+v", got)
	}
}

func TestErrors(t *testing.T) {
	for name, test := range map[string]struct {
		status    int
		permanent bool
	}{
		"gone": {http.StatusGone, true}, "bad request": {http.StatusBadRequest, true}, "redirect": {http.StatusFound, true},
		"busy": {http.StatusTooManyRequests, false}, "down": {http.StatusBadGateway, false}, "timeout": {http.StatusRequestTimeout, false},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			s := newSink(t, func(w http.ResponseWriter, r *http.Request) {
				calls++
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(test.status)
				io.WriteString(w, "no\x1b[2J")
			})
			err := s.Send(t.Context(), notice())
			if err == nil || audit.IsPermanent(err) != test.permanent || calls != 1 {
				t.Errorf("error %v, permanent %v, %d calls", err, audit.IsPermanent(err), calls)
			}
			if strings.ContainsAny(err.Error(), "\x1b\n") || strings.Contains(err.Error(), "S3CR3T") {
				t.Errorf("error %q", err)
			}
		})
	}
}

func TestAUD02ErrorsDoNotShowTheURL(t *testing.T) {
	for _, url := range []string{"http://127.0.0.1:1/S3CR3T", "http://S3CR3T.invalid:bad/", "::S3CR3T"} {
		s, err := New(Config{URL: audit.Fixed(url), Secret: audit.Fixed("key")})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(t.Context(), notice()); err == nil || strings.Contains(err.Error(), "S3CR3T") {
			t.Errorf("error %v", err)
		}
	}
	down := errors.New("source down")
	s, err := New(Config{URL: audit.Fixed("http://127.0.0.1:1"), Secret: func(context.Context) (string, error) { return "", down }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(t.Context(), notice()); !errors.Is(err, down) || audit.IsPermanent(err) {
		t.Errorf("error %v", err)
	}
}

func TestVerifyRefusals(t *testing.T) {
	now := time.Unix(1700000000, 0)
	body := []byte("{}")
	good := Sign("key", now, body)
	if err := Verify("key", good, body, now.Add(time.Minute), 5*time.Minute); err != nil {
		t.Fatal(err)
	}
	for name, sig := range map[string]string{"empty": "", "no time": "v1=00", "time": strings.Replace(good, "t=17", "t=18", 1), "short": good[:len(good)-2], "rubbish": "t=x,v1=zz"} {
		if err := Verify("key", sig, body, now, 5*time.Minute); err == nil {
			t.Errorf("%s: verifies", name)
		}
	}
	if err := Verify("key", good, body, now.Add(time.Hour), 5*time.Minute); err == nil {
		t.Error("an old one verifies")
	}
	if err := Verify("key", good, []byte("{ }"), now, 5*time.Minute); err == nil {
		t.Error("another body verifies")
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a webhook without a URL was made")
	}
}
