// Command sallyport is the guarded gate out of a sandbox: a DNS server and an
// intercepting HTTPS proxy that decide by policy, put secrets in the place of
// placeholders, and record every attempt.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"sallyport/gateway/capture"
)

func main() {
	if handled, code := capture.ChildMain(os.Args); handled {
		os.Exit(code)
	}
	if !callsOnly(os.Args) {
		if err := offerWebSocket(); err != nil {
			fmt.Fprintln(os.Stderr, "sallyport: error:", err)
			os.Exit(exitFailed)
		}
	}
	_ = os.WriteFile("/proc/self/comm", []byte("sallyport"), 0) // what ps and top show; "exe" since offerWebSocket
	os.Exit(execute(os.Args[1:]))
}

// callsOnly says whether a command does no more than to call a daemon. Hooks of
// container runtimes do that while a container waits to start.
func callsOnly(argv []string) bool {
	return len(argv) > 1 && (argv[1] == "sandbox" || argv[1] == "reload")
}

// webSocketSetting makes net/http's server offer WebSocket over HTTP/2 (RFC
// 8441). It is read from the environment before main, and from nowhere else.
const webSocketSetting = "http2xconnect=1"

// offerWebSocket starts the program again with the setting, unless it has it.
// The process stays the same.
func offerWebSocket() error {
	old := os.Getenv("GODEBUG")
	if strings.Contains(old, webSocketSetting) {
		if old = strings.TrimSuffix(strings.TrimSuffix(old, webSocketSetting), ","); old == "" {
			return os.Unsetenv("GODEBUG")
		}
		return os.Setenv("GODEBUG", old)
	}
	if old != "" {
		old += ","
	}
	if err := os.Setenv("GODEBUG", old+webSocketSetting); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}

// Exit codes of every command; `run` passes its command's own through.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitConfig  = 78  // serve: bad configuration at start (EX_CONFIG)
	exitSandbox = 125 // run: its own failure
)

// exit is an error that ends the program with a code and, when it has one,
// a message and what to do about it.
type exit struct {
	code int
	err  error
	hint string
}

// Error returns the message.
func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns what the message is of.
func (e *exit) Unwrap() error { return e.err }

func execute(args []string) int {
	silenceStandardLog()
	root := newRoot()
	root.SetArgs(longFlags(root, args))
	out := &remembering{w: os.Stdout}
	root.SetOut(out)
	cmd, err := root.ExecuteC()
	if failure := out.failure(); failure != nil {
		err = failure
	}
	if err == nil {
		return 0
	}
	e := &exit{code: exitUsage, err: err, hint: "sallyport help COMMAND tells its flags and arguments"}
	if hint := underPolicy(root, args); hint != "" && cmd == root {
		e.hint = hint
	}
	errors.As(err, &e)
	code := e.code
	if e.err != nil {
		code = errorCode(cmd, code)
		fmt.Fprintln(os.Stderr, "sallyport: error:", e.err)
	}
	if e.hint != "" {
		fmt.Fprintln(os.Stderr, "sallyport: hint:", e.hint)
	}
	return code
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "sallyport",
		Short:         "The only way out of a sandbox: DNS and HTTPS by policy, with secrets it never sees",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
		Example: `  sallyport init                                 write a starter policy
  sallyport run --policy sallyport.hcl -- bash   a shell that can reach only what the policy allows
  sallyport tail -f --blocked                    what was refused, as it happens`,
	}
	root.SetVersionTemplate("sallyport {{.Version}}\n")
	root.AddCommand(
		runCommand(), initCommand(), serveCommand(), tailCommand(), watchCommand(), auditCommand(), alertCommand(), secretCommand(), sandboxCommand(), policyCommand(),
		caCommand(), envCommand(), demoCommand(), probeCommand(), probeInsideCommand(), reloadCommand(), doctorCommand(), versionCommand(), docsCommand(),
	)
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(sayNumber)
	knowSubcommands(root)
	sayNoArguments(root)
	knowTopics(root)
	failWhenRun(root)
	return root
}

// failWhenRun makes an error of a command that ran, and that names no code of
// its own, a failure. What is left without one is wrong usage.
func failWhenRun(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			err := run(cmd, args)
			var e *exit
			if err == nil || errors.As(err, &e) {
				return err
			}
			return &exit{code: exitFailed, err: err}
		}
	}
	for _, sub := range cmd.Commands() {
		failWhenRun(sub)
	}
}

// release is set by the Makefile's build.
var release string

// version is the module's version and the commit it was built from.
func version() string {
	if release != "" {
		return release + " " + runtime.Version()
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			v += " " + s.Value[:12]
		}
	}
	return v + " " + info.GoVersion
}
