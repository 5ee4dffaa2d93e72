package main

import (
	"flag"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var updateScripts = flag.Bool("update", false, "write the golden parts of scripts anew")

// TestMain makes this test binary the program when a script runs it.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"sallyport": func() { os.Exit(execute(os.Args[1:])) },
	})
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
			return nil
		},
	})
}
