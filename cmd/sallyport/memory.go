package main

import (
	"os"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// lockMemory keeps the process's memory, and with it the secrets, out of the
// swap, where the process may lock as much as it wants. Elsewhere it does
// nothing: with a limit the lock would end the process at the first mapping
// beyond it. Children do not inherit it.
func lockMemory(log hclog.Logger) {
	if !mayLock() {
		log.Debug("memory is not locked: neither CAP_IPC_LOCK nor an unlimited RLIMIT_MEMLOCK; secrets could be written to swap")
		return
	}
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		log.Debug("memory is not locked", "error", err)
		return
	}
	log.Debug("memory is locked")
}

// mayLock says whether nothing bounds what the process may lock.
func mayLock() bool {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err == nil && limit.Cur == unix.RLIM_INFINITY {
		return true
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(status), "\nCapEff:")
	if !ok {
		return false
	}
	line, _, _ := strings.Cut(rest, "\n")
	caps, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && caps&(1<<unix.CAP_IPC_LOCK) != 0
}
