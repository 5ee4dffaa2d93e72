package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport/audit"
	"sallyport/gateway/capture"
	"sallyport/policy"
)

// probeFlags are the flags of probe.
type probeFlags struct {
	secretFlags
	sandbox string
	state   string
	netns   string
	pid     int
	proxy   string
	run     []string // further flags for run
}

func probeCommand() *cobra.Command {
	var f probeFlags
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Attack a sandbox from inside, and say promise by promise what held",
		Long: `Make real attempts to get out of a sandbox, of every kind, from inside of it, and
compare what came of each with the audit log. Without --netns, --pid and --proxy
a sandbox is made with "run" for it. With --netns the attempts are made in a
network namespace that the daemon serves, be it attached or behind an interface;
with --pid where a process of such a sandbox is, as in a container, in its file
system too; with --proxy through an explicit proxy, with the sandbox's
credential. Exit 1 if one did not hold.`,
		Example: `  sallyport probe --policy sallyport.hcl
  sallyport probe --sandbox ci --netns job1
  sallyport probe --sandbox ci --pid "$(docker inspect -f '{{.State.Pid}}' job)"
  sallyport probe --sandbox ci --proxy 127.0.0.1:3128`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return f.probe() },
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&f.policy, "policy", nil, "policy file or folder (repeatable; default: the configured policy.d)")
	varsVar(fs, &f.vars)
	fs.StringVar(&f.sandbox, "sandbox", "", "sandbox of the policy (default: its only one)")
	fs.StringVar(&f.state, "state", "", "state folder of the gateway")
	fs.StringVar(&f.netns, "netns", "", "attached namespace: name below /run/netns, or path")
	fs.IntVar(&f.pid, "pid", 0, "process in a sandbox, such as the first of a container")
	hostPortVar(fs, &f.proxy, "proxy", "explicit proxy")
	cmd.MarkFlagsMutuallyExclusive("netns", "pid", "proxy")
	fs.StringArrayVar(&f.run, "run-flag", nil, "a further flag for the run that is made, such as --ca-file=F (repeatable)")
	fs.BoolVar(&f.json, "json", false, "one JSON object for each attempt")
	return cmd
}

// probed is one attempt with its record.
type probed struct {
	probeResult
	Record string `json:"record,omitempty"` // id of the decision; "" when none was due
	Reason string `json:"reason,omitempty"`
	OK     bool   `json:"ok"`
}

// inside says whether the attempts are made where a sandbox is already.
func (f *probeFlags) inside() bool { return f.netns != "" || f.pid != 0 || f.proxy != "" }

func (f *probeFlags) probe() error {
	l, snap, err := f.load()
	if err != nil {
		return err
	}
	defer l.close()
	if f.sandbox, err = chooseSandbox(snap.Policy.Sandboxes(), f.sandbox); err != nil {
		return err
	}
	if f.state, err = stateFolder(f.state); err != nil {
		return err
	}
	inside := f.inside()
	if err := makeState(f.state); err != nil {
		return err
	}
	if l.key, err = loadKey(f.state); err != nil {
		return err
	}
	plan := planProbe(snap.Policy, f.sandbox, l.secretsOf(f.sandbox))
	plan.Processes = !inside || f.pid != 0
	if !inside || f.pid != 0 {
		plan.Hidden, plan.Sockets = append([]string{f.state}, l.sourceFiles()...), !inside
	}
	if inside {
		plan.Resolver = probeResolver
		if plan.Secret != "" {
			plan.Value = l.table(snap.Policy).Placeholder(f.sandbox, plan.Secret)
		}
	}
	if f.proxy != "" {
		plan.Proxy = &probeProxy{Address: f.proxy, User: f.sandbox, Password: proxyPassword(l.key, f.sandbox)}
		if err := plan.Proxy.reach(); err != nil {
			return err
		}
	}
	began := time.Now()
	var out []byte
	if inside {
		out, err = f.inNamespace(plan)
	} else {
		out, err = f.inRun(plan)
	}
	if err != nil {
		return err
	}
	results, err := decodeProbe(out)
	if err != nil {
		return err
	}
	for i, r := range results {
		if r.Secret != "" { // inside a run; a namespace gets its variables from elsewhere
			results[i].Held = inside || r.Saw == l.table(snap.Policy).Placeholder(f.sandbox, r.Secret)
		}
	}
	all, err := awaitRecords(func() ([]probed, error) { return f.match(results, began) })
	if err != nil {
		return err
	}
	return f.report(all)
}

