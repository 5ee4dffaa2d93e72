package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestOldRunsAreRemovedWhenTheyStayOld: a clock that goes forward by mistake
// takes no log of a run with it.
func TestOldRunsAreRemovedWhenTheyStayOld(t *testing.T) {
	dir := t.TempDir()
	run := filepath.Join(dir, "1")
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(run, "state.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	wrong := now.Add(400 * 24 * time.Hour)
	for i, step := range []struct {
		at   time.Time
		kept bool
	}{
		{now, true},
		{wrong, true},
		{wrong.Add(30 * time.Minute), true},
		{now.Add(time.Hour), true}, // the clock is right again
		{wrong.Add(2 * time.Hour), true},
		{wrong.Add(4 * time.Hour), false}, // and old it is
	} {
		if err := pruneRuns(dir, step.at); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(run); (err == nil) != step.kept {
			t.Errorf("look %d: kept is %v, want %v", i, err == nil, step.kept)
		}
	}
}
