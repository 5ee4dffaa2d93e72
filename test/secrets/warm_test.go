//go:build linux

package secrets_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport/test/lab"
)

// TestKnownFromTheStart: the value of a service's secret is recognised in the
// sandbox's first request, before any has used it. One whose source is down
// holds nothing else up, and is known once the source has answered.
func TestKnownFromTheStart(t *testing.T) {
	const up, late = "REAL-issued-6e1f90b7c2", "REAL-late-0d44c1b95f"
	folder := filepath.Join(world.lab.Dir, world.lab.Unique("late"))
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	first, later := filepath.Join(folder, "first"), filepath.Join(folder, "value") // the run cannot change them
	if err := os.WriteFile(first, []byte(up), 0o644); err != nil {
		t.Fatal(err)
	}
	policy := strings.NewReplacer("UP", first, "LATER", later, "DOCS", lab.Documentation).Replace(`
secret "TOKEN" {
  hosts = ["api.warm.test"]
  source "exec" { command = ["/bin/cat", "UP"] }
}
secret "LATE" {
  hosts = ["api.warm.test"]
  source "exec" { command = ["/bin/cat", "LATER"] }
}
secret "HANGS" {
  hosts = ["api.warm.test"]
  source "exec" { command = ["/usr/bin/tail", "-f", "/dev/null"] }
}
sandbox "s1" {
  allow "api.warm.test" {
    addresses = DOCS
    inject    = ["TOKEN", "LATE", "HANGS"]
  }
  allow "other.warm.test" { addresses = DOCS }
}
`)
	s := &inside{Sandbox: world.lab.RunSandbox(t, lab.RunOptions{UID: lab.Nobody, Policy: policy, Sandbox: "s1"})}
	t.Cleanup(func() { s.search(t, up) })
	refused(t, s.get(t, "https://other.warm.test/?a="+up), "secret_exfiltration")
	passed(t, s.get(t, "https://other.warm.test/"))
	passed(t, s.get(t, "https://api.warm.test/", "Authorization: Bearer $TOKEN"))
	refused(t, s.get(t, "https://api.warm.test/", "Authorization: Bearer $LATE"), "secret_unavailable")
	if err := os.WriteFile(later, []byte(late), 0o644); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(60 * time.Second)
	for n := 0; ; n++ {
		a := s.get(t, fmt.Sprintf("https://other.warm.test/?n=%d&a=%s", n, late))
		if a.Reason() == "secret_exfiltration" {
			break
		}
		passed(t, a)
		if time.Now().After(deadline) {
			t.Fatal("the value that came late is not known")
		}
		time.Sleep(200 * time.Millisecond)
	}
	passed(t, s.do(t, s.Client(t, true), lab.NewRequest(t, "GET", "https://api.warm.test/", "", "Authorization: Bearer $LATE")))
}
