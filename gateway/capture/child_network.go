//go:build linux

package capture

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// openSandbox captures the network namespace of this process and returns the
// descriptors for the launcher. None stays open here.
func openSandbox() ([]*os.File, layout, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sockets, err := openHere(hereOptions{Interface: "run"})
	if err != nil {
		return nil, layout{}, err
	}
	files, l, err := sockets.files()
	if err := errors.Join(err, sockets.Close()); err != nil {
		closeFiles(files)
		return nil, layout{}, err
	}
	return files, l, nil
}

// networkHint says what the kernel lacks when the network could not be laid
// out.
func networkHint(err error) string {
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.EAFNOSUPPORT),
		errors.Is(err, syscall.EPROTONOSUPPORT):
		return "the kernel needs nf_tables with TPROXY, reject and NFLOG; load them: sudo modprobe -a nf_tables nft_tproxy nft_reject_inet nft_log nfnetlink_log"
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return mountHint(err, procSys)
	}
	return ""
}
