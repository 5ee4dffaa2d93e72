//go:build linux

package capture

import (
	"fmt"
	"os"
)

// InNamespace runs f on a thread of its own that is in the network namespace
// at path. What f opens or starts there stays there; the thread ends with f.
func InNamespace(path string, f func() error) error {
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	defer ns.Close()
	return inNamespace(ns, f)
}
