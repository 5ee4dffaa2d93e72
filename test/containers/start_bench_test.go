//go:build linux

package containers

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sallyport/test/lab"
)

// hooked starts an engine with the runtime of the examples, and a gateway that
// watches it.
func hooked(t testing.TB, binary string) (*engine, *lab.Gateway) {
	t.Helper()
	runtime, err := filepath.Abs(filepath.Join(hooks, "sallyport-runtime"))
	if err != nil {
		t.Fatal(err)
	}
	control := filepath.Join(t.TempDir(), "control.sock")
	t.Setenv("SALLYPORT", binary)
	t.Setenv("SALLYPORT_SOCKET", control)
	e, err := startEngine(world.lab, "--add-runtime", "sallyport="+runtime)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.close(); err != nil {
			t.Error(err)
		}
	})
	g := gatewayOf(t, e, ciPolicy)
	if err := os.Symlink(g.Socket(), control); err != nil {
		t.Fatal(err)
	}
	return e, g
}

// BenchmarkContainerStart runs containers without a network that end at once, in
// turns: not attached, attached by the engine's event, and attached by the
// runtime of the examples before their first instruction.
func BenchmarkContainerStart(b *testing.B) {
	binary := filepath.Join(b.TempDir(), "sallyport")
	if out, err := exec.Command("go", "build", "-o", binary, "sallyport/cmd/sallyport").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	old := world.lab.Binary
	world.lab.Binary = binary // without the race detector
	defer func() { world.lab.Binary = old }()
	e, _ := hooked(b, binary)
	label := []string{"--label", "sallyport.sandbox=ci"}
	ways := map[string][]string{"plain": nil, "event": label, "runtime": append([]string{"--runtime", "sallyport"}, label...)}
	order := []string{"plain", "event", "runtime"}
	const rounds = 31
	for b.Loop() {
		took := map[string][]float64{}
		for round := range rounds + 1 {
			for i := range order {
				way := order[(i+round)%len(order)]
				began := time.Now()
				e.docker(b, append(append([]string{"run", "--rm", "--network", "none"}, ways[way]...), image, "/bin/true")...)
				if round > 0 {
					took[way] = append(took[way], time.Since(began).Seconds()*1000)
				}
			}
		}
		for _, way := range order[1:] {
			b.ReportMetric(middle(added(took["plain"], took[way])), way+"-adds-ms")
		}
		b.ReportMetric(middle(took["plain"]), "plain-ms")
	}
}

// added are the differences of each round.
func added(plain, with []float64) []float64 {
	out := make([]float64, len(plain))
	for i := range plain {
		out[i] = with[i] - plain[i]
	}
	return out
}

func middle(list []float64) float64 {
	return slices.Sorted(slices.Values(list))[len(list)/2]
}
