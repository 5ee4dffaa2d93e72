//go:build linux

package e2e_test

import (
	"os/exec"
	"testing"
)

// BenchmarkRunTrue is the time that a sandbox adds to a command, beside the
// command alone.
func BenchmarkRunTrue(b *testing.B) {
	l := world.lab
	for name, o := range map[string]int{"root": 0, "nobody": 65534} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if r := l.Run(b, withKey(o, closed, "true")); r.Code != 0 {
					b.Fatal(r.Stderr)
				}
			}
		})
	}
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
