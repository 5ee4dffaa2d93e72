//go:build linux

package audit_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/audit"
	"sallyport/audit/webhook"
	"sallyport/test/lab"
)

// denied is a policy that alerts of every denial, a host at a time, to the sink.
func denied(sink string, more string) map[string]string {
	return one(`
sandbox "dev" {
  allow "good.test" { addresses = DOCS }
}
alert "denied" {
  verdict  = "deny"
  severity = "critical"
  per      = ["sandbox", "host"]
  notify   = ["ops"]
}
notify "ops" {
  ` + sink + `
}
` + more)
}

// hostileName is a question whose name is made to break what shows it.
const hostileName = `<!channel>\010\027[2J*b*\"]=cmd.evil.test`

// provoke asks for a name that nobody allows, and for one that means harm.
func provoke(t *testing.T, g *lab.Gateway) *lab.Sandbox {
	t.Helper()
	s := g.Attach(t, "dev")
	for _, name := range []string{"first.evil.test", hostileName} {
		if _, err := s.Ask(name, dns.TypeA); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// clean holds that text has nothing in it that a terminal or a log obeys.
func clean(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if r < 0x20 && r != '\n' || r >= 0x7f && r < 0xa0 || r == 0x202e {
			t.Errorf("%s holds %U: %q", what, r, text)
			return
		}
	}
}

func TestAlertmanager(t *testing.T) {
	l := begin(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "am.yml")
	must(t, os.WriteFile(config, []byte("route:\n  receiver: none\nreceivers:\n- name: none\n"), 0o644))
	p := start(t, "prometheus-alertmanager", "--config.file="+config, "--storage.path="+dir, "--web.listen-address=127.0.0.1:9093", "--cluster.listen-address=")
	c := client(t)
	eventually(t, "alertmanager answers", func() bool {
		resp, err := c.Get("http://127.0.0.1:9093/-/ready")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	provoke(t, l.Gateway(t, lab.GatewayOptions{Policy: denied(`alertmanager {
    url    = "http://127.0.0.1:9093"
    labels = { team = "sec" }
  }`, "")}))
	type alert struct {
		Labels, Annotations map[string]string
		Status              struct{ State string }
		EndsAt              time.Time
	}
	var got []alert
	eventually(t, "both alerts at alertmanager", func() bool {
		resp, err := c.Get("http://127.0.0.1:9093/api/v2/alerts")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		got = nil
		return json.NewDecoder(resp.Body).Decode(&got) == nil && len(got) == 2
	})
	for _, a := range got {
		if a.Labels["alertname"] != "denied" || a.Labels["severity"] != "critical" || a.Labels["sandbox"] != "dev" || a.Labels["team"] != "sec" ||
			a.Status.State != "active" || !strings.Contains(a.Annotations["summary"], "evil.test") || time.Until(a.EndsAt) < 10*time.Minute {
			t.Errorf("alert %+v\n%s", a, p.out)
		}
		clean(t, "alert", fmt.Sprint(a.Labels, a.Annotations))
	}
}

// rsyslog starts rsyslogd with an input and returns the file that it writes to.
// It has the file open, of its own first message, before anybody connects: over
// TLS it closes the number of each connection twice, and were the file opened in
// between, its lines would go into the next connection.
func rsyslog(t *testing.T, input, port string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	out, config := filepath.Join(dir, "out.log"), filepath.Join(dir, "rsyslog.conf")
	must(t, os.WriteFile(config, []byte(fmt.Sprintf(`
global(workDirectory=%q processInternalMessages="on")
%s
template(name="whole" type="string" string="%%PRI%%|%%HOSTNAME%%|%%APP-NAME%%|%%MSGID%%|%%STRUCTURED-DATA%%|%%msg%%\n")
ruleset(name="in") { action(type="omfile" file=%q template="whole") }
if $msg contains "] start" then call in
`, dir, input, out)), 0o644))
	p := start(t, "rsyslogd", "-n", "-f", config, "-i", filepath.Join(dir, "pid"))
	running := func() {
		select {
		case <-p.done:
			t.Fatalf("rsyslogd ended: %s", p.out)
		default:
		}
	}
	eventually(t, "rsyslogd writes", func() bool {
		running()
		b, err := os.ReadFile(out)
		return err == nil && bytes.HasSuffix(b, []byte("\n"))
	})
	must(t, os.Truncate(out, 0))
	eventually(t, "rsyslogd listens", func() bool {
		err := world.lab.GW.Do(func() error {
			c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second)
			if err == nil {
				err = c.Close()
			}
			return err
		})
		running()
		return err == nil
	})
	return out
}

// logged waits for two messages in what rsyslogd wrote and holds their form. Each
// comes at least once.
func logged(t *testing.T, file string) {
	t.Helper()
	const wait = 90 * time.Second // more than two attempts
	var lines []string
	if !lab.Within(wait, func() bool {
		b, err := os.ReadFile(file)
		lines = slices.Compact(slices.Sorted(strings.SplitSeq(strings.TrimSuffix(string(b), "\n"), "\n")))
		return err == nil && len(lines) == 2 && strings.HasSuffix(string(b), "\n")
	}) {
		t.Fatalf("not both messages are in rsyslog's file after %v: %q", wait, lines)
	}
	for _, line := range lines {
		f := strings.SplitN(line, "|", 6)
		if len(f) != 6 || f[0] != "106" || f[1] != "gw.test" || f[2] != "sallyport" || f[3] != "ALERT" ||
			!strings.HasPrefix(f[4], "[sallyport@32473 id=") || !strings.Contains(f[4], `alert="denied" state="firing" severity="critical"`) || !strings.Contains(f[5], "by sandbox dev to ") {
			t.Errorf("message %q", line)
		}
		clean(t, "message", strings.ReplaceAll(line, "\ufeff", ""))
	}
}

func TestRsyslogOverTCP(t *testing.T) {
	l := begin(t)
	out := rsyslog(t, `module(load="imtcp")
input(type="imtcp" address="127.0.0.1" port="5514" ruleset="in")`, "5514")
	provoke(t, l.Gateway(t, lab.GatewayOptions{Policy: denied(`syslog {
    address  = "127.0.0.1:5514"
    hostname = "gw.test"
  }`, "")}))
	logged(t, out)
}

func TestRsyslogOverTLS(t *testing.T) {
	l := begin(t)
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	ca, err := lab.NewAuthority("syslog")
	must(t, err)
	leaf, err := ca.Leaf("logs.test", nil)
	must(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	must(t, err)
	for name, b := range map[string][]byte{
		"ca.pem":   ca.PEM(),
		"cert.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}),
		"key.pem":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), b, 0o644))
	}
	out := rsyslog(t, fmt.Sprintf(`global(defaultNetstreamDriverCAFile="%[1]s/ca.pem" defaultNetstreamDriverCertFile="%[1]s/cert.pem" defaultNetstreamDriverKeyFile="%[1]s/key.pem")
module(load="imtcp" streamDriver.name="ossl" streamDriver.mode="1" streamDriver.authMode="anon")
input(type="imtcp" address="127.0.0.1" port="6514" ruleset="in")`, dir), "6514")
	sink := func(name string) string {
		return fmt.Sprintf(`syslog {
    address     = "127.0.0.1:6514"
    tls         = true
    ca_file     = %q
    server_name = %q
    hostname    = "gw.test"
  }`, filepath.Join(dir, "ca.pem"), name)
	}
	// A receiver that cannot prove its name gets nothing; once it can, what
	// waited comes.
	g := l.Gateway(t, lab.GatewayOptions{Policy: denied(sink("other.test"), "")})
	provoke(t, g)
	g.Await(t, 1, audit.Filter{Kind: "audit", Reason: ""})
	eventually(t, "a record of the failed delivery", func() bool {
		for _, e := range g.Events(audit.Filter{Kind: "audit"}) {
			if e.Note != nil && e.Note.Action == audit.ActionUndelivered && strings.Contains(e.Message, "certificate") {
				return true
			}
		}
		return false
	})
	if b, err := os.ReadFile(out); err == nil && len(b) > 0 {
		t.Errorf("a receiver of another name got %s", b)
	}
	g.SetPolicy(t, "p.hcl", denied(sink("logs.test"), "")["p.hcl"])
	logged(t, out)
}

