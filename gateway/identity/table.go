package identity

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// bucketClaims is the Store's bucket: interface, NUL, sandbox name → ID.
const bucketClaims = "identity_claims"

// LabelInterface is the label that holds the interface of a claimed sandbox.
const LabelInterface = "interface"

// Errors of Table that callers tell apart.
var (
	// ErrDuplicate says that the ID is already that of a live sandbox.
	ErrDuplicate = errors.New("sandbox ID is already in use")
	// ErrUnclaimed says that no sandbox claims the traffic.
	ErrUnclaimed = errors.New("no sandbox claims this traffic")
)

// Store keeps claims over a restart. Put and PutAll return when what they were
// given is kept, all of it or none; the bytes given to fn are valid until it
// returns.
type Store interface {
	Put(bucket string, key, value []byte) error
	PutAll(bucket string, pairs map[string][]byte) error
	ForEach(bucket string, fn func(k, v []byte) error) error
	Delete(bucket string, key []byte) error
	DeleteAll(bucket string, keys [][]byte) error
}

// Table is the live sandboxes. It is safe for concurrent use. A *Sandbox it
// hands out is shared and never changes.
//
// Sandboxes come into it in two ways. One that was registered is added, and
// the socket it speaks through stands for it. One that is known by its traffic
// alone, behind an interface, is claimed: its life is that of the pair of
// interface and sandbox name. So its addresses of both families are one
// sandbox, an address it changes or forges makes no further one, and how many
// there can be is for the host to say, not for the traffic.
type Table struct {
	store Store

	claiming sync.Mutex // held by whoever changes what is live, through the write to the Store

	mu     sync.RWMutex
	byID   map[string]*Sandbox
	claims map[claim]*Sandbox
}

// claim is what a claimed sandbox is known by.
type claim struct{ iface, name string }

