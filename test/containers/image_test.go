//go:build linux

package containers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sallyport/test/lab"
)

// gatewayImage builds the image of the gateway as the examples do, from a
// static binary.
func gatewayImage(t testing.TB, e *engine) {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "sallyport")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "sallyport/cmd/sallyport")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	folder := filepath.Join(dir, "image")
	if out, err := exec.Command("../../examples/docker/build.sh", binary, folder).CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v: %s", err, out)
	}
	t.Setenv("DOCKER_BUILDKIT", "0")
	e.docker(t, "build", "--network", "none", "-t", "sallyport", folder)
}

// TestGatewayImage: the image is built without the network and runs.
func TestGatewayImage(t *testing.T) {
	gatewayImage(t, world.engine)
	if out := world.engine.docker(t, "run", "--rm", "--network", "none", "sallyport", "version"); !strings.HasPrefix(out, "sallyport ") {
		t.Errorf("version: %s", out)
	}
	if out := world.engine.docker(t, "run", "--rm", "--network", "none", "sallyport", "ca", "init"); out == "" {
		t.Error("its state folder cannot be used")
	}
}

// TestComposeExample: the project of the examples, as it stands but for the
// name of the host and the way to it.
func TestComposeExample(t *testing.T) {
	gatewayImage(t, world.engine)
	project := filepath.Join(t.TempDir(), "example")
	if out, err := exec.Command("cp", "-r", "../../examples/compose", project).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	replace := func(name, old, new string) {
		t.Helper()
		file := filepath.Join(project, name)
		b, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(b), old) {
			t.Fatalf("%s: has no %q: %v", name, old, err)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(b), old, new)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	replace("compose.yaml", "https://api.github.com", "https://good.test")
	replace("compose.yaml", "      - ./secrets:/run/secrets:ro\n", "      - ./secrets:/run/secrets:ro\n      - "+world.lab.CAFile+":/upstream.pem:ro\n")
	replace("policy.d/ci.hcl", "api.github.com", "good.test")
	replace("policy.d/ci.hcl", `access = "read"`, "access = \"read\"\n    addresses = "+lab.Documentation)
	replace("sallyport.hcl", `engine = "docker"`, "engine = \"docker\"\n}\nupstream {\n  resolvers = [\""+lab.Resolver+":53\"]\n  ca_file = \"/upstream.pem\"")
	if err := os.MkdirAll(filepath.Join(project, "secrets"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(project, "secrets/github"), []byte(secretValue+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	compose := func(args ...string) (string, error) {
		cmd := exec.Command("docker-compose", args...)
		cmd.Dir = project
		cmd.Env = append(os.Environ(), "DOCKER_HOST=unix://"+world.engine.socket(), "DOCKER_SOCKET="+world.engine.socket(), "JOB_IMAGE="+image)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	t.Cleanup(func() {
		if out, err := compose("down", "-v", "-t", "5"); err != nil {
			t.Errorf("down: %v: %s", err, out)
		}
	})
	before := len(world.lab.Origins.Host("good.test").Requests())
	if out, err := compose("up", "-d"); err != nil {
		logs, _ := compose("logs")
		t.Fatalf("up: %v: %s\n%s", err, out, logs)
	}
	if !lab.Within(patience, func() bool { return len(world.lab.Origins.Host("good.test").Requests()) > before }) {
		logs, _ := compose("logs")
		t.Fatalf("no request came:\n%s", logs)
	}
	got := world.lab.Origins.Host("good.test").Requests()[before]
	if fmt.Sprint(got.Header["Authorization"]) != "[Bearer "+secretValue+"]" {
		t.Errorf("the origin saw %+v", got)
	}
}

// TestComposeFragment: what `sallyport env` prints makes a service of a project
// a sandbox.
func TestComposeFragment(t *testing.T) {
	g := gatewayOf(t, world.engine, ciPolicy)
	_, fragment := trustDir(t, g, "compose")
	project := filepath.Join(t.TempDir(), "fragment")
	if err := os.MkdirAll(project, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"compose.yaml": fmt.Sprintf("version: '3.7'\nservices:\n  app:\n    image: %s\n    command: ['/bin/sh', '-c', 'for try in $$(seq 30); do curl -s -o /dev/null http://sallyport.internal/ca.pem && break; sleep 1; done; curl -sS -H \"Authorization: Bearer $$API_KEY\" https://good.test/fragment']\n", image),
		"more.yaml":    fragment,
	} {
		if err := os.WriteFile(filepath.Join(project, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	compose := func(args ...string) (string, error) {
		cmd := exec.Command("docker-compose", append([]string{"-f", "compose.yaml", "-f", "more.yaml"}, args...)...)
		cmd.Dir = project
		cmd.Env = append(os.Environ(), "DOCKER_HOST=unix://"+world.engine.socket())
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	t.Cleanup(func() { _, _ = compose("down", "-t", "1") }) // nothing depends on it
	if out, err := compose("up", "--abort-on-container-exit"); err != nil || !strings.Contains(out, "/fragment") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestCapabilitiesOfTheUnit: with those of systemd's unit alone the gateway
// holds containers and bridges.
func TestCapabilitiesOfTheUnit(t *testing.T) {
	unit, err := os.ReadFile("../../examples/systemd/sallyport.service")
	if err != nil {
		t.Fatal(err)
	}
	set := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindSubmatch(unit)
	if set == nil {
		t.Fatal("the unit has no CapabilityBoundingSet")
	}
	bounding := "-all"
	for _, c := range strings.Fields(string(set[1])) {
		bounding += ",+" + strings.ToLower(strings.TrimPrefix(c, "CAP_"))
	}
	wrapper := filepath.Join(t.TempDir(), "sallyport")
	real := world.lab.Binary
	script := fmt.Sprintf("#!/bin/sh\nexec setpriv --bounding-set %s --inh-caps -all --no-new-privs %s \"$@\"\n", bounding, real)
	if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	world.lab.Binary = wrapper
	defer func() { world.lab.Binary = real }()
	n := bridge(t, world.engine, 76, fmt.Sprintf("}\ncapture \"containers\" {\n  engine = \"docker\"\n  socket = %q", world.engine.socket()))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.gateway.PID()))
	if err != nil || strings.Contains(string(status), "CapEff:\t000001ff") {
		t.Fatalf("it has every capability: %v", err)
	}
	id := world.engine.run(t, "--network", "none", "--label", "sallyport.sandbox=ci")
	attached(t, n.gateway, id, 1)
	bridged := n.container(t, 10, "--dns", n.address())
	for _, c := range []string{id, bridged} {
		if out, err := world.engine.exec(c, "/bin/curl", "-s", "-m", "5", "http://sallyport.internal/ca.pem"); err != nil || !strings.Contains(out, "BEGIN") {
			t.Errorf("%q %v", out, err)
		}
	}
	user := world.engine.run(t, "--network", "none", "--user", "4711:4711", "--label", "sallyport.sandbox=ci")
	attached(t, n.gateway, user, 1)
}
