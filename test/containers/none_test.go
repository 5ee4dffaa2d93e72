//go:build linux

package containers

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/test/lab"
)

// ciPolicy has one sandbox, ci, that may speak to good.test with a secret.
const ciPolicy = `
secret "API_KEY" {
  hosts = ["good.test"]
  source "file" { path = "SECRETFILE" }
}
sandbox "ci" {
  labels = { team = "build" }
  allow "good.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
}
`

const secretValue = "REAL-VALUE-71"

// gatewayOf starts a gateway that watches an engine.
func gatewayOf(t testing.TB, e *engine, policy string) *lab.Gateway {
	t.Helper()
	text := e.lab.MustPolicy(t, policy, secretValue)
	return e.lab.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": text},
		More: fmt.Sprintf("capture \"containers\" {\n  engine = %q\n  socket = %q\n}\n", e.kind, e.socket())})
}

// lives are the records of attached sandboxes that a container has had.
func lives(g *lab.Gateway, id string) []*audit.Event {
	var out []*audit.Event
	for _, e := range g.Events(audit.Filter{Kind: "sandbox"}) {
		if e.Sandbox != nil && e.Sandbox.ID != "" && e.Sandbox.Labels["container_id"] == id[:12] && strings.HasPrefix(e.Message, "attached") {
			out = append(out, e)
		}
	}
	return out
}

// attached waits until a container has had n lives, and returns the last.
func attached(t testing.TB, g *lab.Gateway, id string, n int) *audit.Event {
	t.Helper()
	if !lab.Within(patience, func() bool { return len(lives(g, id)) >= n }) {
		t.Fatalf("container %s was attached %d times, not %d:\n%s", id, len(lives(g, id)), n, g.Stderr())
	}
	l := lives(g, id)
	if len(l) > n {
		t.Fatalf("container %s was attached %d times, not %d", id, len(l), n)
	}
	return l[n-1]
}

func await(t testing.TB, g *lab.Gateway, what string, f func(e *audit.Event) bool) *audit.Event {
	t.Helper()
	var found *audit.Event
	if !lab.Within(patience, func() bool {
		for _, e := range g.Events(audit.Filter{}) {
			if f(e) {
				found = e
				return true
			}
		}
		return false
	}) {
		t.Fatalf("not recorded: %s\n%s", what, g.Stderr())
	}
	return found
}

// trustDir is a folder with what `sallyport env` writes, and its env-file.
func trustDir(t testing.TB, g *lab.Gateway, format string) (dir, printed string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "trust")
	cmd := exec.Command(g.Lab.Binary, "env", "--sandbox", "ci", "--policy", g.PolicyDir(), "--state", g.State,
		"--dir", dir, "--at", "/run/sallyport", "--format", format)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("sallyport env: %v", err)
	}
	return dir, string(out)
}

// get fetches over HTTPS inside a container, with the environment that it was
// given.
func (e *engine) get(id, url string) (string, error) {
	return e.exec(id, "/bin/sh", "-c", `curl -sS -m 10 -w ' %{http_code}' -H "Authorization: Bearer $API_KEY" `+url)
}

// TestContainerWithoutNetwork: a container with a label is attached when it
// starts; its names, HTTPS and secrets work, and nothing else does.
func TestContainerWithoutNetwork(t *testing.T) {
	engines(t, containerWithoutNetwork)
}

func containerWithoutNetwork(t *testing.T, e *engine) {
	g := gatewayOf(t, e, ciPolicy)
	dir, env := trustDir(t, g, "docker")
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte(env), 0o644); err != nil {
		t.Fatal(err)
	}
	id := e.run(t, "--network", "none", "--name", "job-17", "--label", "sallyport.sandbox=ci", "--label", "sallyport.job=17",
		"--label", "com.example.other=x", "--label", "sallyport.team=forged", "--env-file", file, "-v", dir+":/run/sallyport:ro")
	got := attached(t, g, id, 1).Sandbox
	want := map[string]string{"container": "job-17", "container_id": id[:12], "image": e.imageName(), "job": "17", "team": "build"}
	if got.Name != "ci" || fmt.Sprint(got.Labels) != fmt.Sprint(want) {
		t.Errorf("attached as %s with %v, want ci with %v", got.Name, got.Labels, want)
	}
	before := len(world.lab.Origins.Host("good.test").Requests())
	out, err := e.get(id, "https://good.test/hello")
	if err != nil || !strings.HasSuffix(out, " 200") {
		t.Fatalf("allowed: %s %v", out, err)
	}
	requests := world.lab.Origins.Host("good.test").Requests()[before:]
	if len(requests) != 1 || fmt.Sprint(requests[0].Header["Authorization"]) != "[Bearer "+secretValue+"]" {
		t.Errorf("the origin saw %+v", requests)
	}
	if out, err := e.get(id, "https://evil.test/"); err != nil || !strings.HasSuffix(out, " 403") {
		t.Errorf("refused: %s %v", out, err)
	}
	for name, argv := range map[string][]string{
		"ping": {"/bin/ping", "-c1", "-W2", lab.Origin},
		"ip":   {"/bin/curl", "-sS", "-m", "5", "-k", "https://" + lab.Origin + "/"},
	} {
		if out, err := e.exec(id, argv...); err == nil && !strings.Contains(out, "ip_literal") {
			t.Errorf("%s got out: %s", name, out)
		}
	}
	await(t, g, "ping refused", func(v *audit.Event) bool {
		return v.Kind == audit.KindPacket && v.Sandbox != nil && v.Sandbox.ID == got.ID && v.Reason == "icmp_blocked"
	})
	environ, err := e.exec(id, "/bin/sh", "-c", "cat /proc/1/environ; ls /run/sallyport")
	if err != nil || strings.Contains(environ, secretValue) || !strings.Contains(environ, "bundle.pem") {
		t.Errorf("inside: %q %v", environ, err)
	}
}