// probeResolver is who is asked in a sandbox whose own resolver is not known:
// an address that nobody has (RFC 5737).
const probeResolver = "192.0.2.53"

// planProbe chooses from the policy what the attempts need.
func planProbe(set *policy.Set, sandbox string, secrets []string) probePlan {
	plan := probePlan{Peer: peerOf(set, sandbox)}
	plan.Plain, plan.PlainPort = plainHost(set, sandbox)
	for _, host := range exactHosts(set, sandbox) {
		if plan.Host == "" {
			plan.Host, plan.Port = host.name, host.port
		}
		if len(secrets) > 0 && plan.Other == "" && host.port == plan.Port && !set.SecretCovers(secrets[0], host.name) {
			plan.Other, plan.Secret = host.name, secrets[0]
		}
	}
	if len(secrets) > 0 {
		plan.Secret = secrets[0]
	}
	return plan
}

type hostPort struct {
	name string
	port uint16
}

// exactHosts are the HTTPS hosts that a sandbox's own rules allow by name.
func exactHosts(set *policy.Set, sandbox string) []hostPort {
	var out []hostPort
	for _, r := range set.OwnRules(sandbox) {
		if r.Action != policy.ActionAllow || strings.HasPrefix(r.Host, "*") || policy.IsIP(r.Host) || len(r.Schemes) > 0 && !slices.Contains(r.Schemes, policy.HTTPS) {
			continue
		}
		port := uint16(443)
		if len(r.Ports) > 0 {
			port = r.Ports[0]
		}
		out = append(out, hostPort{r.Host, port})
	}
	return out
}

// plainHost is a host that a sandbox's own rules allow by name without TLS.
func plainHost(set *policy.Set, sandbox string) (string, uint16) {
	for _, r := range set.OwnRules(sandbox) {
		if r.Action != policy.ActionAllow || strings.HasPrefix(r.Host, "*") || policy.IsIP(r.Host) || !slices.Contains(r.Schemes, policy.HTTP) {
			continue
		}
		if len(r.Ports) > 0 {
			return r.Host, r.Ports[0]
		}
		return r.Host, 80
	}
	return "", 0
}

// peerOf is an address at which another sandbox may be: of its interface or,
// where there is none, a virtual address that nobody was given.
func peerOf(set *policy.Set, sandbox string) string {
	for _, name := range set.Sandboxes() {
		if name == sandbox {
			continue
		}
		for _, p := range set.Sandbox(name).Match.CIDRs {
			if p.Addr().Is4() {
				return p.Addr().Next().String()
			}
		}
	}
	return "198.18.77.77"
}

// inRun makes a sandbox around the attempts.
func (f *probeFlags) inRun(plan probePlan) ([]byte, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := json.Marshal(plan)
	if err != nil {
		return nil, err
	}
	args := []string{"run", "--quiet", "--sandbox", f.sandbox, "--state", f.state, "--share", exe}
	for _, path := range f.policy {
		args = append(args, "--policy", path)
	}
	for _, v := range f.vars {
		args = append(args, "--var", v)
	}
	args = append(append(args, f.run...), "--", exe, "probe-inside", "--plan", string(p))
	return output(exec.Command(exe, args...))
}

// inNamespace makes the attempts in a namespace that is served already.
func (f *probeFlags) inNamespace(plan probePlan) ([]byte, error) {
	p, err := json.Marshal(plan)
	if err != nil {
		return nil, err
	}
	var out []byte
	switch {
	case f.proxy != "":
		return output(exec.Command("/proc/self/exe", "probe-inside", "--plan", string(p)))
	case f.pid != 0:
		return inProcess(f.pid, "probe-inside", "--plan", string(p))
	}
	err = capture.InNamespace(namespacePath(f.netns), func() error {
		var err error
		out, err = output(exec.Command("/proc/self/exe", "probe-inside", "--plan", string(p)))
		return err
	})
	return out, err
}

func output(cmd *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	return out.Bytes(), nil
}

