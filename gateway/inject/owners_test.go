package inject

import (
	"fmt"
	"runtime"
	"testing"

	"sallyport/policy"
)

// TestFirstPlaceholdersOfManySandboxes holds that what the first request of a
// sandbox after a reload costs does not hang on how many sandboxes have made
// one before.
func TestFirstPlaceholdersOfManySandboxes(t *testing.T) {
	const sandboxes = 4000
	names := make([]string, sandboxes)
	for i := range names {
		names[i] = fmt.Sprintf("s%d", i)
	}
	table := NewTable([]Secret{{Name: "API_KEY", Spec: &policy.Secret{Placeholder: "key_{rand:24}"}, Covers: covers(goodHost)}}, names, testKey)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, name := range names {
		if own := table.owners.of(name); own[table.Placeholder(name, "API_KEY")] == nil {
			t.Fatalf("the placeholder of %s is not known to be its own", name)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / sandboxes; each > 8<<10 {
		t.Errorf("%d bytes were allocated for each of %d sandboxes", each, sandboxes)
	}
	if other := table.owners.of("new"); other[table.Placeholder("new", "API_KEY")] == nil {
		t.Error("the placeholder of a sandbox that the table does not name is not known")
	}
}
