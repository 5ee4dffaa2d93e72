package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"sallyport/gateway/identity"
	"sallyport/policy"
)

// Store keeps what sandboxes have used of their budgets over a restart. The
// bytes given to fn are valid until it returns.
type Store interface {
	Put(bucket string, key, value []byte) error
	ForEach(bucket string, fn func(key, value []byte) error) error
	Delete(bucket string, key []byte) error
}

// budgetBucket holds a spent for each allowance with a budget.
const budgetBucket = "budgets"

// spent is what was used of the budgets of one day (UTC).
type spent struct {
	Day      string `json:"day"` // 2006-01-02
	Sent     int64  `json:"sent"`
	Received int64  `json:"received"`
}

// allowances are what sandboxes, and rules in sandboxes, have used.
type allowances struct {
	store Store
	now   func() time.Time

	mu  sync.Mutex
	all map[string]*allowance
}

// allowance is the use of one sandbox, or of one rule in a sandbox. Its
// limits are those of the policy in force.
type allowance struct {
	key string
	now func() time.Time

	mu       sync.Mutex
	limits   policy.Limits
	requests *rate.Limiter // nil without a limit
	perMin   int64         // what requests was made for
	spent    spent
	kept     spent     // as the store has it
	touched  time.Time // when it was last used
	number   int64     // of the day of spent, counted from 1970; 0: not known
}

// forgetAfter is how long an allowance of a day that is over is kept after
// its last use. An exchange in which nothing passes ends long before.
const forgetAfter = 24 * time.Hour

func newAllowances(store Store, now func() time.Time) (*allowances, error) {
	a := &allowances{store: store, now: now, all: map[string]*allowance{}}
	var past []string
	err := store.ForEach(budgetBucket, func(k, v []byte) error {
		var s spent
		if err := json.Unmarshal(v, &s); err != nil {
			return err
		}
		key := string(k)
		if s.Day != day(now()) {
			past = append(past, key)
			return nil
		}
		a.all[key] = &allowance{key: key, now: now, spent: s, kept: s, touched: now()}
		return nil
	})
	for _, key := range past {
		err = errors.Join(err, store.Delete(budgetBucket, []byte(key)))
	}
	return a, err
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// forget drops what a sandbox whose life has ended has used.
func (a *allowances) forget(sandboxID string) error {
	return a.drop(func(w *allowance) bool { return w.key == sandboxID || strings.HasPrefix(w.key, sandboxID+" ") })
}

// forgetIdle drops what no longer binds anybody.
func (a *allowances) forgetIdle() error {
	today, now := day(a.now()), a.now()
	return a.drop(func(w *allowance) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.spent.Day != today && now.Sub(w.touched) > forgetAfter
	})
}

// drop removes allowances here and from the store, from which they are not to
// come back at the next start.
func (a *allowances) drop(which func(*allowance) bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for key, w := range a.all {
		if which(w) {
			delete(a.all, key)
			errs = append(errs, a.store.Delete(budgetBucket, []byte(key)))
		}
	}
	return errors.Join(errs...)
}

// of returns the allowances that bind an attempt of sb under d: the
// sandbox's, and the rule's if it has limits of its own.
func (a *allowances) of(set *policy.Set, sb *identity.Sandbox, rule *policy.Rule) []*allowance {
	var out []*allowance
	if set != nil {
		if p := set.Sandbox(sb.Policy); p != nil && p.Limits != (policy.Limits{}) {
			out = append(out, a.get(sb.ID, p.Limits))
		}
	}
	if rule != nil && rule.Limits != (policy.Limits{}) {
		out = append(out, a.get(sb.ID+" "+ruleKey(rule), rule.Limits))
	}
	return out
}

// ruleKey tells rules apart by what they match, so that two of one host do
// not share what they may use, and a rule keeps what it has used when it moves.
func ruleKey(r *policy.Rule) string {
	text := fmt.Sprint(r.Repo, r.Ports, r.Schemes, r.Access, r.Methods, r.Paths, r.Query, r.Headers)
	if r.GraphQL != nil || r.JSONRPC != nil {
		text += fmt.Sprint(r.GraphQL, r.JSONRPC)
	}
	sum := sha256.Sum256([]byte(text))
	return r.Owner + " " + r.Action.String() + " " + r.Host + " " + hex.EncodeToString(sum[:8])
}

