//go:build linux

package containers

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/test/lab"
)

// image is the one image that all containers are made of.
const image = "sallyport-test:1"

// engineTime bounds how long the engine may take to begin or to end.
const engineTime = time.Minute

// engine is a Docker daemon, or Podman's service, on the gateway's host.
type engine struct {
	lab        *lab.Lab
	kind       string // docker or podman
	dir        string
	flags      []string
	resolvConf string // file; "" is the machine's own
	cmd        *exec.Cmd
	exited     chan struct{}
}

// startEngine starts an engine with a folder of its own.
func startEngine(l *lab.Lab, flags ...string) (*engine, error) {
	return (&engine{lab: l, kind: "docker", flags: flags}).begin()
}

func (e *engine) begin() (*engine, error) {
	e.dir = filepath.Join(e.lab.Dir, e.lab.Unique(e.kind))
	if err := os.MkdirAll(e.dir, 0o700); err != nil {
		return nil, err
	}
	if err := e.start(); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, e.load(image)
}

func (e *engine) socket() string { return filepath.Join(e.dir, "engine.sock") }

// start starts the daemon's process on what its folder holds.
func (e *engine) start() error {
	argv, env, err := e.daemon()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(e.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	e.cmd = exec.Command(argv[0], append(argv[1:], e.flags...)...)
	e.cmd.Env = append(os.Environ(), env...)
	e.cmd.Stdout, e.cmd.Stderr = out, out
	if err := e.lab.GW.Start(e.cmd); err != nil {
		return err
	}
	e.exited = make(chan struct{})
	go func() {
		_ = e.cmd.Wait() // its log says why
		close(e.exited)
	}()
	for deadline := time.Now().Add(engineTime); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, err := e.try("version"); err == nil {
			return nil
		}
		select {
		case <-e.exited:
			return fmt.Errorf("%s ended at once:\n%s", e.kind, e.log())
		default:
		}
	}
	return fmt.Errorf("%s does not answer:\n%s", e.kind, e.log())
}

// daemon is the command line of the engine's process and what it needs in its
// environment.
func (e *engine) daemon() (argv, env []string, err error) {
	if e.kind == "podman" {
		return e.podman()
	}
	program, err := exec.LookPath("dockerd")
	if err != nil {
		if program = "/usr/sbin/dockerd"; syscall.Access(program, unix.X_OK) != nil {
			return nil, nil, errors.New("dockerd is missing: these tests need Debian's packages docker.io and busybox-static")
		}
	}
	argv = []string{program}
	if e.resolvConf != "" { // a host with a resolver of its own; its mounts are the engine's alone
		argv = []string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, e.resolvConf, program}
	}
	return append(argv, "--data-root", filepath.Join(e.dir, "data"), "--exec-root", filepath.Join(e.dir, "exec"),
		"--pidfile", filepath.Join(e.dir, "pid"), "--host", "unix://"+e.socket(), "--storage-driver", "vfs", "--bridge", "none",
		"--iptables=false", "--ip6tables=false"), nil, nil
}

func (e *engine) log() string {
	b, err := os.ReadFile(filepath.Join(e.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}

// stop ends the daemon's process. Docker's containers end with it, Podman's
// run on.
func (e *engine) stop() error {
	if e.exited == nil {
		return nil
	}
	if err := e.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-e.exited:
		return nil
	case <-time.After(engineTime):
		return errors.Join(fmt.Errorf("%s did not end", e.kind), e.cmd.Process.Kill())
	}
}

// close ends the engine and what it has mounted.
func (e *engine) close() error {
	if ids, err := e.try("ps", "-aq"); err == nil && ids != "" {
		_, _ = e.try(append([]string{"rm", "-f"}, strings.Fields(ids)...)...) // stop ends them too
	}
	err := e.stop()
	mounts, merr := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.SplitSeq(string(mounts), "\n") {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], e.dir+"/") {
			// What a container's own end has taken away meanwhile is gone.
			if uerr := unix.Unmount(f[4], unix.MNT_DETACH); !errors.Is(uerr, unix.EINVAL) && !errors.Is(uerr, unix.ENOENT) {
				err = errors.Join(err, uerr)
			}
		}
	}
	return errors.Join(err, merr)
}

