//go:build linux

package vm_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"sallyport/gateway/capture"
	"sallyport/test/lab"
)

// TestTapInANamedNamespace: a namespace of the tap's name, made with
// "ip netns add" and with a tap in it, is taken as it is.
func TestTapInANamedNamespace(t *testing.T) {
	l := lab.New(t)
	name := fmt.Sprintf("nt%d", os.Getpid()%100000)
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v %s", args, err, out)
		}
	}
	ip("netns", "add", name)
	t.Cleanup(func() { ip("netns", "del", name) })
	ip("-n", name, "tuntap", "add", name, "mode", "tap")
	policy := fmt.Sprintf("sandbox \"vm\" {\n  match { interfaces = [%q] }\n}\n", name)
	l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": policy},
		More: fmt.Sprintf("capture \"vm\" {\n  tap = [%q]\n  address = [\"10.77.6.1/24\"]\n}\n", name)})
	err := capture.InNamespace("/run/netns/"+name, func() error {
		link, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		addrs, err := link.Addrs()
		if err == nil && !strings.Contains(fmt.Sprint(addrs), "10.77.6.1/24") {
			err = fmt.Errorf("the tap has %v", addrs)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
