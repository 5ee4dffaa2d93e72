package gateway

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// TestMain starts the tests again with the setting that makes net/http offer
// WebSocket over HTTP/2: it is read before main, as in cmd/sallyport.
func TestMain(m *testing.M) {
	const setting = "http2xconnect=1"
	if old := os.Getenv("GODEBUG"); !strings.Contains(old, setting) {
		if err := os.Setenv("GODEBUG", strings.TrimPrefix(old+","+setting, ",")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		err := syscall.Exec("/proc/self/exe", os.Args, os.Environ())
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
