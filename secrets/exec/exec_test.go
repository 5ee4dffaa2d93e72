package exec

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sallyport/secrets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shell(t *testing.T, script string, change func(*Config)) (secrets.Fetched, error) {
	t.Helper()
	c := Config{Command: []string{"/bin/sh", "-c", script}}
	if change != nil {
		change(&c)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s.Fetch(t.Context())
}

func TestNewRefuses(t *testing.T) {
	for want, c := range map[string]Config{
		"command is missing": {}, "not an absolute path": {Command: []string{"mint-token"}}, "negative": {Command: []string{"/x"}, TTL: -1},
		"NUL byte": {Command: []string{"/x", "a\x00"}}, "name of a variable": {Command: []string{"/x"}, Env: []string{"A=B"}},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestFetch(t *testing.T) {
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	for name, tt := range map[string]struct {
		script string
		config func(*Config)
		want   string
		least  time.Duration
		most   time.Duration
		err    string
	}{
		"raw":                     {script: "echo REAL", want: "REAL"},
		"raw without newline":     {script: "printf REAL", want: "REAL"},
		"raw with the ttl":        {script: "echo REAL", config: func(c *Config) { c.TTL = time.Hour }, want: "REAL", least: time.Hour, most: time.Hour},
		"two lines":               {script: "echo REAL; echo more", err: "control character"},
		"nothing":                 {script: ":", err: "value is empty"},
		"object":                  {script: `echo '{"value":"REAL"}'`, want: "REAL"},
		"object with seconds":     {script: `echo '{"value":"REAL","ttl":90}'`, want: "REAL", least: 90 * time.Second, most: 90 * time.Second},
		"object with duration":    {script: `echo '{"value":"REAL","ttl":"50m"}'`, want: "REAL", least: 50 * time.Minute, most: 50 * time.Minute},
		"the shorter ttl":         {script: `echo '{"value":"REAL","ttl":"50m"}'`, config: func(c *Config) { c.TTL = time.Minute }, want: "REAL", least: time.Minute, most: time.Minute},
		"expires at":              {script: `echo '{"value":"REAL","expires_at":"` + in(time.Hour) + `"}'`, want: "REAL", least: 55 * time.Minute, most: time.Hour},
		"expires at a second":     {script: `echo '{"value":"REAL","expires_at":` + strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10) + `}'`, want: "REAL", least: 55 * time.Minute, most: time.Hour},
		"has expired":             {script: `echo '{"value":"REAL","expires_at":"2001-02-03T04:05:06Z"}'`, err: "expired at 2001-02-03T04:05:06Z"},
		"both":                    {script: `echo '{"value":"REAL","ttl":1,"expires_at":"` + in(time.Hour) + `"}'`, err: "both"},
		"bad ttl":                 {script: `echo '{"value":"REAL","ttl":"REAL"}'`, err: `"ttl" is not`},
		"no ttl":                  {script: `echo '{"value":"REAL","ttl":-5}'`, err: `"ttl" is not`},
		"bad time":                {script: `echo '{"value":"REAL","expires_at":"REAL"}'`, err: `"expires_at" is neither`},
		"an error object":         {script: `echo '{"error":"REAL was refused"}'`, err: `no JSON object with a string "value"`},
		"value is no string":      {script: `echo '{"value":{"REAL":1}}'`, err: `no JSON object with a string "value"`},
		"cut short":               {script: `printf '{"value":"REAL'`, err: `no JSON object with a string "value"`},
		"value with a line":       {script: `echo '{"value":"REAL\\nX: y"}'`, err: "control character"},
		"exit status":             {script: "echo REAL; exit 3", err: "exit status 3"},
		"stderr of success":       {script: "echo note >&2; echo REAL", want: "REAL"},
		"last line of stderr":     {script: "echo first >&2; echo 'token expired' >&2; exit 1", err: "exit status 1: token expired"},
		"stderr is escaped":       {script: `printf 'a\033[31mb\342\200\256c' >&2; exit 1`, err: `a\x1b[31mb\u202ec`},
		"trace without the value": {script: "set -x; echo REALvalue; exit 1", err: "exit status 1"},
		"stderr without a key":    {script: "echo 'bad key REAL0123456789abcdefghij' >&2; exit 1", err: "bad key …"},
		"no program":              {config: func(c *Config) { c.Command = []string{"/no/such/program"} }, err: "command /no/such/program: no such file"},
		"killed":                  {script: "kill -9 $$", err: "signal: killed"},
		"too long":                {script: "yes REAL", err: "output is longer than"},
		"stdin is empty":          {script: "cat; echo REAL", want: "REAL"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := shell(t, tt.script, tt.config)
			if tt.err == "" {
				if err != nil || f.Value.Reveal() != tt.want || f.TTL < tt.least || f.TTL > tt.most {
					t.Errorf("%q, %v, %v", f.Value.Reveal(), f.TTL, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "REAL") || !f.Value.IsZero() {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
	t.Run("stderr is capped", func(t *testing.T) {
		_, err := shell(t, "yes 'no no no' | tr '\\n' ' ' | head -c 100000 >&2; exit 1", nil)
		if err == nil || len(err.Error()) > 300 {
			t.Errorf("error of %d bytes", len(err.Error()))
		}
	})
}

func TestEnvironmentIsMinimal(t *testing.T) {
	t.Setenv("SALLYPORT_TEST_OTHER_SECRET", "REAL")
	t.Setenv("SALLYPORT_TEST_PASSED", "yes")
	t.Setenv("HOME", "/home/x")
	f, err := shell(t, `printf '%s|%s|%s|%s' "$SALLYPORT_TEST_OTHER_SECRET" "$SALLYPORT_TEST_PASSED" "$HOME" "$PWD"`, func(c *Config) {
		c.Env = []string{"SALLYPORT_TEST_PASSED"}
	})
	if err != nil || f.Value.Reveal() != "|yes|/home/x|/" {
		t.Errorf("%q, %v", f.Value.Reveal(), err)
	}
}

// gone waits until no process has the number in the file.
func gone(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			return
		}
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	t.Errorf("process %d lives on", pid)
}

// TestWhoAsksMayNotWait: the bound that is told is the one that was reached.
func TestWhoAsksMayNotWait(t *testing.T) {
	s, err := New(Config{Command: []string{"/bin/sleep", "600"}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 345*time.Millisecond) // told as 300 ms, be it asked some of them late
	defer cancel()
	if _, err := s.Fetch(ctx); err == nil || err.Error() != "command /bin/sleep: no answer within 300ms" {
		t.Errorf("error %v", err)
	}
}

func TestSEC26HangIsKilledWithItsChildren(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	script := "sleep 1000 & echo $! >" + pid + "; wait"
	t.Run("timeout", func(t *testing.T) {
		start := time.Now()
		_, err := shell(t, script, func(c *Config) { c.Timeout = 3 * time.Second }) // until then it has begun
		if err == nil || !strings.Contains(err.Error(), "no answer within 3s") || time.Since(start) > 20*time.Second {
			t.Errorf("error %v after %v", err, time.Since(start))
		}
		gone(t, pid)
	})
	t.Run("caller's end", func(t *testing.T) {
		if err := os.Remove(pid); err != nil {
			t.Fatal(err)
		}
		s, _ := New(Config{Command: []string{"/bin/sh", "-c", script}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			defer cancel()
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				if b, err := os.ReadFile(pid); err == nil && strings.HasSuffix(string(b), "\n") {
					return
				}
			}
		}()
		if _, err := s.Fetch(ctx); err == nil || !strings.Contains(err.Error(), "canceled") {
			t.Errorf("error %v", err)
		}
		gone(t, pid)
	})
	t.Run("a child that is left behind", func(t *testing.T) {
		_, err := shell(t, "sleep 1000 & echo $! >"+pid+"; echo REAL", nil)
		if err == nil || !strings.Contains(err.Error(), "left a process behind") {
			t.Errorf("error %v", err)
		}
		gone(t, pid)
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"REAL\n", `{"value":"a"}`, `{"value":"a","ttl":"50m"}`, `{"value":"a","expires_at":9e99}`, `{"value":"a","ttl":1e400}`, `{`, `{"value":null}`, `{"value":"a","ttl":"NaN"}`, "\n\n",
	} {
		f.Add([]byte(s))
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f.Fuzz(func(t *testing.T, out []byte) {
		got, err := parse(out, now)
		if err == nil && (got.Value.IsZero() || got.TTL < 0) {
			t.Fatalf("%q gave %v good for %v", out, got.Value, got.TTL)
		}
		if err == nil && strings.ContainsAny(got.Value.Reveal(), "\r\n\x00") {
			t.Fatalf("%q gave a value with a control character", out)
		}
		if q := quote(out, nil); strings.ContainsAny(q, "\n\x1b") || len(q) > 10*maxQuoted {
			t.Fatalf("%q is quoted as %q", out, q)
		}
	})
}
