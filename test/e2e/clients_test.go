//go:build linux

package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/test/lab"
)

// client is a program that makes one request with the key, as a shell line in
// which HOST stands for the origin's name.
type client struct {
	name string
	line string
	want string // in what it prints
}

func clients() []client {
	list := []client{
		{"curl h1", `curl -sS --http1.1 -w ' %{http_version} %{http_code}' https://HOST/path -H "Authorization: Bearer $API_KEY"`, " 1.1 200"},
		{"curl h2", `curl -sS --http2 -w ' %{http_version} %{http_code}' https://HOST/path -H "Authorization: Bearer $API_KEY"`, " 2 200"},
		{"python requests", `/usr/bin/python3 -c "$PYTHON"`, "200 application/json"},
		{"node fetch", `node -e "$NODE"`, "200 /path"},
		{"static go", `$PROBE get https://HOST/path "Authorization: Bearer $API_KEY"`, "HTTP/2.0 200"},
		{"static go, no environment", `env -i SSL_CERT_FILE=$SSL_CERT_FILE $PROBE get https://HOST/path "Authorization: Bearer $API_KEY"`, "HTTP/1.1 200"},
		{"openssl s_client", `printf 'GET /path HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n' "$API_KEY" |
			openssl s_client -quiet -verify_return_error -CAfile "$SSL_CERT_FILE" -connect HOST:443 -servername HOST 2>/dev/null`, "HTTP/1.1 200"},
		{"websocket", `$PROBE ws wss://HOST/lab/ws`, "to the echo"},
	}
	if _, err := exec.LookPath("javac"); err == nil { // runs a source file
		list = append(list, client{"java", `printf %s "$JAVA" >Get.java && java Get.java`, "200"})
	}
	return list
}

// javaText is a client that knows nothing of the sandbox but the variable
// that every Java program reads.
func javaText() string {
	return `import java.net.*;
class Get {
  public static void main(String[] a) throws Exception {
    HttpURLConnection c = (HttpURLConnection) new URL("https://HOST/path").openConnection();
    c.setRequestProperty("Authorization", "Bearer " + System.getenv("API_KEY"));
    System.out.println(c.getResponseCode());
  }
}
`
}

// shell is the argv of a line for a client in a sandbox.
func shell(line, host string) []string {
	return []string{"sh", "-c", strings.ReplaceAll(line, "HOST", host)}
}

// TestClientsAreServed: unmodified clients reach an allowed origin, which
// receives the key that they never had. SEC-03, NET-09.
func TestClientsAreServed(t *testing.T) {
	for user, uid := range users() {
		for i, c := range clients() {
			t.Run(user+"/"+c.name, func(t *testing.T) {
				l := begin(t)
				host := fmt.Sprintf("c%d-%s.clients.test", i, user)
				o := withKey(uid, keyed("clients.test"), shell(c.line, host)...)
				o.Env = append(o.Env, "PROBE="+world.probe, "PYTHON="+strings.ReplaceAll(pythonText(), "HOST", host), "NODE="+strings.ReplaceAll(nodeText(), "HOST", host), "JAVA="+strings.ReplaceAll(javaText(), "HOST", host))
				r := l.Run(t, o)
				if r.Code != 0 || !strings.Contains(r.Stdout, c.want) {
					t.Fatalf("exit %d, stdout %q, stderr %q", r.Code, r.Stdout, r.Stderr)
				}
				got := origin(host).Requests()
				if len(got) == 0 {
					t.Fatal("the origin saw no request")
				}
				for _, q := range got {
					if c.name != "websocket" && strings.Join(q.Header["Authorization"], "|") != "Bearer "+value {
						t.Errorf("the origin saw Authorization %q", q.Header["Authorization"])
					}
				}
				if strings.Contains(r.Stderr, value) {
					t.Errorf("the value is in stderr: %s", r.Stderr)
				}
				if kind := map[bool]string{true: "ws", false: "http"}[c.name == "websocket"]; !has(r.Events(t), kind+" allow rule_allow "+host) {
					t.Errorf("decisions: %q", r.Decisions(t))
				}
			})
		}
	}
}

func pythonText() string {
	return `import os,requests
r=requests.get('https://HOST/path',headers={'Authorization':'Bearer '+os.environ['API_KEY']})
print(r.status_code,r.headers['content-type'])`
}

func nodeText() string {
	return `fetch('https://HOST/path',{headers:{authorization:'Bearer '+process.env.API_KEY}}).then(async r=>console.log(r.status,(await r.json()).target))`
}

