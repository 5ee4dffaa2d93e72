package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"sallyport/audit"
	"sallyport/certs"
	"sallyport/gateway"
	"sallyport/gateway/dns"
	"sallyport/gateway/identity"
	"sallyport/gateway/upstream"
	"sallyport/policy/policyfile"
)

// settings are what a stack is built from; the daemon file and the flags of
// run both come down to them.
type settings struct {
	state    string // CA and keys, shared by every gateway of the user
	own      string // log and state.db of this gateway alone
	policy   []string
	vars     map[string]string // of the policy's variable blocks
	stdin    []byte            // the policy that the path - stands for
	denied   gateway.DeniedMode
	pool     netip.Prefix // zero: the default
	limits   gateway.Limits
	upstream upstreamSettings
	audit    auditSettings
	ships    []shipSettings
	log      hclog.Logger
}

type upstreamSettings struct {
	resolvers []string
	caFile    string
	hosts     map[string][]netip.Addr
	nat64     []netip.Prefix
}

type auditSettings struct {
	sync        audit.Sync
	interval    time.Duration
	retain      time.Duration
	retainBytes int64
	segment     int64
}

// stack is a gateway with everything that it stands on. It is built from
// the log up and taken down in reverse, the log last.
type stack struct {
	settings
	state     *audit.State
	log       *audit.Log
	folder    *audit.Folder // before log: what floods is folded
	metrics   *metrics
	ca        *certs.CA
	leaves    *certs.Leaves
	trust     map[string][]byte
	upstream  *upstream.Upstream
	pool      *dns.Pool
	sandboxes *identity.Table
	loader    *loader
	gateway   *gateway.Gateway
	alerts    *alerting
	commit    func() string      // of the policy in force; "" where nothing says one
	noted     func(uint64) error // keeps the generation that was put in force
	brought   bool               // who changes the files of the policy reloads it as well
	closers   []func() error

	reloading sync.Mutex // held from the reading of a policy until it is in force
	seen      filesSeen  // the files of the last load; guarded by reloading
}

// build makes a stack. Nothing serves yet, and no policy is in force.
func build(s settings) (_ *stack, err error) {
	st := &stack{settings: s, commit: func() string { return "" }, noted: func(uint64) error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.close())
		}
	}()
	if err := makeState(s.state); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.own, 0o700); err != nil {
		return nil, err
	}
	st.state, err = audit.OpenState(filepath.Join(s.own, "state.db"))
	if errors.Is(err, audit.ErrBusy) {
		return nil, &exit{code: exitFailed, err: fmt.Errorf("state folder %s: another sallyport uses it", s.own),
			hint: "stop that one, or give this one a folder of its own: state in the daemon file"}
	}
	if err != nil {
		return nil, err
	}
	st.later(st.state.Close)
	key, err := audit.LoadOrCreateKey(filepath.Join(s.state, "audit.key"))
	if err != nil {
		return nil, err
	}
	if st.log, err = audit.Open(audit.Options{Dir: filepath.Join(s.own, "audit"), Sync: s.audit.sync, Interval: s.audit.interval,
		SegmentBytes: s.audit.segment, RetainAge: s.audit.retain, RetainBytes: s.audit.retainBytes, Key: key,
		Logger: s.log.Named("audit"), State: st.state}); err != nil {
		return nil, err
	}
	st.later(st.log.Close)
	if st.folder, err = audit.NewFolder(audit.FolderOptions{Log: st.log, Later: st.log.Later}); err != nil {
		return nil, err
	}
	st.metrics = newMetrics(st.folder)
	if err := st.startShipping(); err != nil {
		return nil, err
	}
	stopFolding := background(s.log, "folding of records", st.folder.Run)
	st.later(func() error { stopFolding(); return st.folder.Flush() })
	if err := st.openTrust(); err != nil {
		return nil, err
	}
	if err := st.openUpstream(); err != nil {
		return nil, err
	}
	if st.pool, err = dns.NewPool(s.pool, netip.Prefix{}, st.state); err != nil {
		return nil, err
	}
	if st.sandboxes, err = identity.NewTable(st.state); err != nil {
		return nil, err
	}
	placeholders, err := loadKey(s.state)
	if err != nil {
		return nil, err
	}
	st.loader = &loader{paths: s.policy, vars: s.vars, stdin: s.stdin, key: placeholders, log: s.log}
	st.later(func() error { st.loader.close(); return nil })
	st.alerts = st.newAlerting()
	st.later(st.alerts.close)
	return st, st.openGateway()
}

func (st *stack) openTrust() error {
	var err error
	if st.ca, err = certs.LoadOrCreate(st.settings.state, certs.Options{}); err != nil {
		return err
	}
	system, err := certs.SystemBundle()
	if err != nil {
		st.settings.log.Warn("no trust bundle of the system was found; sandboxes trust the gateway's alone", "error", err)
	}
	if f := st.settings.upstream.caFile; f != "" { // for what is passed through unopened
		extra, err := os.ReadFile(f)
		if err != nil {
			return fmt.Errorf("upstream ca_file: %w", err)
		}
		system = slices.Concat(system, []byte("\n"), extra)
	}
	st.trust, err = certs.TrustFiles(st.ca, system)
	return err
}

