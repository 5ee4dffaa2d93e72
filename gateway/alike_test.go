package gateway

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"sallyport/audit"
	"sallyport/policy"
)

// TestH2AlikeUploads: of many uploads at once to one place, some of which leak
// a placeholder, each is answered and recorded for itself.
func TestH2AlikeUploads(t *testing.T) {
	const conns, streams = 8, 50
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("other.test", o.port)
	l.load()
	codes := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range conns {
		s, _ := l.framer(t, "other.test", o.port)
		all, block := new(bytes.Buffer), new(bytes.Buffer)
		fr, enc := http2.NewFramer(all, nil), hpack.NewEncoder(block)
		leaks := map[uint32]bool{}
		for id := uint32(1); id < 2*streams; id += 2 {
			block.Reset()
			fields := []string{":method", "POST", ":scheme", "https", ":path", "/up", ":authority", "other.test"}
			if leaks[id] = id%4 == 1; leaks[id] {
				fields = append(fields, "x-key", "$"+secretName)
			}
			for i := 0; i < len(fields); i += 2 {
				must(t, enc.WriteField(http2Field(fields[i], fields[i+1])))
			}
			must(t, fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}))
			if !leaks[id] {
				must(t, fr.WriteData(id, true, []byte("hello")))
			}
		}
		must(t, s.SetDeadline(time.Now().Add(60*time.Second)))
		_, err := s.Conn.Write(all.Bytes())
		must(t, err)
		wg.Go(func() {
			for answers := 0; answers < streams; {
				f, err := s.ReadFrame()
				if err != nil {
					t.Error(err)
					return
				}
				code := ""
				switch f := f.(type) {
				case *http2.MetaHeadersFrame:
					code = f.PseudoValue("status")
					answers++
				case *http2.RSTStreamFrame:
					if f.ErrCode == http2.ErrCodeNo {
						continue // of an upload that is not read
					}
					code = f.ErrCode.String()
					answers++
				default:
					continue
				}
				mu.Lock()
				codes[fmt.Sprintf("%s leaks %v", code, leaks[f.Header().StreamID])]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if codes["200 leaks false"] != conns*streams/2 || codes["403 leaks true"] != conns*streams/2 {
		t.Errorf("answers %v", codes)
	}
	recorded := map[string]int{}
	for _, e := range l.events(func(e *audit.Event) bool { return e.Kind == audit.KindHTTP && e.Phase == audit.PhaseDecision }) {
		recorded[fmt.Sprint(e.Verdict, " ", e.Reason)] += int(max(e.Count, 1))
	}
	if len(recorded) != 2 || recorded["allow "+string(policy.RuleAllow)] != conns*streams/2 || recorded["deny "+string(policy.PlaceholderLeak)] != conns*streams/2 {
		t.Errorf("recorded %v", recorded)
	}
}

// TestH2LateTrailers: the rest of a refused upload, that was on its way, is no
// second attempt, and other streams go on.
func TestH2LateTrailers(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port, func(r *policy.Rule) { r.Methods = []string{"GET"} })
	l.load()
	s, _ := l.framer(t, "api.test", o.port)
	ask := func(id uint32, end bool, method, path string) {
		s.head(t, id, end, ":method", method, ":scheme", "https", ":path", path, ":authority", "api.test")
	}
	ask(1, true, "GET", "/hang")
	for i, fields := range [][]string{nil, {"te", "gzip"}} { // refused by policy, and by the server
		id := uint32(3 + 2*i) // in this order: a stream below one that was opened ends the connection
		s.head(t, id, false, append([]string{":method", "POST", ":scheme", "https", ":path", "/x", ":authority", "api.test"}, fields...)...)
		for reset := false; !reset; {
			_, reset = s.next(t, id, http2.FrameRSTStream).(*http2.RSTStreamFrame)
		}
		must(t, s.WriteData(id, false, []byte("hello")))
		s.head(t, id, true, "x-sum", "1")
	}
	ask(7, true, "GET", "/hello")
	if code := s.status(t, 7); code != "200" {
		t.Errorf("status %s", code)
	}
	var denied []string
	for _, e := range l.events(func(e *audit.Event) bool { return e.Kind == audit.KindHTTP && e.Verdict == "deny" }) {
		denied = append(denied, e.Reason)
	}
	if len(denied) != 2 {
		t.Errorf("denied for %q", denied)
	}
}
