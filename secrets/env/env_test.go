package env

import (
	"strings"
	"testing"
)

func TestFetch(t *testing.T) {
	t.Setenv("SALLYPORT_TEST_KEY", "REAL\n")
	t.Setenv("SALLYPORT_TEST_EMPTY", "")
	t.Setenv("SALLYPORT_TEST_BAD", "REAL\r\nX-Evil: 1")
	for name, tt := range map[string]struct{ want, err string }{
		"SALLYPORT_TEST_KEY":    {want: "REAL"},
		"SALLYPORT_TEST_EMPTY":  {err: "environment variable SALLYPORT_TEST_EMPTY: value is empty"},
		"SALLYPORT_TEST_BAD":    {err: "control character"},
		"SALLYPORT_TEST_NOT_IN": {err: "environment variable SALLYPORT_TEST_NOT_IN is not set"},
	} {
		s, err := New(Config{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		f, err := s.Fetch(t.Context())
		if tt.err == "" {
			if err != nil || f.Value.Reveal() != tt.want || f.TTL != 0 {
				t.Errorf("%s: %q, %v, %v", name, f.Value.Reveal(), f.TTL, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "REAL") || !f.Value.IsZero() {
			t.Errorf("%s: error %v, want %q", name, err, tt.err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, name := range []string{"", "A=B", "A\x00"} {
		if _, err := New(Config{Name: name}); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}
