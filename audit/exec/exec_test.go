package exec

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport/audit"
)

func notice() audit.Alert {
	return audit.Alert{ID: "01", Name: "exfil\nX=1", State: audit.Firing, Severity: audit.Critical, Message: "$(touch /tmp/x)"}
}

func send(t *testing.T, c Config) error {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s.Send(t.Context(), notice())
}

func TestSend(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "S3CR3T")
	dir := t.TempDir()
	script := `cat > ` + dir + `/in; env > ` + dir + `/env`
	if err := send(t, Config{Command: []string{"/bin/sh", "-c", script}, Env: []string{"TEAM=sec"}}); err != nil {
		t.Fatal(err)
	}
	in, err := os.ReadFile(filepath.Join(dir, "in"))
	if err != nil {
		t.Fatal(err)
	}
	var a audit.Alert
	if err := json.Unmarshal(in, &a); err != nil || a.Message != notice().Message || !strings.HasSuffix(string(in), "}\n") {
		t.Errorf("input %s, %v", in, err)
	}
	env, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`SALLYPORT_ALERT=exfil\nX=1` + "\n", "SALLYPORT_STATE=firing\n", "SALLYPORT_ID=01\n", "TEAM=sec\n"} {
		if !strings.Contains(string(env), want) {
			t.Errorf("environment %s lacks %s", env, want)
		}
	}
	if strings.Contains(string(env), "S3CR3T") {
		t.Error("the gateway's environment is handed on")
	}
}

func TestFailures(t *testing.T) {
	err := send(t, Config{Command: []string{"/bin/sh", "-c", `printf 'no\033[2J'; exit 3`}})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || strings.Contains(err.Error(), "\x1b") || audit.IsPermanent(err) {
		t.Errorf("error %q", err)
	}
	err = send(t, Config{Command: []string{"/bin/sh", "-c", `printf 'not now\n\n  later\n'; exit 3`}})
	if err == nil || !strings.HasSuffix(err.Error(), "exit status 3: not now later") {
		t.Errorf("error %q", err)
	}
	err = send(t, Config{Command: []string{"/bin/sh", "-c", "exit 4"}})
	if err == nil || !strings.HasSuffix(err.Error(), "exit status 4") {
		t.Errorf("error %q", err)
	}
	if err := send(t, Config{Command: []string{"/does/not/exist"}}); err == nil {
		t.Error("a command that is not there succeeded")
	}
	start := time.Now()
	err = send(t, Config{Command: []string{"/bin/sh", "-c", "sleep 60 & sleep 60"}, Timeout: 50 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "longer than 50ms") || time.Since(start) > 30*time.Second {
		t.Errorf("error %v after %s", err, time.Since(start))
	}
	err = send(t, Config{Command: []string{"/bin/sh", "-c", "yes | head -c 100000; exit 1"}})
	if err == nil || len(err.Error()) > 1000 {
		t.Errorf("error of %d bytes", len(err.Error()))
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []Config{{}, {Command: []string{""}}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}
