package secrets

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestPastOutlivesStores: a value is known before it can be had, and for an
// hour after the last store that had it in use was closed.
func TestPastOutlivesStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		past := &Past{}
		held := func() (out []string) {
			for _, h := range past.Held() {
				out = append(out, h.Name+" "+h.Value.Reveal())
			}
			return out
		}
		want := func(list ...string) {
			t.Helper()
			if got := held(); !slices.Equal(got, list) {
				t.Errorf("held %q, want %q", got, list)
			}
		}
		open := func(src Source) *Store {
			s, err := Open(Options{Specs: []Spec{{Name: "KEY", Kind: "fake", Source: src}}, Past: past})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		src := &fake{value: "one"}
		a := open(src)
		if before := past.Changes(); before != 0 {
			t.Errorf("%d changes of nothing", before)
		}
		if err := a.Check(t.Context(), "KEY"); err != nil || past.Changes() != 1 {
			t.Fatal(err, past.Changes())
		}
		src.set(func(f *fake) { f.value = "two" })
		if err := a.Check(t.Context(), "KEY"); err != nil || past.Changes() != 2 {
			t.Fatal(err, past.Changes())
		}
		want("KEY two", "KEY one")
		b := open(&fake{value: "two"})
		if err := b.Check(t.Context(), "KEY"); err != nil || past.Changes() != 2 {
			t.Fatal(err, past.Changes())
		}
		time.Sleep(40 * time.Minute)
		_ = a.Close()
		_ = a.Close()
		want("KEY two", "KEY one")
		time.Sleep(30 * time.Minute)
		want("KEY two") // b has it
		_ = b.Close()
		time.Sleep(59 * time.Minute)
		want("KEY two")
		time.Sleep(2 * time.Minute)
		want()
	})
}
