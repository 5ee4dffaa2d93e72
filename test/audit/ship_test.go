//go:build linux

package audit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"sallyport/test/lab"
)

// otlpRecords is ExportLogsServiceRequest, as much of it as records may be
// carried in: unknown members are an error.
type otlpRecords struct {
	ResourceLogs []struct {
		Resource struct {
			Attributes []struct {
				Key   string
				Value struct{ StringValue string }
			}
		}
		ScopeLogs []struct {
			Scope      struct{ Name string }
			LogRecords []struct {
				TimeUnixNano, ObservedTimeUnixNano string
				SeverityNumber                     int
				SeverityText, EventName            string
				Body                               struct{ StringValue string }
				Attributes                         []struct {
					Key   string
					Value struct {
						StringValue *string
						IntValue    *json.Number `json:",string"`
					}
				}
			}
		}
	}
}

// collector is an OTLP receiver that keeps the original of each record.
type collector struct {
	mu     sync.Mutex
	lines  map[string]string // by log.record.uid
	bad    error
	refuse int // status of the answer; 0 accepts
	busy   int // refusals
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != 0 {
		c.busy++
		w.WriteHeader(c.refuse)
		return
	}
	var m otlpRecords
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err == nil {
		err = dec.Decode(&m)
	}
	if r.URL.Path != "/v1/logs" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("X-Scope") != "tenant-1" {
		err = fmt.Errorf("%s %s", r.URL.Path, r.Header)
	}
	if err != nil {
		c.bad = err
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, rl := range m.ResourceLogs {
		for _, x := range rl.ScopeLogs[0].LogRecords {
			var uid, line string
			for _, a := range x.Attributes {
				switch {
				case a.Key == "log.record.uid":
					uid = *a.Value.StringValue
				case a.Key == "log.record.original":
					line = *a.Value.StringValue
				}
			}
			c.lines[uid] = line
		}
	}
	_, _ = io.WriteString(w, "{}") // the sender may have gone
}

func (c *collector) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// missing counts the lines of the log that have not arrived as they are.
func (c *collector) missing(t *testing.T, dir string) (missing, all int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "audit-*.jsonl"))
	must(t, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, file := range files {
		b, err := os.ReadFile(file)
		must(t, err)
		for line := range strings.Lines(string(b[:bytes.LastIndexByte(b, '\n')+1])) { // what is not whole is being written
			var e struct{ ID string }
			must(t, json.Unmarshal([]byte(line), &e))
			all++
			if c.lines[e.ID] != strings.TrimSuffix(line, "\n") {
				missing++
			}
		}
	}
	return missing, all
}

// TestShipOTLP: every record arrives at an OTLP receiver as the log has it, over
// segments, while the receiver is away and after the gateway was killed.
func TestShipOTLP(t *testing.T) {
	l := begin(t)
	c := &collector{lines: map[string]string{}}
	const address = "127.0.0.1:4319"
	serve(t, address, c)
	host := l.Unique("ship") + ".loss.test"
	g := l.Gateway(t, lab.GatewayOptions{Policy: lossPolicy(host), Audit: "segment_bytes = 8192", More: `
ship "otlp" {
  url      = "http://` + address + `"
  headers  = { X-Scope = "tenant-1" }
  resource = { "deployment.environment" = "test" }
}
`})
	dir := filepath.Join(g.State, "audit")
	a := &attempts{host: host, s: g.Attach(t, "dev"), no: map[string]int{}}
	work := func() {
		for i := range 20 {
			if r := a.one(t); r != "" {
				t.Fatal(r)
			}
			_, _ = a.s.Ask(fmt.Sprintf("n%d.evil.test", i), dns.TypeTXT)
		}
	}
	arrived := func(when string) {
		t.Helper()
		eventually(t, "arrival "+when, func() bool { missing, all := c.missing(t, dir); return missing == 0 && all > 20 })
	}
	work()
	arrived("at first")
	c.set(func() { c.refuse = http.StatusServiceUnavailable })
	work()
	eventually(t, "a refusal", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.busy > 0 })
	must(t, g.Kill())
	must(t, g.Start())
	c.set(func() { c.refuse = 0 })
	arrived("after the gateway was killed and the receiver away")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bad != nil {
		t.Errorf("a request that is not as the protocol wants it: %v", c.bad)
	}
}