// TestContainerEndsItsSandbox: a container that stops ends its sandbox; the
// same container, started again, is another one.
func TestContainerEndsItsSandbox(t *testing.T) {
	engines(t, containerEndsItsSandbox)
}

func containerEndsItsSandbox(t *testing.T, e *engine) {
	g := gatewayOf(t, e, ciPolicy)
	id := e.run(t, "--network", "none", "--label", "sallyport.sandbox=ci")
	first := attached(t, g, id, 1).Sandbox.ID
	e.docker(t, "kill", id)
	await(t, g, "end of the first life", func(v *audit.Event) bool {
		return v.Sandbox != nil && v.Sandbox.ID == first && v.Message == "container stopped"
	})
	e.docker(t, "start", id)
	second := attached(t, g, id, 2).Sandbox.ID
	if first == second {
		t.Errorf("the ID %s was used for two lives", first)
	}
	e.docker(t, "restart", "-t", "0", id)
	third := attached(t, g, id, 3).Sandbox.ID
	if third == first || third == second {
		t.Errorf("the ID %s was used again", third)
	}
	if out, err := e.exec(id, "/bin/curl", "-s", "-m", "5", "http://sallyport.internal/ca.pem"); err != nil || !strings.Contains(out, "BEGIN") {
		t.Errorf("after a restart: %q %v", out, err)
	}
}

// TestContainerOverGatewayRestart: what runs is attached again as what it was,
// what stopped meanwhile has ended, what started meanwhile is new.
func TestContainerOverGatewayRestart(t *testing.T) {
	engines(t, containerOverGatewayRestart)
}