// try runs the engine's client.
func (e *engine) try(args ...string) (string, error) { return e.input(nil, args...) }

func (e *engine) input(stdin io.Reader, args ...string) (string, error) {
	cmd := exec.Command("docker", args...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST=unix://"+e.socket(), "DOCKER_CONFIG="+filepath.Join(e.dir, "client"))
	cmd.Stdin = stdin
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("docker %s: %w: %s%s", strings.Join(args, " "), err, &stdout, &stderr)
	}
	return strings.TrimSpace(stdout.String()), err
}

// docker runs the engine's client and fails the test where that fails.
func (e *engine) docker(t testing.TB, args ...string) string {
	t.Helper()
	out, err := e.try(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// run starts a container that sleeps, for one test, and returns its ID.
func (e *engine) run(t testing.TB, args ...string) string {
	t.Helper()
	id := e.docker(t, append(append([]string{"run", "-d", "--init=false"}, args...), image, "/bin/sleep", "3600")...)
	t.Cleanup(func() { _, _ = e.try("rm", "-f", id) }) // the test may have removed it
	return id
}

// exec runs a command in a container and returns what it wrote and its error.
func (e *engine) exec(id string, argv ...string) (string, error) {
	return e.try(append([]string{"exec", id}, argv...)...)
}

// load imports the image: busybox, curl, and the libraries of that.
func (e *engine) load(name string, flags ...string) error {
	var b bytes.Buffer
	if err := rootfs(&b); err != nil {
		return err
	}
	_, err := e.input(&b, append(append([]string{"import"}, flags...), "-", name)...)
	return err
}

// imageName is what the engine calls the image.
func (e *engine) imageName() string {
	if e.kind == "podman" {
		return "docker.io/library/" + image
	}
	return image
}

// tells is how long after its start a container is attached at most. Podman
// looks only every 250 ms whether its own books have an event to tell of.
func (e *engine) tells() time.Duration {
	if e.kind == "podman" {
		return 400 * time.Millisecond
	}
	return 50 * time.Millisecond
}

// rootfs writes the files of the image.
func rootfs(w io.Writer) error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return errors.New("busybox is missing: these tests need Debian's package busybox-static")
	}
	curl, err := exec.LookPath("curl")
	if err != nil {
		return err
	}
	libraries, err := exec.Command("ldd", curl).Output()
	if err != nil {
		return err
	}
	files := map[string]string{"bin/busybox": busybox, "bin/curl": curl}
	for f := range strings.FieldsSeq(string(libraries)) {
		if strings.HasPrefix(f, "/") {
			files[f[1:]] = f
		}
	}
	for _, name := range []string{"libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2"} {
		if found, _ := filepath.Glob("/lib/*-linux-gnu/" + name); len(found) > 0 {
			files[found[0][1:]] = found[0]
		}
	}
	tw := tar.NewWriter(w)
	dirs := map[string]bool{"etc": true}
	for name := range files {
		for d := filepath.Dir(name); d != "."; d = filepath.Dir(d) {
			dirs[d] = true
		}
	}
	for _, d := range slices.Sorted(maps.Keys(dirs)) {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d + "/", Mode: 0o755}); err != nil {
			return err
		}
	}
	for name, from := range files {
		if err := addFile(tw, name, from); err != nil {
			return err
		}
	}
	for _, name := range []string{"sh", "sleep", "cat", "ls", "ip", "nc", "ping", "nslookup", "date", "id", "true", "ifconfig", "httpd", "tftp", "timeout", "mkdir", "echo", "seq"} {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox", Mode: 0o777}); err != nil {
			return err
		}
	}
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}); err != nil {
		return err
	}
	return tw.Close()
}

func addFile(tw *tar.Writer, name, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(b))}); err != nil {
		return err
	}
	_, err = tw.Write(b)
	return err
}
