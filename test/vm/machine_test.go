//go:build linux

package vm_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/test/lab"
)

// kernels are where test/deps.sh puts the kernel of the machine and its
// modules: unpacked, not installed.
const kernels = "/var/cache/sallyport-test/kernel"

// bootTime bounds the boot of a machine under software emulation.
const bootTime = 100 * time.Second

// modules are the drivers of the machine's network card, in the order in
// which they depend on one another.
func modules() []string {
	return []string{"drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_pci_legacy_dev",
		"drivers/virtio/virtio_pci_modern_dev", "drivers/virtio/virtio_pci", "net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net"}
}

// order and answer are what the guest is told and says; see the guest.
type order struct {
	Op      string            `json:"op"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	H2      bool              `json:"h2,omitempty"`
	Address string            `json:"address,omitempty"`
	Shift   string            `json:"shift,omitempty"`
	Name    string            `json:"name,omitempty"`
	Hex     string            `json:"hex,omitempty"`
}

type answer struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Error   string            `json:"error"`
	Took    float64           `json:"took"`
}

// machine is a virtual machine whose network card is a tap.
type machine struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan answer
	console console
}

// console is what a machine's kernel and its monitor print.
type console struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to it.
func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(b)
}

// String is all that was printed.
func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// card is the network card of a machine.
type card struct {
	tap, mac, namespace string
	networks            []string // ADDRESS/BITS>GATEWAY
}

// boot starts a machine with a trust bundle and waits until it is ready. Its
// monitor runs in the namespace of the tap, and has no other network.
func boot(t *testing.T, l *lab.Lab, c card, ca []byte) *machine {
	t.Helper()
	kernel, initrd := found(t, kernels+"/boot/vmlinuz-*"), filepath.Join(t.TempDir(), "initrd.gz")
	if err := os.WriteFile(initrd, initramfs(t, l, ca), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"--net=" + c.namespace, "qemu-system-x86_64", "-machine", "q35", "-accel", "tcg", "-cpu", "max", "-m", "320", "-smp", "1",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio", "-kernel", kernel, "-initrd", initrd,
		"-append", "console=ttyS0 quiet panic=-1 random.trust_cpu=1 net=" + strings.Join(c.networks, " net="),
		"-netdev", "tap,id=n0,ifname=" + c.tap + ",script=no,downscript=no", "-device", "virtio-net-pci,netdev=n0,romfile=,mac=" + c.mac}
	m := &machine{cmd: exec.Command("nsenter", args...), answers: make(chan answer, 8)}
	in, err := m.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.in, m.cmd.Stderr = in, &m.console
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go m.listen(out)
	t.Cleanup(func() {
		_ = m.cmd.Process.Kill() // also one that is off
		_ = m.cmd.Wait()
	})
	if a := m.wait(t, bootTime); a.Body != "ready" {
		t.Fatalf("the machine says %+v", a)
	}
	return m
}

// listen tells answers from what the kernel prints.
func (m *machine) listen(r io.Reader) {
	defer close(m.answers)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		_, text, ok := strings.Cut(lines.Text(), "@@")
		var a answer
		if ok && json.Unmarshal([]byte(text), &a) == nil {
			m.answers <- a
			continue
		}
		fmt.Fprintln(&m.console, lines.Text())
	}
}

func (m *machine) wait(t *testing.T, limit time.Duration) answer {
	t.Helper()
	select {
	case a, ok := <-m.answers:
		if ok {
			return a
		}
	case <-time.After(limit):
	}
	t.Fatalf("the machine does not answer:\n%s", &m.console)
	return answer{}
}

// do has the machine do one thing.
func (m *machine) do(t *testing.T, o order) answer {
	t.Helper()
	b, err := json.Marshal(o)
	if err == nil {
		_, err = m.in.Write(append(b, '\n'))
	}
	if err != nil {
		t.Fatal(err)
	}
	return m.wait(t, 30*time.Second)
}

// found is the newest file of a pattern.
func found(t *testing.T, pattern string) string {
	t.Helper()
	list, err := filepath.Glob(pattern)
	if err != nil || len(list) == 0 {
		t.Fatalf("no %s: run test/deps.sh", pattern)
	}
	sort.Strings(list)
	return list[len(list)-1]
}

// initramfs is the file system of the machine: the guest, the drivers of its
// network card, and whom it trusts.
func initramfs(t *testing.T, l *lab.Lab, ca []byte) []byte {
	t.Helper()
	guest := filepath.Join(l.Dir, "guest")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", guest, "sallyport/test/vm/guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the guest: %v\n%s", err, out)
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	a := &archive{w: z}
	for _, dir := range []string{"dev", "proc", "sys", "etc", "modules"} {
		a.add(dir, 0o40755, nil)
	}
	a.file(guest, "init", 0o100755)
	tree := found(t, kernels+"/lib/modules/*")
	for i, name := range modules() {
		a.file(filepath.Join(tree, "kernel", name+".ko"), fmt.Sprintf("modules/%02d-%s.ko", i, filepath.Base(name)), 0o100644)
	}
	a.add("ca.pem", 0o100644, ca)
	a.add("TRAILER!!!", 0, nil)
	if err := errors.Join(a.err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// archive writes a cpio archive in the form that the kernel unpacks ("newc",
// see the kernel's early-userspace/buffer-format).
type archive struct {
	w     io.Writer
	inode int
	err   error
}

func (a *archive) file(path, name string, mode int) {
	b, err := os.ReadFile(path)
	a.err = errors.Join(a.err, err)
	a.add(name, mode, b)
}

func (a *archive) add(name string, mode int, content []byte) {
	a.inode++
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", a.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	text := head + name + "\x00"
	text += strings.Repeat("\x00", -len(text)&3)
	_, err := io.WriteString(a.w, text)
	_, err2 := a.w.Write(append(content, make([]byte, -len(content)&3)...))
	a.err = errors.Join(a.err, err, err2)
}
