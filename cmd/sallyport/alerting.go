package main

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"sallyport/audit"
)

// alerting evaluates the policy's alerts on what is logged and delivers the
// notices. The zero value of the fields below mu is that of a gateway whose
// policy was not loaded yet.
type alerting struct {
	state  *audit.State
	log    *audit.Log
	folder *audit.Folder // flushed before the end, so that what it holds is evaluated
	dir    string        // of the log
	logger hclog.Logger
	count  func(alert, result string)
	grace  time.Duration // how long close waits for deliveries
	owed   string        // file that is there while a run may owe notices; "" of the daemon
	policy []string      // of a run: whose notices these are
	others bool          // what runs that were killed owe is delivered as well

	finishing sync.WaitGroup

	mu      sync.Mutex
	engine  *audit.Alerts
	stop    func() // ends the engine
	spools  map[string]*delivery
	byName  audit.Spools
	retired []*delivery
}

// delivery is a spool that runs. Its sink is replaced by a reload.
type delivery struct {
	spool *audit.Spool
	stop  func()

	mu   sync.Mutex
	sink audit.Sink
}

// Send hands the notice to the sink that is in force.
func (d *delivery) Send(ctx context.Context, a audit.Alert) error {
	d.mu.Lock()
	sink := d.sink
	d.mu.Unlock()
	return sink.Send(ctx, a)
}

// swap puts a policy's alerts in force.
func (a *alerting) swap(s alertSetup) error {
	if err := a.openSpools(s); err != nil {
		return err
	}
	a.mu.Lock()
	engine := a.engine
	a.mu.Unlock()
	if engine != nil {
		return engine.Replace(s.rules, s.mutes)
	}
	engine, err := audit.NewAlerts(audit.AlertOptions{Rules: s.rules, Mutes: s.mutes, State: a.state, Log: a.log, Notify: a.notify, Count: a.count, Logger: a.logger})
	if err != nil {
		return err
	}
	if err := engine.Open(context.Background(), a.dir); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.engine, a.stop = engine, background(a.logger, "alerts", engine.Run)
	if a.others && len(s.sinks) > 0 {
		a.finishing.Go(func() { a.finishOthers(s) })
	}
	return nil
}

// openSpools makes the spools of sinks that are new, gives those that were
// there the new sinks, and ends the others. What waits in them waits for their
// name to come back.
func (a *alerting) openSpools(s alertSetup) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	next, byName := map[string]*delivery{}, audit.Spools{}
	var errs []error
	for notify, sinks := range s.sinks {
		for _, n := range sinks {
			d := a.spools[n.name]
			if d == nil {
				var err error
				if d, err = a.deliver(n); err != nil {
					errs = append(errs, err)
					continue
				}
			}
			d.mu.Lock()
			d.sink = n.sink
			d.mu.Unlock()
			next[n.name] = d
			byName[notify] = append(byName[notify], d.spool)
		}
	}
	for name, d := range a.spools {
		if next[name] == nil {
			go d.stop() // an attempt under way may take long
			a.retired = append(a.retired, d)
			if n := d.spool.Waiting(); n > 0 {
				a.logger.Warn("notices wait for a sink that the policy no longer has", "sink", name, "notices", n)
			}
		}
	}
	a.spools, a.byName = next, byName
	if len(next) > 0 {
		errs = append(errs, a.owe())
	}
	return errors.Join(errs...)
}

// deliver begins to deliver to a sink.
func (a *alerting) deliver(n namedSink) (*delivery, error) {
	d := &delivery{sink: n.sink}
	var err error
	d.spool, err = audit.NewSpool(audit.SpoolOptions{Name: n.name, Sink: d, State: a.state, Log: a.log, Logger: a.logger, Count: a.count})
	if err != nil {
		return nil, err
	}
	d.stop = sync.OnceFunc(background(a.logger, "sink "+n.name, d.spool.Run))
	return d, nil
}

func (a *alerting) notify(x audit.Alert) {
	a.mu.Lock()
	spools := a.byName
	a.mu.Unlock()
	spools.Notify(x)
}

// rules is the engine, nil before a policy was loaded.
func (a *alerting) rules() *audit.Alerts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.engine
}

// close evaluates what was logged so far, waits for deliveries as long as it
// may, and ends everything. What was not accepted by then stays in the spool.
func (a *alerting) close() error {
	err := a.folder.Flush()
	a.mu.Lock()
	stop, spools := a.stop, a.spools
	a.mu.Unlock()
	if stop != nil {
		stop()
	}
	a.finishing.Wait()
	waiting := 0
	deadline := time.Now().Add(a.grace)
	for _, d := range spools {
		for d.spool.Waiting() > 0 && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
		d.stop()
		if n := d.spool.Waiting(); n > 0 {
			waiting += n
			a.logger.Error("notices of alerts were not delivered; they are kept, and delivered "+a.later(), "notices", n, "error", d.spool.LastError())
		}
	}
	if waiting == 0 {
		err = errors.Join(err, a.settle())
	}
	for _, d := range a.retired {
		d.stop()
	}
	return err
}

// later is when what waits at the end is delivered.
func (a *alerting) later() string {
	if a.owed != "" {
		return "by the next run under the same policy, or by sallyport alert deliver"
	}
	return "at the next start"
}

// errNoPolicy is in force before a policy was loaded.
var errNoPolicy = errors.New("no policy is in force")

// sinkSecrets hands the secrets of the store in use to sinks.
func (l *loader) sinkSecrets(covers func(secret, host string) bool) sinkSecrets {
	return sinkSecrets{covers: covers, pins: l.pins, use: func(ctx context.Context, name string, f func(string) error) error {
		l.mu.Lock()
		store := l.store
		l.mu.Unlock()
		if store == nil {
			return errNoPolicy
		}
		return store.Use(ctx, name, f)
	}}
}

// alertSetup is that of the policy that was loaded last.
func (l *loader) alertSetup() alertSetup {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.alerts
}

// newAlerting returns what evaluates the alerts of st.
func (st *stack) newAlerting() *alerting {
	a := &alerting{state: st.state, log: st.log, folder: st.folder, dir: filepath.Join(st.own, "audit"), logger: st.settings.log.Named("alerts"),
		count: func(alert, result string) { st.metrics.alerts.WithLabelValues(alert, result).Inc() }}
	if st.own != st.settings.state {
		a.grace, a.owed, a.policy, a.others = runGrace, filepath.Join(st.own, owedFile), st.settings.policy, true
	}
	return a
}

// runGrace is how long the end of a run waits for deliveries. What waits longer
// is for the next run under the same policy.
const runGrace = 5 * time.Second