func containerOverGatewayRestart(t *testing.T, e *engine) {
	for _, how := range []string{"killed", "stopped"} {
		t.Run(how, func(t *testing.T) {
			g := gatewayOf(t, e, ciPolicy)
			stays := e.run(t, "--network", "none", "--label", "sallyport.sandbox=ci")
			stops := e.run(t, "--network", "none", "--label", "sallyport.sandbox=ci")
			id := attached(t, g, stays, 1).Sandbox.ID
			gone := attached(t, g, stops, 1).Sandbox.ID
			end := g.Kill
			if how == "stopped" {
				end = g.Stop
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			if out, err := e.exec(stays, "/bin/curl", "-sS", "-m", "2", "http://sallyport.internal/ca.pem"); err == nil {
				t.Errorf("without a gateway there is a network: %s", out)
			}
			e.docker(t, "restart", "-t", "0", stops)
			comes := e.run(t, "--network", "none", "--label", "sallyport.sandbox=ci")
			if err := g.Start(); err != nil {
				t.Fatal(err)
			}
			if again := attached(t, g, stays, 2).Sandbox.ID; again != id {
				t.Errorf("the sandbox was %s and is %s", id, again)
			}
			if other := attached(t, g, stops, 2).Sandbox.ID; other == gone {
				t.Errorf("the ID %s was used for two lives", gone)
			}
			attached(t, g, comes, 1)
			for _, c := range []string{stays, stops, comes} {
				if out, err := e.exec(c, "/bin/curl", "-s", "-m", "5", "http://sallyport.internal/ca.pem"); err != nil || !strings.Contains(out, "BEGIN") {
					t.Errorf("after the restart: %q %v", out, err)
				}
			}
		})
	}
}

// refusals are the records of containers that were not attached.
func refusals(g *lab.Gateway, name string) []*audit.Event {
	var out []*audit.Event
	for _, e := range g.Events(audit.Filter{Kind: "sandbox", Reason: "unknown_sandbox"}) {
		if e.Sandbox != nil && e.Sandbox.ID == "" && e.Sandbox.Labels["container"] == name {
			out = append(out, e)
		}
	}
	return out
}

// TestContainerRefused: what cannot be held is not attached, and there is one
// record of it.
func TestContainerRefused(t *testing.T) {
	engines(t, containerRefused)
}

func containerRefused(t *testing.T, e *engine) {
	if err := e.load("labelled:1", "--change", "LABEL sallyport.sandbox=ci"); err != nil {
		t.Fatal(err)
	}
	g := gatewayOf(t, e, ciPolicy)
	const long = 3000
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown":  {[]string{"--network", "none", "--label", "sallyport.sandbox=nobody", image}, `no sandbox "nobody"`},
		"empty":    {[]string{"--network", "none", "--label", "sallyport.sandbox=", image}, `no sandbox ""`},
		"long":     {[]string{"--network", "none", "--label", "sallyport.sandbox=" + strings.Repeat("x", long), image}, "no sandbox"},
		"host":     {[]string{"--network", "host", "--label", "sallyport.sandbox=ci", image}, `network "host"`},
		"by image": {[]string{"--network", "none", "labelled:1"}, "label sallyport.sandbox is its image's"},
	} {
		t.Run(name, func(t *testing.T) {
			name := "refused-" + strings.ReplaceAll(name, " ", "-")
			id := e.docker(t, append(append([]string{"run", "-d", "--name", name}, c.args...), "/bin/sleep", "3600")...)
			t.Cleanup(func() { _, _ = e.try("rm", "-f", id) }) // nothing depends on it
			if !lab.Within(patience, func() bool { return len(refusals(g, name)) > 0 }) {
				t.Fatalf("no record\n%s", g.Stderr())
			}
			if err := g.Reload(); err != nil { // looks at all containers again
				t.Fatal(err)
			}
			time.Sleep(300 * time.Millisecond)
			r := refusals(g, name)
			if len(r) != 1 || !strings.Contains(r[0].Message, c.want) || r[0].Verdict != "deny" || len(r[0].Message) > 1000 {
				t.Errorf("%d records, the first: %+v", len(r), r[0])
			}
			if len(lives(g, id)) > 0 {
				t.Error("it was attached")
			}
			if name == "refused-unknown" {
				if out, err := e.exec(id, "/bin/curl", "-sS", "-m", "2", "http://sallyport.internal/ca.pem"); err == nil {
					t.Errorf("it has a network: %s", out)
				}
			}
		})
	}
	if left := e.docker(t, "rmi", "-f", "labelled:1"); left == "" {
		t.Error("the image was not removed")
	}
}

// TestContainerOfLaterPolicy: a container whose sandbox the policy gets later
// is attached then.
func TestContainerOfLaterPolicy(t *testing.T) {
	g := gatewayOf(t, world.engine, ciPolicy)
	id := world.engine.run(t, "--network", "none", "--name", "early", "--label", "sallyport.sandbox=later")
	if !lab.Within(patience, func() bool { return len(refusals(g, "early")) == 1 }) {
		t.Fatal("no record")
	}
	g.SetPolicy(t, "later.hcl", "sandbox \"later\" {\n  allow \"late.test\" {}\n}\n")
	attached(t, g, id, 1)
}

// TestContainerRemoved: a sandbox that was removed by hand stays away until its
// container starts again.
func TestContainerRemoved(t *testing.T) {
	engines(t, containerRemoved)
}

func containerRemoved(t *testing.T, e *engine) {
	g := gatewayOf(t, e, ciPolicy)
	id := e.run(t, "--network", "none", "--name", "removed", "--label", "sallyport.sandbox=ci")
	attached(t, g, id, 1)
	out, err := exec.Command(g.Lab.Binary, "sandbox", "rm", "--socket", g.Socket(), id).CombinedOutput()
	if err != nil {
		t.Fatalf("sandbox rm: %s", out)
	}
	if out, err := e.exec(id, "/bin/curl", "-sS", "-m", "2", "http://sallyport.internal/ca.pem"); err == nil {
		t.Errorf("it has a network: %s", out)
	}
	for range 2 { // over a restart too
		if err := g.Reload(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		if n := len(lives(g, id)); n != 1 {
			t.Fatalf("it was attached %d times", n)
		}
		if err := g.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := g.Start(); err != nil {
			t.Fatal(err)
		}
	}
	e.docker(t, "restart", "-t", "0", id)
	attached(t, g, id, 2)
}

// TestEngineRestarts: the gateway waits for an engine, and finds it again.
func TestEngineRestarts(t *testing.T) {
	e, err := startEngine(world.lab)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.close(); err != nil {
			t.Error(err)
		}
	})
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	g := gatewayOf(t, e, ciPolicy) // before the engine
	if err := e.start(); err != nil {
		t.Fatal(err)
	}
	id := e.run(t, "--network", "none", "--restart", "always", "--label", "sallyport.sandbox=ci")
	first := attached(t, g, id, 1).Sandbox.ID
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	if err := e.start(); err != nil { // which starts the container
		t.Fatal(err)
	}
	if second := attached(t, g, id, 2).Sandbox.ID; second == first {
		t.Errorf("the ID %s was used for two lives", first)
	}
	await(t, g, "end of the first life", func(v *audit.Event) bool {
		return v.Sandbox != nil && v.Sandbox.ID == first && (v.Message == "container stopped" || v.Message == "container started again")
	})
}