// inbox is an HTTP receiver that keeps what it accepts.
type inbox struct {
	mu     sync.Mutex
	bodies [][]byte
	heads  []http.Header
	paths  []string
	check  func(r *http.Request, body []byte) error
	errs   []error
}

// ServeHTTP takes a notice.
func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && b.check != nil {
		err = b.check(r, body)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.errs = append(b.errs, err)
		http.Error(w, "refused", http.StatusForbidden)
		return
	}
	b.bodies, b.heads, b.paths = append(b.bodies, body), append(b.heads, r.Header.Clone()), append(b.paths, r.URL.Path)
	_, _ = io.WriteString(w, "{}") // the sender may have gone
}

func (b *inbox) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.bodies)
}

// settled waits for n notices and fails if one was refused.
func (b *inbox) settled(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " notices"), func() bool { return b.count() >= n })
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.errs) > 0 || len(b.bodies) != n {
		t.Errorf("%d notices came, %v were refused", len(b.bodies), b.errs)
	}
}

const signingKey = "kl3-signing-key-91c0"

func secretBlock(name, host, variable string) string {
	return fmt.Sprintf("secret %q {\n  hosts = [%q]\n  source \"env\" { name = %q }\n}\n", name, host, variable)
}

func TestWebhookIsSigned(t *testing.T) {
	l := begin(t)
	b := &inbox{check: func(r *http.Request, body []byte) error {
		return webhook.Verify(signingKey, r.Header.Get(webhook.SignatureHeader), body, time.Now(), time.Minute)
	}}
	serve(t, "127.0.0.1:8081", b)
	provoke(t, l.Gateway(t, lab.GatewayOptions{Env: []string{"SIGN=" + signingKey}, Policy: denied(`webhook {
    url         = "http://127.0.0.1:8081/hook"
    sign_secret = "SIGN_KEY"
    headers     = { X-Team = "sec" }
  }`, secretBlock("SIGN_KEY", "alerts.test", "SIGN"))}))
	b.settled(t, 2)
	for i, body := range b.bodies {
		var a audit.Alert
		if err := json.Unmarshal(body, &a); err != nil || a.Name != "denied" || a.State != audit.Firing || a.Event == nil || a.Event.Policy == nil ||
			b.heads[i].Get("X-Team") != "sec" || b.heads[i].Get(webhook.DeliveryHeader) == "" || b.paths[i] != "/hook" {
			t.Errorf("notice %s (%v)", body, err)
		}
		clean(t, "notice", string(body))
		clean(t, "message", a.Message)
		if strings.Contains(string(body), signingKey) {
			t.Error("the key is in a notice")
		}
	}
}

