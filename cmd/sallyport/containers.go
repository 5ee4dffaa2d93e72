package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"sallyport/audit"
	"sallyport/gateway/capture"
	"sallyport/gateway/identity"
	"sallyport/policy"
)

// engineCapture attaches the containers of one engine that have no network
// and a label that names their sandbox. What a container is now, the engine is
// asked each time: the order of its events does not matter.
type engineCapture struct {
	*captures
	name   string
	engine *capture.Engine
	again  chan struct{}
	slots  chan struct{} // so many containers are looked at at a time

	mu      sync.Mutex
	refused map[string]string // container → why it was refused; one record each
}

// engineSlots is how many containers of an engine are looked at at a time.
const engineSlots = 8

func newEngineCapture(c *captures, b captureBlock) *engineCapture {
	return &engineCapture{captures: c, name: b.Name, engine: capture.NewEngine(b.socket()),
		again: make(chan struct{}, 1), slots: make(chan struct{}, engineSlots), refused: map[string]string{}}
}

// watchEngines attaches containers until ctx ends.
func (c *captures) watchEngines(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, e := range c.engines {
		wg.Go(func() { e.watch(ctx) })
	}
	<-ctx.Done()
	wg.Wait()
	return nil
}

func (e *engineCapture) watch(ctx context.Context) {
	defer e.engine.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	look := func(id string) {
		wg.Go(func() {
			select {
			case e.slots <- struct{}{}:
				defer func() { <-e.slots }()
				e.look(ctx, id)
			case <-ctx.Done():
			}
		})
	}
	log := e.st.settings.log
	e.engine.Watch(ctx, capture.EngineWatch{
		Changed: look,
		Listed: func(ids []string) {
			for _, id := range append(ids, e.unlisted(ids)...) {
				look(id)
			}
		},
		Lost: func(err error, again time.Duration) {
			log.Warn("the container engine does not answer; what is attached stays so", "capture", e.name, "error", err, "again_in", again)
		},
		Again: e.again,
	})
}

// lookAgain makes the engine list its containers.
func (e *engineCapture) lookAgain() {
	select {
	case e.again <- struct{}{}:
	default: // it is about to
	}
}

// unlisted are the containers that are attached, or remembered, and that the
// engine does not have any more.
func (e *engineCapture) unlisted(ids []string) []string {
	var out []string
	for _, a := range e.kept() {
		if a.Engine == e.name && !slices.Contains(ids, a.Container) {
			out = append(out, a.Container)
		}
	}
	return out
}

// look makes what is attached agree with what the engine says of a container.
func (e *engineCapture) look(ctx context.Context, id string) {
	defer e.hold("look " + id)()
	for tries := 1; e.lookOnce(ctx, id, tries); tries++ {
	}
}

// An engine that says of a container that has just ended that it runs is asked
// again, so often and after so long.
const (
	goneTries = 5
	goneWait  = 100 * time.Millisecond
)

// lookOnce looks once, and says whether somebody was quicker than the engine's
// answer, or that the container has gone since. It is not held while the engine is asked: Podman answers
// when a hook has ended, and the hook waits for whoever holds the container.
func (e *engineCapture) lookOnce(ctx context.Context, id string, try int) (again bool) {
	overtaken := e.ask(id)
	ctr, err := e.engine.Container(ctx, id)
	if err == nil && ctr.Running && try < goneTries && !fileExists(ctr.NetNS()) {
		overtaken()
		select {
		case <-time.After(goneWait):
			return true
		case <-ctx.Done():
			return false
		}
	}
	defer e.hold(id)()
	if overtaken() {
		return ctx.Err() == nil
	}
	e.agree(ctx, id, ctr, err)
	return false
}

// agree makes what is attached agree with an answer of the engine. The caller
// holds the container.
func (e *engineCapture) agree(ctx context.Context, id string, ctr capture.Container, err error) {
	switch {
	case errors.Is(err, capture.ErrNoContainer):
		ctr = capture.Container{ID: id}
	case ctx.Err() != nil:
		return
	case err != nil:
		e.st.settings.log.Error("container was not looked at; it has no network", "capture", e.name, "container", id, "error", err)
		return
	}
	if !ctr.Running {
		e.ended(ctr)
		return
	}
	if _, err := e.admit(ctr); err != nil && !errors.Is(err, errClosed) {
		e.refuse(ctr, err)
	}
}

// ended ends the sandbox that a container was.
func (e *engineCapture) ended(ctr capture.Container) {
	e.mu.Lock()
	delete(e.refused, ctr.ID)
	e.mu.Unlock()
	if a, ok := e.attachedAt(ctr.ID); ok {
		now := attachment{NetNS: a.NetNS}
		if ctr.Created && now.identify() == nil && now.same(a) {
			return // a hook was quicker than the engine's own books
		}
		if err := e.endAttached(a.ID, "container stopped", false); err != nil {
			e.st.settings.log.Error("end of a container was not recorded", "container", ctr.ID, "error", err)
		}
	}
	for _, a := range e.kept() {
		if a.Container == ctr.ID && a.Removed {
			if err := e.forget(a.ID); err != nil {
				e.st.settings.log.Error("attachment was not forgotten", "container", ctr.ID, "error", err)
			}
		}
	}
}