// TestContainerAttachTime measures from the start of a container, as the
// engine has it, to the record that it was attached. What else the machine
// does counts as well, so that one good series out of a few is enough.
func TestContainerAttachTime(t *testing.T) {
	engines(t, containerAttachTime)
}

func containerAttachTime(t *testing.T, e *engine) {
	g := gatewayOf(t, e, ciPolicy)
	for range 5 {
		var took []time.Duration
		for range 7 {
			took = append(took, attachTime(t, g, e))
		}
		slices.Sort(took)
		median := took[len(took)/2]
		t.Logf("from start to attached: median %v, of %v", median, took)
		if median <= e.tells() {
			return
		}
	}
	t.Errorf("no series of containers was attached within %v each", e.tells())
}

func attachTime(t *testing.T, g *lab.Gateway, e *engine) time.Duration {
	id := e.run(t, "--network", "none", "--label", "sallyport.sandbox=ci")
	defer e.docker(t, "rm", "-f", id)
	at := attached(t, g, id, 1).Time
	var state []struct{ State struct{ StartedAt time.Time } }
	if err := json.Unmarshal([]byte(e.docker(t, "inspect", id)), &state); err != nil {
		t.Fatal(err)
	}
	return at.Sub(state[0].State.StartedAt)
}

// TestManyContainersAtOnce: each is attached, as itself.
func TestManyContainersAtOnce(t *testing.T) {
	engines(t, manyContainersAtOnce)
}

func manyContainersAtOnce(t *testing.T, e *engine) {
	g := gatewayOf(t, e, ciPolicy)
	const n = 8
	ids, errs := make([]string, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ids[i], errs[i] = e.try("run", "-d", "--network", "none", "--label", "sallyport.sandbox=ci", image, "/bin/sleep", "3600")
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for i, id := range ids {
		if errs[i] != nil {
			t.Fatalf("container %d did not start: %v", i, errs[i])
		}
		t.Cleanup(func() { _, _ = e.try("rm", "-f", id) }) // nothing depends on it
		seen[attached(t, g, id, 1).Sandbox.ID] = true
	}
	if len(seen) != n {
		t.Errorf("%d containers are %d sandboxes", n, len(seen))
	}
}

// TestContainerGatewayOutOfDescriptors: a gateway that can open nothing more
// lets nothing through, and goes on when it can again.
func TestContainerGatewayOutOfDescriptors(t *testing.T) {
	l := world.lab
	wrapper, binary := filepath.Join(t.TempDir(), "sallyport"), l.Binary
	script := fmt.Sprintf("#!/bin/sh\nexec prlimit --nofile=80:80 %s \"$@\"\n", binary)
	if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	l.Binary = wrapper
	defer func() { l.Binary = binary }()
	g := gatewayOf(t, world.engine, ciPolicy)
	id := world.engine.run(t, "--network", "none", "--label", "sallyport.sandbox=ci")
	attached(t, g, id, 1)
	before, err := l.Strays()
	if err != nil {
		t.Fatal(err)
	}
	// Connections that say nothing hold a descriptor each.
	_, _ = world.engine.exec(id, "/bin/sh", "-c", "for i in $(seq 100); do (sleep 4 | nc good.test 443 >/dev/null 2>&1 &) ; done; sleep 2; curl -sS -k -m 1 https://good.test/") // cannot be served
	if after, err := l.Strays(); err != nil || after != before {
		t.Errorf("%d packets reached the net: %v", after-before, err)
	}
	if !lab.Within(patience, func() bool { return strings.Contains(g.Stderr(), "too many open files") }) {
		t.Error("it had descriptors enough: nothing was tried")
	}
	if !lab.Within(30*time.Second, func() bool {
		out, err := world.engine.exec(id, "/bin/curl", "-sS", "-k", "-m", "5", "https://good.test/")
		return err == nil && strings.Contains(out, "good.test")
	}) {
		t.Errorf("it does not recover:\n%s", g.Stderr())
	}
}