func decodeProbe(out []byte) ([]probeResult, error) {
	var list []probeResult
	dec := json.NewDecoder(bytes.NewReader(out))
	for dec.More() {
		var r probeResult
		if err := dec.Decode(&r); err != nil {
			return nil, fmt.Errorf("probe: what came from the sandbox: %w", err)
		}
		list = append(list, r)
	}
	if len(list) == 0 {
		return nil, errors.New("probe: nothing came from the sandbox")
	}
	return list, nil
}

// recordTime bounds how long the record of an attempt may take to be there.
const recordTime = 2 * time.Second

// awaitRecords matches attempts with their records until each has its own: a
// daemon hears of refused packets a moment after whoever sent them.
func awaitRecords(match func() ([]probed, error)) (all []probed, err error) {
	lacks := func(p probed) bool { return p.Held && !p.OK }
	for deadline := time.Now().Add(recordTime); ; time.Sleep(recordTime / 40) {
		if all, err = match(); err != nil || !slices.ContainsFunc(all, lacks) || !time.Now().Before(deadline) {
			return all, err
		}
	}
}

// match finds the record of each attempt. An attempt without one breaks P5.
func (f *probeFlags) match(results []probeResult, began time.Time) ([]probed, error) {
	var events []*audit.Event
	filter := audit.Filter{Since: began}
	for e, err := range audit.Read(context.Background(), logFolders(f.state), filter) {
		if err != nil {
			return nil, err
		}
		mine := e.Sandbox == nil || e.Sandbox.Name == f.sandbox // a proxy may not know whose an attempt is
		if mine && e.Phase == audit.PhaseDecision && e.Verdict == "deny" {
			events = append(events, e)
		}
	}
	var out []probed
	id := sandboxID(results, events)
	for _, r := range results {
		p := probed{probeResult: r, OK: r.Held}
		if r.recorded() {
			i := slices.IndexFunc(events, func(e *audit.Event) bool {
				return r.isAbout(e) && (e.Sandbox == nil || e.Sandbox.ID == id || id == "" && r.Source != 0)
			})
			if p.OK = r.Held && i >= 0; i >= 0 {
				p.Record, p.Reason = events[i].ID, events[i].Reason
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// sandboxID is the ID of the sandbox that the attempts were made in, as another
// of its name may be attacked at the same time. The record of a name that no
// other probe asks for tells it; "" without one.
func sandboxID(results []probeResult, events []*audit.Event) string {
	for _, r := range results {
		for _, e := range events {
			if r.Name != "" && r.Name != probeDoH && r.isAbout(e) && e.Sandbox != nil {
				return e.Sandbox.ID
			}
		}
	}
	return ""
}

// recorded says whether a record of the attempt is due.
func (r probeResult) recorded() bool { return r.Source != 0 || r.Name != "" || r.Dst != "" }

// isAbout says whether e is the record of the attempt.
func (r probeResult) isAbout(e *audit.Event) bool {
	switch {
	case r.Source != 0:
		return e.Src != nil && e.Src.Port == r.Source && e.Kind != audit.KindDNS && e.Kind != audit.KindPacket
	case r.Name != "":
		return e.Host == r.Name
	}
	return e.Kind == audit.KindPacket && e.Dst != nil && e.Dst.IP == r.Dst && e.Dst.Port == r.Port
}

func (f *probeFlags) report(all []probed) error {
	broken := 0
	w := newTable()
	if !f.json {
		fmt.Fprintln(w, "PROMISE\tHELD\tATTEMPT\tWHAT IT SAW\tREASON\tRECORD")
	}
	for _, p := range all {
		if !p.OK {
			broken++
		}
		if f.json {
			if err := json.NewEncoder(os.Stdout).Encode(p); err != nil {
				return err
			}
			continue
		}
		held := "yes"
		switch {
		case !p.Held:
			held = "NO"
		case !p.OK:
			held = "NO RECORD"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", p.Promise, held, p.Title, audit.Escape(p.Saw, 60), p.Reason, p.Record)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if broken > 0 {
		e := &exit{code: exitFailed, err: fmt.Errorf("%d of %d attempts did not end as promised", broken, len(all))}
		if f.inside() && !slices.ContainsFunc(all, func(p probed) bool { return p.Record != "" }) {
			e.hint = fmt.Sprintf("none of them is in the log of %s: the gateway with this state does not serve where they were made; attach it (sallyport sandbox attach), or name the gateway's --state", f.state)
		}
		return e
	}
	return nil
}