func (st *stack) openUpstream() error {
	var extra []byte
	if f := st.settings.upstream.caFile; f != "" {
		b, err := os.ReadFile(f)
		if err != nil {
			return fmt.Errorf("upstream ca_file: %w", err)
		}
		extra = b
	}
	roots, err := upstream.Roots(extra)
	if err != nil {
		return fmt.Errorf("upstream ca_file %s: %w", st.settings.upstream.caFile, err)
	}
	u := st.settings.upstream
	st.upstream, err = upstream.New(upstream.Options{Resolvers: u.resolvers, Hosts: u.hosts, Roots: roots, NAT64: u.nat64,
		Logger: st.settings.log.Named("upstream")})
	if err != nil {
		return err
	}
	st.later(func() error { st.upstream.Close(); return nil })
	return nil
}

func (st *stack) openGateway() error {
	st.leaves = certs.NewLeaves(st.ca, certs.LeavesOptions{})
	d := gateway.Deps{Logger: st.settings.log, Audit: st.metrics, Leaves: st.leaves,
		Upstream: st.upstream, Pool: st.pool, Budgets: st.state, Denied: st.denied, Limits: st.limits, Internal: st.internalFile}
	_, _ = rand.Read(d.TicketKey[:]) // never fails, see crypto/rand
	var err error
	if st.gateway, err = gateway.New(d); err != nil {
		return err
	}
	st.metrics.watchStack(st)
	return nil
}

// later adds to what close undoes, last first.
func (st *stack) later(f func() error) { st.closers = append(st.closers, f) }

func (st *stack) close() error {
	var errs []error
	for i := len(st.closers) - 1; i >= 0; i-- {
		errs = append(errs, st.closers[i]())
	}
	st.closers = nil
	return errors.Join(errs...)
}

// reload reads the policy and puts it in force. A policy with an error
// changes nothing.
func (st *stack) reload() *policyfile.Diagnostics {
	st.reloading.Lock()
	defer st.reloading.Unlock()
	st.seen = lookAt(st.loader.paths) // before they are read: what changes meanwhile has changed
	snap, diags := st.loader.load()
	if snap == nil {
		st.refused(firstProblem(diags))
		return diags
	}
	st.metrics.reloads.WithLabelValues("ok").Inc()
	if err := st.noted(snap.Policy.Generation()); err != nil {
		st.settings.log.Error("generation of the policy was not kept", "error", err)
	}
	st.recordPolicy(&audit.Event{Severity: audit.Info, Message: "policy in force",
		Policy: &audit.Policy{Generation: snap.Policy.Generation(), SHA256: snap.Policy.SHA256(), Commit: st.commit()}})
	st.loader.warm(snap)
	st.gateway.Swap(snap)
	if err := st.alerts.swap(st.loader.alertSetup()); err != nil {
		st.settings.log.Error("alerts of the policy are not in force", "error", err)
	}
	st.settings.log.Info("policy in force", "generation", snap.Policy.Generation(), "sha256", snap.Policy.SHA256())
	return diags
}

// refused records that a policy was not taken, whichever way it came.
func (st *stack) refused(problem string) {
	st.metrics.reloads.WithLabelValues("failed").Inc()
	e := &audit.Event{Severity: audit.High, Message: "policy was not loaded; what was in force stays", Error: &audit.Error{Class: "detail", Detail: problem}}
	if p := st.gateway.Policy(); p != nil {
		e.Policy = &audit.Policy{Generation: p.Generation(), SHA256: p.SHA256()}
	}
	st.recordPolicy(e)
}

// recordPolicy writes an event about the policy.
func (st *stack) recordPolicy(e *audit.Event) {
	e.Kind, e.Phase = audit.KindPolicy, audit.PhaseEvent
	if err := st.log.Write(e); err != nil {
		st.settings.log.Error("change of policy was not recorded", "error", err)
	}
}

// firstProblem is the first error of a load, for one line of a record.
func firstProblem(diags *policyfile.Diagnostics) string {
	if err := diags.Err(); err != nil {
		return err.Error()
	}
	return ""
}

// record writes an event about a sandbox's life.
func (st *stack) record(sb *identity.Sandbox, message string, run *audit.Run) error {
	e := &audit.Event{Kind: audit.KindSandbox, Phase: audit.PhaseEvent, Severity: audit.Info, Message: message, Run: run,
		Sandbox: &audit.Sandbox{Name: sb.Name, ID: sb.ID, Parent: sb.Parent, Labels: sb.Labels}}
	if p := st.gateway.Policy(); p != nil {
		e.Policy = &audit.Policy{Generation: p.Generation(), SHA256: p.SHA256()}
	}
	return st.log.Write(e)
}

// background runs f until the returned function is called, which waits.
func background(log hclog.Logger, what string, f func(context.Context) error) func() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(ctx); err != nil {
			log.Error(what+" ended", "error", err)
		}
	}()
	return func() { cancel(); <-done }
}
