package policyfile

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestManyProblemsArePlaced: a file is read again once for all its problems,
// of which the first are placed at their values.
func TestManyProblemsArePlaced(t *testing.T) {
	var b strings.Builder
	b.WriteString("sandbox \"ci\" {\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "  allow \"h%d.test\" { paths = [\"no-slash\"] }\n", i)
	}
	b.WriteString("}\n")
	begun := time.Now()
	_, diags := ParseSet(map[string][]byte{"p.hcl": []byte(b.String())}, 1, Options{})
	if took := time.Since(begun); took > 20*time.Second { // as it does when the file is read for each
		t.Errorf("%d problems took %v", diags.Len(), took)
	}
	at := map[int]int{} // by column
	for _, d := range diags.List() {
		at[d.Pos.Column]++
	}
	const ofBlock, most = 3, 5000
	if diags.Len() != most || at[ofBlock] != most-maxPlaced {
		t.Errorf("%d problems, at columns %v", diags.Len(), at)
	}
}
