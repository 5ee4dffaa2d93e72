package secrets

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestCompound(t *testing.T) {
	v, err := Compound("AKIAEXAMPLE", "the-key", "the-token")
	if err != nil {
		t.Fatal(err)
	}
	if got := v.Reveal(); got != "AKIAEXAMPLE:the-key:the-token" {
		t.Errorf("it reveals %q", got)
	}
	var parts []string
	for _, p := range v.Parts() {
		parts = append(parts, p.Reveal())
	}
	if want := []string{"the-key", "the-token"}; !slices.Equal(parts, want) {
		t.Errorf("its parts are %q, want %q", parts, want)
	}
	if got := fmt.Sprintf("%v %+v %#v %s", v, v.Parts(), v, v.Parts()[0]); got != "[secret] [[secret] [secret]] [secret] [secret]" {
		t.Errorf("it prints as %s", got)
	}
	for _, bad := range [][]string{{"id", "a:b"}, {"id", ""}, {"", "key"}, {"id", "a\nb"}} {
		if _, err := Compound(bad[0], bad[1:]...); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestHeldParts: what is looked for and masked are the parts, also those of
// a value that was replaced.
func TestHeldParts(t *testing.T) {
	e := entry{spec: Spec{Name: "AWS_KEY"}, past: &Past{}}
	for i := range 2 {
		v, err := Compound("id", fmt.Sprintf("key-%d", i), "token")
		if err != nil {
			t.Fatal(err)
		}
		e.take(Fetched{Value: v}, time.Now(), time.Hour)
	}
	var got []string
	for _, h := range e.past.Held() {
		got = append(got, h.Value.Reveal())
	}
	if want := []string{"key-1", "token", "key-0", "token"}; !slices.Equal(got, want) {
		t.Errorf("held %q, want %q", got, want)
	}
}

func TestBlob(t *testing.T) {
	v, err := Blob([]byte("-----BEGIN\nlines\n"), "a-part")
	if err != nil || v.Reveal() != "-----BEGIN\nlines\n" || len(v.Parts()) != 1 || v.Parts()[0].Reveal() != "a-part" {
		t.Errorf("%q %v", v.Reveal(), err)
	}
	if _, err := Blob(nil); err == nil {
		t.Error("nothing was taken")
	}
}
