//go:build linux

// Command guest is the first process of the tests' virtual machine. It takes
// its address from the kernel's arguments, as the initramfs of a distribution
// does, and then does what the test tells it over the serial line: one JSON
// object a line, each answered by one.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// mark begins each answer, so that it is told from what the kernel prints.
const mark = "@@"

// order is one thing to do.
type order struct {
	Op      string            `json:"op"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	H2      bool              `json:"h2,omitempty"`
	Address string            `json:"address,omitempty"` // host:port, or an IP address
	Proto   int               `json:"proto,omitempty"`
	Shift   string            `json:"shift,omitempty"` // of the clock
	MAC     string            `json:"mac,omitempty"`
	Source  string            `json:"source,omitempty"`
	Name    string            `json:"name,omitempty"`
	Hex     string            `json:"hex,omitempty"`
}

// answer is what came of it.
type answer struct {
	Status  int               `json:"status,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
	Error   string            `json:"error,omitempty"`
	Took    float64           `json:"took"` // seconds
}

func main() {
	console, err := prepare()
	if err != nil {
		fmt.Println("guest:", err)
		off()
	}
	say(console, answer{Body: "ready"})
	in := bufio.NewScanner(console)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var o order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			say(console, answer{Error: err.Error()})
			continue
		}
		if o.Op == "off" {
			break
		}
		began := time.Now()
		a := do(o)
		if o.Op != "clock" {
			a.Took = time.Since(began).Seconds()
		}
		say(console, a)
	}
	off()
}

func say(console *os.File, a answer) {
	b, err := json.Marshal(a)
	if err != nil {
		b = []byte(`{"error":"no answer"}`)
	}
	fmt.Fprintf(console, "%s%s\n", mark, b)
}

func off() {
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) // there is nothing else to do
	select {}
}

// prepare mounts what a process needs, loads the network card's driver and
// sets the address.
func prepare() (*os.File, error) {
	for target, kind := range map[string]string{"/proc": "proc", "/sys": "sysfs", "/dev": "devtmpfs"} {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return nil, err
		}
		if err := unix.Mount(kind, target, kind, 0, ""); err != nil && err != unix.EBUSY {
			return nil, fmt.Errorf("mount %s: %w", target, err)
		}
	}
	console, err := os.OpenFile("/dev/ttyS0", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(console.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("serial line: %w", err)
	}
	t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
	t.Iflag &^= unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(int(console.Fd()), unix.TCSETS, t); err != nil {
		return nil, fmt.Errorf("serial line: %w", err)
	}
	if err := loadModules(); err != nil {
		return nil, err
	}
	return console, configure()
}

// loadModules loads /modules/NN-name.ko in order.
func loadModules() error {
	files, err := filepath.Glob("/modules/*.ko")
	if err != nil {
		return err
	}
	for _, name := range files { // sorted
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		_ = f.Close()
		if err != nil && err != unix.EEXIST {
			return fmt.Errorf("module %s: %w", name, err)
		}
	}
	return nil
}

// configure sets what the kernel's argument net=ADDRESS/BITS>GATEWAY says. It
// may be there for each version of IP.
func configure() error {
	b, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	link, err := waitLink("eth0")
	if err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/eth0/accept_dad", []byte("0"), 0); err != nil {
		return err
	}
	for _, name := range []string{"lo", "eth0"} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
	}
	for word := range strings.FieldsSeq(string(b)) {
		if text, ok := strings.CutPrefix(word, "net="); ok {
			address, gateway, _ := strings.Cut(text, ">")
			if err := addAddress(link, address, gateway); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
		}
	}
	return os.WriteFile("/etc/resolv.conf", []byte("nameserver 192.0.2.53\n"), 0o644)
}
