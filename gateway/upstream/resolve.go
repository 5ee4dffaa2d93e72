package upstream

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Bounds of the cache. Go's resolver does not tell a record's TTL, so what it
// says is believed for a fixed time: short enough that an origin that moves
// is followed, long enough that a client's burst is one question.
const (
	positiveTTL = 30 * time.Second
	negativeTTL = 5 * time.Second // the name or its addresses do not exist
	failureTTL  = time.Second     // no answer could be had

	maxNames = 4096 // names kept

	// Names asked for at the same time, whose answers may be slow in coming.
	maxQuestions     = 1024 // by all
	maxQuestionsEach = 64   // by one sandbox
	minQuestionsEach = 8    // by one sandbox, even when all together ask too much

	lookupTimeout = 10 * time.Second // one name, all servers
)

// resolver is a cache in front of a LookupFunc, with one question at a time
// for a name. It keeps addresses, not judgements: rules differ.
type resolver struct {
	lookup LookupFunc
	ctx    context.Context // ends the questions under way
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	names  map[string]*answer
	asking int            // entries of names that are not done
	each   map[string]int // of them, by the sandbox that asked first
}

// answer is a name's entry. Its fields are written before done is closed and
// read after.
type answer struct {
	done      chan struct{}
	sandbox   string // which asked first
	abandoned bool   // the one who was to ask could not; somebody else must
	addrs     []netip.Addr
	err       error
	expires   time.Time
}

func newResolver(lookup LookupFunc) *resolver {
	ctx, cancel := context.WithCancel(context.Background())
	return &resolver{lookup: lookup, ctx: ctx, cancel: cancel, names: make(map[string]*answer), each: make(map[string]int)}
}

// close ends the questions under way and waits for them.
func (r *resolver) close() {
	r.mu.Lock()
	r.cancel()
	r.mu.Unlock()
	r.wg.Wait()
}

// resolve returns the addresses of a name for a sandbox. A caller that gives up
// does not end the question for the others.
func (r *resolver) resolve(ctx context.Context, sandbox, host string, before func() error) ([]netip.Addr, error) {
	for {
		a, mine, err := r.entry(sandbox, host)
		if err != nil {
			return nil, err
		}
		if mine {
			if err := r.ask(host, a, before); err != nil {
				return nil, err
			}
		}
		select {
		case <-a.done: // as a rule, and to be able to wait costs
		default:
			select {
			case <-a.done:
			case <-ctx.Done():
				return nil, wrap(ctx.Err())
			}
		}
		if !a.abandoned {
			return a.addrs, a.err
		}
	}
}

// entry returns the entry of a name, and whether the caller is to ask.
func (r *resolver) entry(sandbox, host string) (a *answer, mine bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return nil, false, errClosed
	}
	if a, ok := r.names[host]; ok {
		select {
		case <-a.done:
			if time.Now().Before(a.expires) {
				return a, false, nil
			}
			delete(r.names, host)
		default:
			return a, false, nil
		}
	}
	switch n := r.each[sandbox]; {
	case n >= maxQuestionsEach:
		return nil, false, &Error{Class: "dns", Detail: fmt.Sprintf("the sandbox is waiting for %d names already; ask again when some are answered", n)}
	case r.asking >= maxQuestions && n >= minQuestionsEach:
		return nil, false, &Error{Class: "dns", Detail: "all sandboxes together are asking for too many names; ask again"}
	}
	if len(r.names) >= maxNames {
		r.evict()
	}
	a = &answer{done: make(chan struct{}), sandbox: sandbox}
	r.names[host] = a
	r.asking++
	r.each[sandbox]++
	return a, true, nil
}

// asked is called with mu held when an entry is done.
func (r *resolver) asked(a *answer) {
	r.asking--
	if r.each[a.sandbox]--; r.each[a.sandbox] == 0 {
		delete(r.each, a.sandbox)
	}
	close(a.done)
}

// evictLook is how many entries are looked at to make room, if one of them can
// go: to look at all for each name would cost more than to ask for it.
const evictLook = 16

// evict makes room: of the entries it comes by what has expired goes, and if
// nothing has, the one does that expires first.
func (r *resolver) evict() {
	now := time.Now()
	looked, first := 0, ""
	var expires time.Time
	for host, a := range r.names { // from anywhere
		select {
		case <-a.done:
			switch {
			case !now.Before(a.expires):
				delete(r.names, host)
			case first == "" || a.expires.Before(expires):
				first, expires = host, a.expires
			}
		default: // asking; maxQuestions is less than maxNames
		}
		if looked++; looked >= evictLook && (first != "" || len(r.names) < maxNames) {
			break
		}
	}
	if len(r.names) >= maxNames {
		delete(r.names, first)
	}
}

// ask calls before and then has the question asked in the background.
func (r *resolver) ask(host string, a *answer, before func() error) error {
	started := false
	defer func() {
		if !started { // also if before panics
			r.mu.Lock()
			delete(r.names, host)
			a.abandoned = true
			r.asked(a)
			r.mu.Unlock()
		}
	}()
	if before != nil {
		if err := before(); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		started = true
		delete(r.names, host)
		a.err = errClosed
		r.asked(a)
		return errClosed
	}
	started = true
	r.wg.Go(func() { r.run(host, a) })
	return nil
}

func (r *resolver) run(host string, a *answer) {
	ctx, cancel := context.WithTimeout(r.ctx, lookupTimeout)
	defer cancel()
	addrs, err := r.lookup(ctx, host)
	ttl := positiveTTL
	switch {
	case err != nil && notFound(err), err == nil && len(addrs) == 0:
		ttl = negativeTTL
	case err != nil:
		ttl = failureTTL
	}
	if err != nil {
		err = wrap(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.addrs, a.err, a.expires = addrs, err, time.Now().Add(ttl)
	r.asked(a)
}
