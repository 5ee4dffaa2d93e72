package main

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// onOwnThread runs f on a thread that is thrown away afterwards, so that what f
// does to its thread stays there. It is never the first thread: that one cannot
// end, and /proc/self shows what it is in.
func onOwnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			onOwnThread(f) // this goroutine holds the first thread meanwhile
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}
