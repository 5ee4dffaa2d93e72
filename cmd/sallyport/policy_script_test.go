package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"sallyport/audit"
)

var updateScripts = flag.Bool("update", false, "write the golden parts of scripts anew")

// TestMain makes this test binary the program when a script runs it.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"sallyport": func() { os.Exit(execute(os.Args[1:])) },
		"writelog":  func() { os.Exit(writeLog(os.Args[1], os.Args[2])) },
	})
}

// writeLog writes the events of a file, one JSON object a line, to the audit
// log in a folder, a minute apart.
func writeLog(file, dir string) int {
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	log, err := audit.Open(audit.Options{Dir: dir, Now: func() time.Time { return at }})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	data, err := os.ReadFile(file)
	for line := range bytes.Lines(data) {
		var e audit.Event
		if err = errors.Join(err, json.Unmarshal(line, &e)); err != nil {
			break
		}
		err = log.Write(&e)
		at = at.Add(time.Minute)
	}
	if err = errors.Join(err, log.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestPolicyScripts runs the policy commands as a shell would.
func TestPolicyScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/policy",
		UpdateScripts:       *updateScripts,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("XDG_CONFIG_HOME", e.WorkDir+"/config")
			e.Setenv("XDG_STATE_HOME", e.WorkDir+"/state")
			e.Setenv("NO_COLOR", "1")
			return os.CopyFS(e.WorkDir+"/ops-repo", os.DirFS("../../examples/ops-repo"))
		},
	})
}