// gitOrigin serves a bare repository with one commit at host, to those who
// have the real key.
func gitOrigin(t *testing.T, host string) (bare string) {
	t.Helper()
	dir := filepath.Join(world.lab.Dir, world.lab.Unique("git"))
	bare = filepath.Join(dir, "app.git")
	script := `set -e
git init -q --bare -b main "$1"
git -C "$1" config http.receivepack true
git init -q -b main "$2" && cd "$2" && echo one >file && git add file
git -c user.name=t -c user.email=t@a.test commit -qm one && git push -q "$1" main`
	if out, err := exec.Command("sh", "-c", script, "sh", bare, filepath.Join(dir, "work")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	path, err := exec.Command("git", "--exec-path").Output()
	must(t, err)
	backend := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=agent"}, Stderr: os.Stderr}
	origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		if !ok || user != "x-access-token" || password != value {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	return bare
}

// TestClientGitClonesAndPushes: smart HTTP to a real backend, with the key as
// a placeholder inside Basic, also after the 401 that git begins with. SEC-03.
func TestClientGitClonesAndPushes(t *testing.T) {
	for user, uid := range users() {
		t.Run(user, func(t *testing.T) {
			l := begin(t)
			host := "git-" + user + ".clients.test"
			bare := gitOrigin(t, host)
			r := l.Run(t, withKey(uid, keyed("clients.test"), "sh", "-ec", `
git clone -q "https://x-access-token:$API_KEY@`+host+`/app.git" app && cd app
cat file; echo two >file
git -c user.name=t -c user.email=t@a.test commit -qam two
git push -q origin main
git config --get remote.origin.url`))
			if r.Code != 0 || !strings.HasPrefix(r.Stdout, "one\n") {
				t.Fatalf("exit %d, stdout %q, stderr %q", r.Code, r.Stdout, r.Stderr)
			}
			out, err := exec.Command("git", "-C", bare, "log", "--format=%s", "main").CombinedOutput()
			if err != nil || string(out) != "two\none\n" {
				t.Errorf("the repository has %q (%v)", out, err)
			}
			if strings.Contains(r.Stdout+r.Stderr, value) {
				t.Error("git was given the value")
			}
		})
	}
}

// TestClientDig: names resolve over UDP and TCP at any resolver that is asked,
// to an address of the pool, and nothing is asked upstream. DNS-03.
func TestClientDig(t *testing.T) {
	for user, uid := range users() {
		t.Run(user, func(t *testing.T) {
			l := begin(t)
			host := "dig-" + user + ".clients.test"
			r := l.Run(t, withKey(uid, keyed("clients.test"), "sh", "-ec", strings.ReplaceAll(`
dig +short HOST
dig +short @8.8.8.8 HOST
dig +short +tcp @192.0.2.1 HOST
dig +short @2001:db8::53 HOST
dig +short @127.0.0.1 HOST
dig HOST TXT | grep -c 'status: NOERROR'`, "HOST", host)))
			lines := strings.Fields(r.Stdout)
			if r.Code != 0 || len(lines) != 6 || lines[5] != "1" {
				t.Fatalf("exit %d, stdout %q, stderr %q", r.Code, r.Stdout, r.Stderr)
			}
			for _, a := range lines[:5] {
				if a != lines[0] || !strings.HasPrefix(a, "198.1") {
					t.Errorf("answers %q", lines)
				}
			}
			if q := l.DNS.Asked(host); len(q) > 0 {
				t.Errorf("asked upstream: %+v", q)
			}
		})
	}
}

// TestClientNc: raw TCP reaches what a tcp rule names, and nothing else. NET-06.
func TestClientNc(t *testing.T) {
	for user, uid := range users() {
		t.Run(user, func(t *testing.T) {
			l := begin(t)
			host := "nc-" + user + ".tcp.test"
			l.DNS.Set(host, "60 A "+lab.Raw)
			p := l.Peer(t, lab.Raw+":0", echoLine)
			_, port, _ := strings.Cut(p.Addr, ":")
			policy := fill(fmt.Sprintf("sandbox \"dev\" {\n  tcp \"%s:%s\" { addresses = DOCS }\n}\n", host, port))
			r := l.Run(t, withKey(uid, policy, "sh", "-c", fmt.Sprintf(`
echo hello | timeout 10 nc -N %[1]s %[2]s
echo no | timeout 10 nc -N %[1]s 1
echo no | timeout 10 nc -N %[3]s %[2]s
echo no | timeout 10 nc -u -w 1 %[3]s 9`, host, port, lab.Raw)))
			if want := "echo hello\n"; r.Stdout != want {
				t.Errorf("got %q, want %q, stderr %q", r.Stdout, want, r.Stderr)
			}
			if n := p.Accepted(); n != 1 {
				t.Errorf("the peer saw %d connections", n)
			}
			events := r.Events(t)
			for _, line := range []string{"conn allow rule_allow " + host, "conn deny port_not_allowed " + host, "conn deny ip_literal " + lab.Raw, "packet deny udp_blocked"} {
				if !has(events, line) {
					t.Errorf("no %q in %q", line, r.Decisions(t))
				}
			}
		})
	}
}