// admit attaches a container that runs, or is about to, unless it is attached.
// The caller holds it.
func (e *engineCapture) admit(ctr capture.Container) (*identity.Sandbox, error) {
	sandbox, err := sandboxOf(ctr)
	if err != nil {
		return nil, err
	}
	a := attachment{Sandbox: sandbox, NetNS: ctr.NetNS(), Container: ctr.ID, Engine: e.name}
	if err := a.identify(); err != nil {
		return nil, err
	}
	if old, ok := e.attachedAt(ctr.ID); ok {
		if old.same(a) {
			return e.st.sandboxes.ByID(old.ID), nil
		}
		if err := e.endAttached(old.ID, "container started again", false); err != nil {
			return nil, err
		}
	}
	for _, old := range e.kept() {
		if old.Container == ctr.ID && old.Removed && old.same(a) {
			return nil, errRemoved
		}
	}
	p := e.st.gateway.Policy().Sandbox(sandbox)
	if p == nil {
		return nil, fmt.Errorf("the policy has no sandbox %q", clip(sandbox, labelValueMax))
	}
	a.Labels = containerLabels(ctr)
	for k := range p.Labels {
		delete(a.Labels, k) // the policy's author has the last word
	}
	return e.attach(a)
}

// errRemoved says that somebody ended the sandbox while its container ran on.
var errRemoved = errors.New("was removed from the gateway, and is not attached again before it is started again")

// sandboxOf is the sandbox that a container asks to be.
func sandboxOf(ctr capture.Container) (string, error) {
	name, ok := ctr.Labels[capture.LabelSandbox]
	if !ok {
		return "", fmt.Errorf("the label %s is its image's; whoever starts it must set it", capture.LabelSandbox)
	}
	if ctr.NetworkMode != capture.NetworkNone {
		return "", fmt.Errorf("it was started with the network %q; a container is held only with --network none", clip(ctr.NetworkMode, labelValueMax))
	}
	return name, nil
}

// refuse records, once, that a container is not attached.
func (e *engineCapture) refuse(ctr capture.Container, why error) {
	e.mu.Lock()
	old, known := e.refused[ctr.ID]
	e.refused[ctr.ID] = why.Error()
	e.mu.Unlock()
	if known && old == why.Error() {
		return
	}
	e.st.settings.log.Warn("container was not attached", "capture", e.name, "container", ctr.ID, "name", ctr.Name, "error", why)
	ev := &audit.Event{Kind: audit.KindSandbox, Phase: audit.PhaseDecision, Verdict: policy.Deny.String(),
		Reason: string(policy.UnknownSandbox), Severity: audit.High,
		Message: fmt.Sprintf("container %s was not attached: %v", clip(ctr.Name, labelValueMax), why),
		Sandbox: &audit.Sandbox{Labels: containerLabels(ctr)}}
	if p := e.st.gateway.Policy(); p != nil {
		ev.Policy = &audit.Policy{Generation: p.Generation(), SHA256: p.SHA256()}
	}
	if err := e.st.log.Write(ev); err != nil {
		e.st.settings.log.Error("refusal of a container was not recorded", "container", ctr.ID, "error", err)
	}
}

// attachContainer attaches a container that its runtime is about to start, for
// a hook. sandbox is "" if the label says it.
func (c *captures) attachContainer(ctx context.Context, id string, pid int, sandbox string, labels map[string]string) (*identity.Sandbox, error) {
	defer c.holdFirst(id)()
	if sandbox == "" {
		return c.admitStarting(ctx, id, pid)
	}
	a := attachment{Sandbox: sandbox, NetNS: capture.Container{PID: pid}.NetNS(), Container: id, Labels: labels}
	if old, ok := c.attachedAt(id); ok {
		return nil, fmt.Errorf("container %.12s is attached already, as the sandbox %s", id, old.ID)
	}
	return c.attach(a)
}

func (c *captures) admitStarting(ctx context.Context, id string, pid int) (*identity.Sandbox, error) {
	errs := []error{fmt.Errorf("container %.12s: no engine of the daemon file has it, and no annotation %s names its sandbox", id, capture.LabelSandbox)}
	for _, e := range c.engines {
		ctr, err := e.engine.Starting(ctx, id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ctr.PID = pid
		sb, err := e.admit(ctr)
		if err != nil {
			e.refuse(ctr, err)
		}
		return sb, err
	}
	return nil, errors.Join(errs...)
}

// What is taken from a container's labels. They are written into every record
// of the sandbox.
const (
	labelPrefix   = "sallyport."
	labelsMax     = 16
	labelKeyMax   = 63  // bytes
	labelValueMax = 128 // bytes
)

// containerLabels are the labels of the sandbox that a container is: its name
// and image, and those of its own that begin with "sallyport.", without that.
func containerLabels(ctr capture.Container) map[string]string {
	out := map[string]string{"container": clip(ctr.Name, labelValueMax), "container_id": fmt.Sprintf("%.12s", ctr.ID), "image": clip(ctr.Image, labelValueMax)}
	taken := 0
	for _, k := range slices.Sorted(maps.Keys(ctr.Labels)) {
		name, ours := strings.CutPrefix(k, labelPrefix)
		if !ours || k == capture.LabelSandbox || len(name) > labelKeyMax || !plainName(name) || taken == labelsMax {
			continue
		}
		if _, ok := out[name]; ok {
			continue
		}
		out[name] = clip(ctr.Labels[k], labelValueMax)
		taken++
	}
	return out
}

// plainName says whether s is a name of letters, digits, "-", "_" and ".".
func plainName(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
}

// clip cuts s to at most n bytes, between runes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
