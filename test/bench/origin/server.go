package origin

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/miekg/dns"
)

// Names and addresses of the origin.
const (
	Zone     = "bench.test"
	Host     = "api.bench.test"     // what most workloads ask
	RawHost  = "raw.relay.test"     // what may be relayed unopened
	NewZone  = "new.bench.test"     // every name below it is there, and asked once
	Address  = "203.0.113.10"       // of all names but
	Fleeting = "203.0.113.11"       // those of NewZone: idle connections end soon
	Resolver = "203.0.113.53"       // the name server
	Network  = "203.0.113.0/24"     // all of them
	SmallLen = 1024                 // bytes of /small
	swapPath = "/authorization"     // answers with a digest of what it got
	blockLen = 256 << 10            // bytes that a body is written in
	fleeting = 2 * time.Second      // how long an idle connection to Fleeting is kept
	lasting  = 10 * time.Minute     // and one to Address
	ttl      = 60                   // seconds, of addresses
	sseType  = "text/event-stream"  // unless the request says another
	bodyType = "application/x-data" // no client or proxy has a use for it
)

// Serve answers HTTPS on both addresses, and DNS, until one fails.
func Serve(dir string) error {
	a, err := LoadAuthority(dir, "origin")
	if err != nil {
		return err
	}
	leaf, err := a.Leaf("*."+Zone, "*."+NewZone, RawHost)
	if err != nil {
		return err
	}
	failed := make(chan error, 3)
	for address, idle := range map[string]time.Duration{Address: lasting, Fleeting: fleeting} {
		// One group for the key exchange: a post-quantum one costs each side
		// the same again, which is not what is compared.
		s := &http.Server{Addr: net.JoinHostPort(address, "443"), Handler: handler(), IdleTimeout: idle,
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{*leaf}, CurvePreferences: []tls.CurveID{tls.X25519}},
			ErrorLog:  log.New(io.Discard, "", 0),
			HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: 1000}}
		go func() { failed <- s.ListenAndServeTLS("", "") }()
	}
	go func() {
		failed <- (&dns.Server{Addr: net.JoinHostPort(Resolver, "53"), Net: "udp", Handler: dns.HandlerFunc(resolve)}).ListenAndServe()
	}()
	return <-failed
}

// resolve answers A for every name of the zone, as a recursive server does.
func resolve(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg)
	m.SetReply(q)
	m.RecursionAvailable = true // as of those that are asked elsewhere: of others Go asks again
	name := q.Question[0].Name
	switch {
	case !dns.IsSubDomain(Zone+".", name) && name != RawHost+".":
		m.Rcode = dns.RcodeNameError
	case q.Question[0].Qtype == dns.TypeA:
		address := Address
		if dns.IsSubDomain(NewZone+".", name) {
			address = Fleeting
		}
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}, A: net.ParseIP(address)}}
	}
	_ = w.WriteMsg(m) // who asked may have gone
}

func handler() http.Handler {
	small := []byte(`{"pad":"` + string(bytes.Repeat([]byte("x"), SmallLen-11)) + `"}` + "\n")
	block := make([]byte, blockLen)
	mux := http.NewServeMux()
	mux.HandleFunc("/small", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Content-Type"], h["Content-Length"] = []string{"application/json"}, []string{strconv.Itoa(SmallLen)}
		_, _ = w.Write(small) // the client may have gone; so in all that follows
	})
	mux.HandleFunc("/bytes", func(w http.ResponseWriter, r *http.Request) {
		left := number(r, "n", 1)
		h := w.Header()
		h["Content-Type"], h["Content-Length"] = []string{bodyType}, []string{strconv.Itoa(left)}
		for left > 0 {
			n, err := w.Write(block[:min(left, len(block))])
			if err != nil {
				return
			}
			left -= n
		}
	})
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d\n", n)
	})
	mux.HandleFunc("/events", events)
	mux.HandleFunc(swapPath, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, Digest(r.Header.Get("Authorization"))) })
	return mux
}

// events sends n lines with the time at which each was written, ms apart.
func events(w http.ResponseWriter, r *http.Request) {
	kind := r.FormValue("type")
	if kind == "" {
		kind = sseType
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-cache")
	c := http.NewResponseController(w)
	for i := range number(r, "n", 10) {
		if i > 0 {
			time.Sleep(time.Duration(number(r, "ms", 10)) * time.Millisecond)
		}
		fmt.Fprintf(w, "data: %d\n\n", time.Now().UnixNano())
		if err := c.Flush(); err != nil {
			return
		}
	}
}

func number(r *http.Request, name string, otherwise int) int {
	n, err := strconv.Atoi(r.FormValue(name))
	if err != nil || n < 0 {
		return otherwise
	}
	return n
}

// Swapped is the path that answers with the digest of the Authorization header
// that it got.
func Swapped() string { return swapPath }

// Digest stands for a value where the value itself would be masked.
func Digest(value string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(value))) }