// NewTable returns a Table with the claims that s holds.
func NewTable(s Store) (*Table, error) {
	if s == nil {
		return nil, errors.New("identity: store is required")
	}
	t := &Table{store: s, byID: map[string]*Sandbox{}, claims: map[claim]*Sandbox{}}
	err := s.ForEach(bucketClaims, func(k, v []byte) error {
		iface, name, ok := bytes.Cut(k, []byte{0})
		if !ok || len(iface) == 0 || len(name) == 0 || len(v) == 0 {
			return fmt.Errorf("kept claim %q: not readable", k)
		}
		if other := t.byID[string(v)]; other != nil {
			return fmt.Errorf("kept claim %q: its ID %q is that of %q", k, v, other.Name)
		}
		t.put(claim{string(iface), string(name)}, string(v))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	return t, nil
}

// Add makes a registered sandbox live. Registration itself is kept by the
// caller.
func (t *Table) Add(s Sandbox) error {
	if s.ID == "" || s.Name == "" {
		return errors.New("sandbox: ID and name are required")
	}
	t.claiming.Lock() // an ID about to be claimed is not free
	defer t.claiming.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[s.ID] != nil {
		return fmt.Errorf("sandbox %q: ID %q: %w", s.Name, s.ID, ErrDuplicate)
	}
	t.byID[s.ID] = &s
	return nil
}

// Remove ends the life of a sandbox, added or claimed. It reports false if
// there is none of this ID. Where the Store cannot forget a claim the sandbox
// stays, and so does its ID.
func (t *Table) Remove(id string) (bool, error) {
	t.claiming.Lock()
	defer t.claiming.Unlock()
	s := t.ByID(id)
	if s == nil {
		return false, nil
	}
	c := claim{s.Labels[LabelInterface], s.Policy}
	t.mu.RLock()
	claimed := t.claims[c] == s
	t.mu.RUnlock()
	if claimed {
		if err := t.store.Delete(bucketClaims, c.key()); err != nil {
			return true, fmt.Errorf("sandbox %q: drop claim: %w", s.Name, err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
	if claimed {
		delete(t.claims, c)
	}
	return true, nil
}

// ByID returns the live sandbox of an ID, or nil.
func (t *Table) ByID(id string) *Sandbox {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byID[id]
}

// ByName returns the live sandboxes of a name, the oldest ID first.
func (t *Table) ByName(name string) []*Sandbox {
	return t.sorted(func(s *Sandbox) bool { return s.Name == name })
}

// Len returns how many sandboxes there are.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byID)
}

// List returns the live sandboxes, by name and then by ID.
func (t *Table) List() []*Sandbox {
	return t.sorted(func(*Sandbox) bool { return true })
}

func (t *Table) sorted(want func(*Sandbox) bool) []*Sandbox {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []*Sandbox
	for _, s := range t.byID {
		if want(s) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *Sandbox) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return out
}

// Traffic is what traffic behind an interface is known by.
type Traffic struct {
	Interface string
	Addr      netip.Addr // its source
	MAC       string     // "" where it is not known
}

// Claim returns the sandbox that traffic belongs to. claimant names it by the
// policy of the moment, as policy.Set.Claim does, and is asked every time, so
// that a reload is heeded at once. The first traffic of a sandbox gives it a
// life with an ID from newID, which is kept before it is used, and has
// the same ID as long as the claim stands, over restarts too.
//
// The error is ErrUnclaimed, or says why a claim could not be kept.
func (t *Table) Claim(of Traffic, claimant func(iface string, addr netip.Addr, mac string) (name string, ok bool), newID func() string) (*Sandbox, error) {
	name, ok := claimant(of.Interface, of.Addr, of.MAC)
	if !ok || name == "" || of.Interface == "" {
		return nil, ErrUnclaimed
	}
	c := claim{of.Interface, name}
	if s := t.claimed(c); s != nil {
		return s, nil
	}
	if strings.IndexByte(c.iface, 0) >= 0 || strings.IndexByte(c.name, 0) >= 0 {
		return nil, ErrUnclaimed
	}
	t.claiming.Lock()
	defer t.claiming.Unlock()
	if s := t.claimed(c); s != nil {
		return s, nil
	}
	id := newID()
	if id == "" || t.ByID(id) != nil {
		return nil, fmt.Errorf("sandbox %q: ID %q: %w", name, id, ErrDuplicate)
	}
	if err := t.store.Put(bucketClaims, c.key(), []byte(id)); err != nil {
		return nil, fmt.Errorf("sandbox %q: keep claim: %w", name, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.put(c, id), nil
}

// ClaimAll begins the lives of those sandboxes among names that have none at
// iface, as Claim does one by one, and keeps them at once: all or none.
func (t *Table) ClaimAll(iface string, names []string, newID func() string) error {
	t.claiming.Lock()
	defer t.claiming.Unlock()
	kept, begun := map[string][]byte{}, map[claim]string{}
	taken := map[string]bool{}
	for _, name := range names {
		c := claim{iface, name}
		if iface == "" || name == "" || strings.IndexByte(iface+name, 0) >= 0 {
			return fmt.Errorf("sandbox %q: %w", name, ErrUnclaimed)
		}
		if t.claimed(c) != nil || begun[c] != "" {
			continue
		}
		id := newID()
		if id == "" || taken[id] || t.ByID(id) != nil {
			return fmt.Errorf("sandbox %q: ID %q: %w", name, id, ErrDuplicate)
		}
		taken[id], begun[c], kept[string(c.key())] = true, id, []byte(id)
	}
	if len(begun) == 0 {
		return nil
	}
	if err := t.store.PutAll(bucketClaims, kept); err != nil {
		return fmt.Errorf("%d sandboxes: keep claims: %w", len(begun), err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for c, id := range begun {
		t.put(c, id)
	}
	return nil
}

// Retain ends every claimed sandbox for which keep is false, at once, and
// returns those it ended. The gateway calls it when interfaces or the policy
// have changed. Where the Store cannot forget the claims none has ended.
func (t *Table) Retain(keep func(s *Sandbox, iface string) bool) ([]*Sandbox, error) {
	t.claiming.Lock()
	defer t.claiming.Unlock()
	gone := map[claim]*Sandbox{}
	var keys [][]byte
	for c, s := range t.allClaims() {
		if !keep(s, c.iface) {
			gone[c] = s
			keys = append(keys, c.key())
		}
	}
	if len(gone) == 0 {
		return nil, nil
	}
	if err := t.store.DeleteAll(bucketClaims, keys); err != nil {
		return nil, fmt.Errorf("%d sandboxes: drop claims: %w", len(gone), err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var ended []*Sandbox
	for c, s := range gone {
		delete(t.byID, s.ID)
		delete(t.claims, c)
		ended = append(ended, s)
	}
	return ended, nil
}

func (t *Table) claimed(c claim) *Sandbox {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.claims[c]
}

func (t *Table) allClaims() map[claim]*Sandbox {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make(map[claim]*Sandbox, len(t.claims))
	for c, s := range t.claims {
		out[c] = s
	}
	return out
}

// put makes a claim live. The caller holds mu, or is alone.
func (t *Table) put(c claim, id string) *Sandbox {
	s := &Sandbox{Name: c.name, ID: id, Policy: c.name, Labels: map[string]string{LabelInterface: c.iface}}
	t.byID[id] = s
	t.claims[c] = s
	return s
}

func (c claim) key() []byte { return []byte(c.iface + "\x00" + c.name) }
