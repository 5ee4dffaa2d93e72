package secrets

import (
	"errors"
	"testing"
)

func TestUse(t *testing.T) {
	s, err := Open(Options{Specs: []Spec{{Name: "API_KEY", Source: &fake{value: "hunter2"}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	own := errors.New("own")
	var got string
	if err := s.Use(t.Context(), "API_KEY", func(v string) error { got = v; return own }); !errors.Is(err, own) || got != "hunter2" {
		t.Errorf("handed out %q, %v", got, err)
	}
	if err := s.Use(t.Context(), "OTHER", func(string) error { t.Error("handed out"); return nil }); !errors.Is(err, ErrUnknown) {
		t.Errorf("another name: %v", err)
	}
}
