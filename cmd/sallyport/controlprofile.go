package main

import (
	"fmt"
	"net/http"
	"runtime/pprof"
	"strconv"
	"time"
)

// longestProfile bounds how long a CPU profile is taken: one at a time is all
// that the runtime has.
const longestProfile = 5 * time.Minute

// profiles are the process's profiles as `go tool pprof` asks for them. They
// hold names of functions and counts, and nothing of what was handled.
func (c *control) profiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/profile", cpuProfile)
	mux.HandleFunc("GET /debug/pprof/{name}", namedProfile)
}

// cpuProfile samples the CPU for as many seconds as are asked for (30).
func cpuProfile(w http.ResponseWriter, r *http.Request) {
	length := 30 * time.Second
	if s := r.FormValue("seconds"); s != "" {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n == 0 || time.Duration(n)*time.Second > longestProfile {
			respond(w, http.StatusBadRequest, apiError{Error: fmt.Sprintf("seconds %q is not a number from 1 to %d", s, int(longestProfile.Seconds()))})
			return
		}
		length = time.Duration(n) * time.Second
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := pprof.StartCPUProfile(w); err != nil {
		respond(w, http.StatusConflict, apiError{Error: err.Error()})
		return
	}
	defer pprof.StopCPUProfile()
	select {
	case <-time.After(length):
	case <-r.Context().Done():
	}
}

// namedProfile is one of the runtime's own: heap, allocs, goroutine, mutex,
// block, threadcreate. debug=1 is text.
func namedProfile(w http.ResponseWriter, r *http.Request) {
	p := pprof.Lookup(r.PathValue("name"))
	if p == nil {
		respond(w, http.StatusNotFound, apiError{Error: fmt.Sprintf("no profile %q", r.PathValue("name"))})
		return
	}
	debug, _ := strconv.Atoi(r.FormValue("debug")) // 0: as go tool pprof reads it
	w.Header().Set("Content-Type", "application/octet-stream")
	_ = p.WriteTo(w, min(max(debug, 0), 1)) // the caller may have gone
}
