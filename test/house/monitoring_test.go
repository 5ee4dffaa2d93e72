package house

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMonitoringExamples: the rules pass promtool's own tests, and neither
// they nor the dashboard use a metric that the gateway does not have.
func TestMonitoringExamples(t *testing.T) {
	dir := filepath.Join(top, "examples", "monitoring")
	for _, args := range [][]string{{"check", "config", "prometheus.yml"}, {"test", "rules", "rules_test.yml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	var dashboard struct{ Panels []json.RawMessage }
	if err := json.Unmarshal([]byte(read(t, "examples/monitoring/dashboard.json")), &dashboard); err != nil || len(dashboard.Panels) == 0 {
		t.Fatalf("dashboard: %d panels, %v", len(dashboard.Panels), err)
	}
	code := read(t, "cmd/sallyport/metrics.go")
	var known []string
	for _, m := range regexp.MustCompile(`"([a-z_]+)", "[A-Z]`).FindAllStringSubmatch(code, -1) {
		known = append(known, "sallyport_"+m[1])
	}
	for _, file := range []string{"rules.yml", "dashboard.json"} {
		for _, used := range regexp.MustCompile(`sallyport_[a-z_]+`).FindAllString(read(t, "examples/monitoring/"+file), -1) {
			if !slices.Contains(known, strings.TrimSuffix(used, "_bucket")) {
				t.Errorf("%s uses %s, which the gateway does not have", file, used)
			}
		}
	}
}