func TestSlackCompatible(t *testing.T) {
	l := begin(t)
	ca, err := lab.NewAuthority("hooks")
	must(t, err)
	leaf, err := ca.Leaf("localhost", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })
	must(t, err)
	file := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(file, ca.PEM(), 0o644))
	b := &inbox{check: func(r *http.Request, _ []byte) error {
		if r.URL.Path != "/services/T000/B000/XyZ" {
			return fmt.Errorf("path %s", r.URL.Path)
		}
		return nil
	}}
	ln, err := l.GW.Listen("tcp", "127.0.0.1:8443")
	must(t, err)
	srv := &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{*leaf}})) }() // closed below
	t.Cleanup(func() { _ = srv.Close() })
	g := l.Gateway(t, lab.GatewayOptions{Env: []string{"HOOK=https://127.0.0.1:8443/services/T000/B000/XyZ"}, Policy: denied(fmt.Sprintf(`slack {
    url_secret = "SLACK_WEBHOOK"
    ca_file    = %q
  }`, file), secretBlock("SLACK_WEBHOOK", "127.0.0.1", "HOOK"))})
	provoke(t, g)
	b.settled(t, 2)
	for _, body := range b.bodies {
		var m struct {
			Text        string `json:"text"`
			Mrkdwn      bool   `json:"mrkdwn"`
			Attachments []struct {
				Blocks []struct {
					Type   string
					Text   *struct{ Type, Text string }
					Fields []struct{ Type, Text string }
				}
			}
		}
		if err := json.Unmarshal(body, &m); err != nil || len(m.Attachments) != 1 || m.Mrkdwn || strings.ContainsAny(m.Text, "<>") {
			t.Errorf("message %s (%v)", body, err)
			continue
		}
		for _, block := range m.Attachments[0].Blocks {
			if block.Text != nil && block.Text.Type != "plain_text" {
				t.Errorf("marked-up text in %s", body)
			}
		}
		clean(t, "message", m.Text)
	}
	for _, e := range g.Events(audit.Filter{}) {
		if strings.Contains(e.Message, "XyZ") {
			t.Errorf("the URL is in the log: %s", e.Message)
		}
	}
	if strings.Contains(g.Stderr(), "XyZ") {
		t.Error("the URL is in the operational log")
	}
}