func (a *allowances) get(key string, l policy.Limits) *allowance {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.all[key]
	if w == nil {
		w = &allowance{key: key, now: a.now}
		a.all[key] = w
	}
	w.bind(l)
	return w
}

// bind puts the limits of the policy in force on w.
func (w *allowance) bind(l policy.Limits) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limits, w.touched = l, w.now()
	if w.perMin == l.RequestsPerMinute {
		return
	}
	w.perMin, w.requests = l.RequestsPerMinute, nil
	if l.RequestsPerMinute > 0 {
		w.requests = rate.NewLimiter(rate.Limit(float64(l.RequestsPerMinute)/60), int(l.RequestsPerMinute))
	}
}

// request takes one request from the allowance and says why there is none.
func (w *allowance) request(length int64) *policy.Decision {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.limits.MaxRequest > 0 && length > w.limits.MaxRequest:
		return deny(policy.BodyTooLarge, "the request body is larger than the policy allows")
	case w.requests != nil && !w.requests.AllowN(w.now(), 1):
		return deny(policy.RateLimited, "the sandbox has made its requests for this minute")
	case w.over():
		return deny(policy.ByteBudget, "the byte budget of the day is used up")
	}
	return nil
}

// errBudget ends a stream that goes over a budget or a size.
var (
	errBudget  = errors.New("the byte budget of the day is used up")
	errTooLong = errors.New("the body is larger than the policy allows")
)

// add counts bytes that passed, and fails once they are too many.
func (w *allowance) add(sent, received int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.today()
	w.spent.Sent += sent
	w.spent.Received += received
	if w.over() {
		return errBudget
	}
	return nil
}

// today begins a new day's budget when there is one.
func (w *allowance) today() {
	w.touched = w.now()
	n := w.touched.Unix() / (24 * 60 * 60)
	if n == w.number && w.spent.Day != "" {
		return // of which the name need not be made
	}
	w.number = n
	if d := day(w.touched); w.spent.Day != d {
		w.spent = spent{Day: d}
	}
}

func (w *allowance) over() bool {
	w.today()
	return w.limits.BytesSentPerDay > 0 && w.spent.Sent > w.limits.BytesSentPerDay ||
		w.limits.BytesReceivedPerDay > 0 && w.spent.Received > w.limits.BytesReceivedPerDay
}

// save keeps what changed since the last time.
func (a *allowances) save() error {
	idle := a.forgetIdle()
	a.mu.Lock()
	list := make([]*allowance, 0, len(a.all))
	for _, w := range a.all {
		list = append(list, w)
	}
	a.mu.Unlock()
	errs := []error{idle}
	for _, w := range list {
		w.mu.Lock()
		s, changed := w.spent, w.spent != w.kept && w.spent.Day != ""
		w.kept = w.spent
		w.mu.Unlock()
		if !changed {
			continue
		}
		b, err := json.Marshal(s)
		if err == nil {
			err = a.store.Put(budgetBucket, []byte(w.key), b)
		}
		if !a.has(w) { // it was forgotten meanwhile
			err = errors.Join(err, a.store.Delete(budgetBucket, []byte(w.key)))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (a *allowances) has(w *allowance) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[w.key] == w
}

// meters count bytes against every allowance of an attempt.
type meters []*allowance

func (m meters) add(sent, received int64) error {
	var errs error
	for _, w := range m {
		if err := w.add(sent, received); err != nil {
			errs = err
		}
	}
	return errs
}

// maxima are the smallest body sizes that the allowances set; 0 is none.
func (m meters) maxima() (request, response int64) {
	for _, w := range m {
		w.mu.Lock()
		request, response = smaller(request, w.limits.MaxRequest), smaller(response, w.limits.MaxResponse)
		w.mu.Unlock()
	}
	return request, response
}

func smaller(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
