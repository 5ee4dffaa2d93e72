package main

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"sallyport/gateway/capture"
	"sallyport/policy"
)

// manager is the other side of a keeper: it keeps what it was told, in order,
// and closes the descriptors that came with it.
type manager struct {
	mu   sync.Mutex
	told []string
	fds  int
}

func newManager(t *testing.T) (m *manager, address string) {
	t.Helper()
	address = filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	m = &manager{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4*64))
		for {
			n, r, _, _, err := l.ReadMsgUnix(b, rights)
			if err != nil {
				return
			}
			m.hear(string(b[:n]), rights[:r])
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return m, address
}

func (m *manager) hear(text string, rights []byte) {
	m.mu.Lock()
	if text != "BARRIER=1" {
		m.told = append(m.told, text)
	}
	control, _ := unix.ParseSocketControlMessage(rights) // none: nothing came with it
	for i := range control {
		fds, _ := unix.ParseUnixRights(&control[i])
		for _, fd := range fds {
			defer unix.Close(fd) // of a barrier: after it was noted
		}
		if text != "BARRIER=1" {
			m.fds += len(fds)
		}
	}
	m.mu.Unlock()
}

func (m *manager) heard() ([]string, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.told), m.fds
}

// TestKeeperGivesNobodyWhatIsAnothers: what waits in a sandbox's sockets is not
// for who is in its place now.
func TestKeeperGivesNobodyWhatIsAnothers(t *testing.T) {
	m, address := newManager(t)
	left, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{log: hclog.NewNullLogger(), notify: address, kept: map[string]string{},
		back: map[string]map[string][]*os.File{"netns-1": {"old": {left}}, "netns-2": {"gone": {left}}}}
	s, err := k.open("netns-1", "new", func(kept *capture.Kept) (*capture.Sockets, error) {
		if told, _ := m.heard(); kept != nil || !slices.Equal(told, []string{"FDSTOREREMOVE=1\nFDNAME=netns-1+old"}) {
			t.Errorf("%v; told %q before others are opened", kept, told)
		}
		if _, err := left.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Error("the other's socket is open")
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		return &capture.Sockets{TCP: []net.Listener{l}}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	k.forgetRest()
	k.forget("netns-1")
	want := []string{"FDSTOREREMOVE=1\nFDNAME=netns-1+old", "FDSTORE=1\nFDPOLL=0\nFDNAME=netns-1+new",
		"FDSTOREREMOVE=1\nFDNAME=netns-2+gone", "FDSTOREREMOVE=1\nFDNAME=netns-1+new"}
	if told, fds := m.heard(); !slices.Equal(told, want) || fds != 1 {
		t.Errorf("told %q with %d descriptors", told, fds)
	}
}

// TestKeptNames: systemd takes 255 bytes of ASCII without a colon, and what
// divides an interface among sandboxes is part of its name.
func TestKeptNames(t *testing.T) {
	name := keptName(keptPlace("proxy", "a: b+\x01ü"), "")
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }) || strings.Count(name, keptSeparator) != 1 {
		t.Errorf("%q", name)
	}
	division := func(a, b string) string {
		set, problems := policy.Compile(policy.Document{Sandboxes: []policy.Sandbox{
			{Name: "a", Match: policy.Match{CIDRs: []netip.Prefix{netip.MustParsePrefix(a)}}},
			{Name: "b", Match: policy.Match{CIDRs: []netip.Prefix{netip.MustParsePrefix(b)}}}}}, 1)
		if set == nil {
			t.Fatal(problems)
		}
		return whoseOn(set, "eth0")
	}
	if division("10.0.0.1/32", "10.0.0.2/32") == division("10.0.0.2/32", "10.0.0.1/32") {
		t.Error("two divisions of an interface have one name")
	}
}