// otlpLogs is ExportLogsServiceRequest of the OTLP protocol, as much of it as
// the sink may send: unknown members are an error.
type otlpLogs struct {
	ResourceLogs []struct {
		Resource  struct{ Attributes []otlpAttr }
		ScopeLogs []struct {
			Scope      struct{ Name string }
			LogRecords []struct {
				TimeUnixNano, ObservedTimeUnixNano string
				SeverityNumber                     int
				SeverityText                       string
				Body                               struct{ StringValue string }
				Attributes                         []otlpAttr
				EventName                          string
			}
		}
	}
}

type otlpAttr struct {
	Key   string
	Value struct{ StringValue string }
}

func TestOTLP(t *testing.T) {
	l := begin(t)
	b := &inbox{check: func(r *http.Request, body []byte) error {
		dec := json.NewDecoder(strings.NewReader(string(body)))
		dec.DisallowUnknownFields()
		if r.URL.Path != "/v1/logs" || r.Header.Get("Content-Type") != "application/json" {
			return fmt.Errorf("%s %s", r.URL.Path, r.Header)
		}
		return dec.Decode(new(otlpLogs))
	}}
	serve(t, "127.0.0.1:4318", b)
	provoke(t, l.Gateway(t, lab.GatewayOptions{Policy: denied(`otlp {
    url      = "http://127.0.0.1:4318"
    headers  = { X-Scope = "tenant-1" }
    resource = { "deployment.environment" = "test" }
  }`, "")}))
	b.settled(t, 2)
	for i, body := range b.bodies {
		var m otlpLogs
		must(t, json.Unmarshal(body, &m))
		r := m.ResourceLogs[0].ScopeLogs[0].LogRecords[0]
		if r.SeverityNumber != 21 || r.EventName != "sallyport.alert" || !strings.Contains(r.Body.StringValue, "evil.test") || len(m.ResourceLogs[0].Resource.Attributes) != 2 ||
			b.heads[i].Get("X-Scope") != "tenant-1" {
			t.Errorf("record %s", body)
		}
		clean(t, "record", string(body))
	}
}

func TestExecSink(t *testing.T) {
	l := begin(t)
	out := filepath.Join(t.TempDir(), "out")
	provoke(t, l.Gateway(t, lab.GatewayOptions{Env: []string{"TOKEN=t-91", "OTHER=o-92"}, Policy: denied(fmt.Sprintf(`exec {
    command = ["/bin/sh", "-c", "read -r line; printf '%%s %%s%%s\n' \"$line\" \"$TOKEN\" \"$OTHER\" >> %s"]
    env     = ["TOKEN"]
  }`, out), "")}))
	var lines []string
	eventually(t, "both notices", func() bool {
		b, _ := os.ReadFile(out) // not there yet
		lines = strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
		return len(lines) == 2
	})
	for _, line := range lines {
		notice, found := strings.CutSuffix(line, " t-91")
		var a audit.Alert
		if err := json.Unmarshal([]byte(notice), &a); err != nil || !found || a.Name != "denied" {
			t.Errorf("the command got %s (%v)", line, err)
		}
	}
}
