//go:build linux

// Command cmd is the benchmark: it starts an origin, load clients, sallyport
// and the peers that it is compared with, in namespaces of its own, measures
// them in turn, and says what came out.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"sallyport/test/bench/peers"
)

// inside says that the namespaces are there.
const inside = "inside"

func main() {
	err := start(os.Args[1:])
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		os.Exit(max(1, ended.ExitCode()))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func start(args []string) error {
	if len(args) > 0 {
		if role := roles()[args[0]]; role != nil {
			return role(args[1:])
		}
		if args[0] == inside && len(args) > 1 {
			return within(args[1], args[2:])
		}
	}
	if os.Getuid() != 0 {
		return errors.New("namespaces of its own need root")
	}
	return enter(args)
}

// enter runs the benchmark in new namespaces. It is the first process there,
// so nothing that it has started outlives it; its folder is removed here.
func enter(args []string) error {
	dir, err := os.MkdirTemp("", "sallyport-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", append([]string{inside, dir}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	told := make(chan os.Signal, 1)
	signal.Notify(told, os.Interrupt, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		<-told
		_ = cmd.Process.Kill() // and all below it
	}()
	return cmd.Wait()
}

// within is the benchmark itself; dir is for all that it writes.
func within(dir string, args []string) error {
	var o options
	var binary, only, named string
	var out outcome
	var grown bool
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&binary, "sallyport", "bin/sallyport", "the program that is measured")
	f.StringVar(&only, "only", "", "workloads, as W1,W2; all by default")
	f.StringVar(&named, "peers", "", "peers, as direct,nginx,sallyport; all by default")
	f.IntVar(&o.rounds, "rounds", 0, "rounds (5)")
	f.BoolVar(&o.quick, "quick", false, "little of everything, once: does it work?")
	f.StringVar(&o.profiles, "profiles", "", "folder that CPU profiles of sallyport are written to")
	f.DurationVar(&o.length, "length", 0, "length of a measurement (2s)")
	f.IntVar(&o.names, "names", 0, "names that W3 asks for (2000)")
	f.StringVar(&out.results, "results", "", "folder that RESULTS.md and speed.svg are written to")
	f.StringVar(&out.readme, "readme", "", "file that a summary is put into, between its marks")
	f.StringVar(&out.baseline, "baseline", "", "file of kept ratios that are compared with, or with -keep written")
	f.BoolVar(&out.check, "check", false, "fail if a ratio is much worse than in the baseline")
	f.BoolVar(&out.keep, "keep", false, "write the baseline")
	f.BoolVar(&grown, "growth", false, "how cost grows, instead of the workloads")
	f.Float64Var(&out.share, "share", 0.10, "by how much of itself a ratio may be worse")
	if err := f.Parse(args); err != nil {
		return err
	}
	o.only, o.peers = list(only), list(named)
	o.fill()
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("%w; make build makes it", err)
	}
	if err := private(); err != nil {
		return err
	}
	world, err := peers.Open(dir, binary)
	if err != nil {
		return err
	}
	defer world.Close()
	b := &bench{options: o, world: world, gateways: map[string]*peers.Gateway{}, failed: map[string]bool{}, out: os.Stdout}
	if grown {
		return b.grow(out.readme)
	}
	if err := b.run(); err != nil {
		return err
	}
	return b.finish(out)
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// private makes mounts and processes those of this namespace, and lets this
// process and those below it hold many descriptors.
func private() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = min(limit.Max, 1<<16)
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}
