package identity

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport/policy"
)

// memoryStore is a Store that can be made to fail.
type memoryStore struct {
	mu      sync.Mutex
	buckets map[string]map[string]string
	err     error
	puts    int
}

func (m *memoryStore) Put(bucket string, key, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.puts++
	if m.err != nil {
		return m.err
	}
	if m.buckets == nil {
		m.buckets = map[string]map[string]string{}
	}
	if m.buckets[bucket] == nil {
		m.buckets[bucket] = map[string]string{}
	}
	m.buckets[bucket][string(key)] = string(value)
	return nil
}

// PutAll is one put, as of a disk.
func (m *memoryStore) PutAll(bucket string, pairs map[string][]byte) error {
	before := m.puts
	for k, v := range pairs {
		if err := m.Put(bucket, []byte(k), v); err != nil {
			return err
		}
	}
	m.puts = before + 1
	return nil
}

func (m *memoryStore) DeleteAll(bucket string, keys [][]byte) error {
	m.puts++
	for _, k := range keys {
		if err := m.Delete(bucket, k); err != nil {
			return err
		}
	}
	return nil
}

func (m *memoryStore) ForEach(bucket string, fn func(k, v []byte) error) error {
	for k, v := range m.buckets[bucket] {
		if err := fn([]byte(k), []byte(v)); err != nil {
			return err
		}
	}
	return nil
}

func (m *memoryStore) Delete(bucket string, key []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	delete(m.buckets[bucket], string(key))
	return nil
}

func newTable(t *testing.T, s Store) *Table {
	t.Helper()
	table, err := NewTable(s)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// counter returns newID: id1, id2 and on.
func counter() func() string {
	var n atomic.Int64
	return func() string { return fmt.Sprint("id", n.Add(1)) }
}

// byNet claims 192.0.2.0/24 and 2001:db8::/64 for "ci" and 198.51.100.0/24 for
// "web".
func byNet(_ string, a netip.Addr, _ string) (string, bool) {
	switch {
	case netip.MustParsePrefix("192.0.2.0/24").Contains(a), netip.MustParsePrefix("2001:db8::/64").Contains(a):
		return "ci", true
	case netip.MustParsePrefix("198.51.100.0/24").Contains(a):
		return "web", true
	}
	return "", false
}

func from(iface, addr string) Traffic {
	return Traffic{Interface: iface, Addr: netip.MustParseAddr(addr)}
}

func TestAddAndRemove(t *testing.T) {
	table := newTable(t, &memoryStore{})
	for _, s := range []Sandbox{{Name: "ci", ID: "2"}, {Name: "web", ID: "3"}, {Name: "ci", ID: "1", Policy: "ci"}} {
		if err := table.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Add(Sandbox{Name: "other", ID: "1"}); !errors.Is(err, ErrDuplicate) {
		t.Errorf("second life of an ID: %v", err)
	}
	for _, s := range []Sandbox{{Name: "x"}, {ID: "9"}, {}} {
		if table.Add(s) == nil {
			t.Errorf("added %+v", s)
		}
	}
	if got := ids(table.List()); got != "1 2 3" {
		t.Errorf("list %s", got)
	}
	if got := ids(table.ByName("ci")); got != "1 2" {
		t.Errorf("by name %s", got)
	}
	if s := table.ByID("1"); s == nil || s.Name != "ci" || s.Policy != "ci" {
		t.Errorf("by ID %+v", s)
	}
	if ok, err := table.Remove("1"); !ok || err != nil {
		t.Errorf("remove: %v, %v", ok, err)
	}
	if ok, err := table.Remove("1"); ok || err != nil {
		t.Errorf("remove again: %v, %v", ok, err)
	}
	if table.ByID("1") != nil || ids(table.List()) != "2 3" || table.Len() != 2 {
		t.Error("removed sandbox is live")
	}
}

func ids(list []*Sandbox) string {
	var out []string
	for _, s := range list {
		out = append(out, s.ID)
	}
	return strings.Join(out, " ")
}

func TestClaim(t *testing.T) {
	table := newTable(t, &memoryStore{})
	newID := counter()
	tests := []struct {
		name string
		of   Traffic
		id   string // "" is unclaimed
	}{
		{"first", from("tap0", "192.0.2.1"), "id1"},
		{"again", from("tap0", "192.0.2.1"), "id1"},
		{"other family of the same sandbox", from("tap0", "2001:db8::7"), "id1"},
		{"another address of it", from("tap0", "192.0.2.200"), "id1"},
		{"other sandbox on the same interface", from("tap0", "198.51.100.1"), "id2"},
		{"same sandbox on another interface", from("tap1", "192.0.2.1"), "id3"},
		{"nobody's address", from("tap0", "203.0.113.1"), ""},
		{"no interface", from("", "192.0.2.1"), ""},
		{"interface that is none", from("tap\x000", "192.0.2.1"), ""},
		{"zero", Traffic{}, ""},
	}
	for _, tt := range tests {
		s, err := table.Claim(tt.of, byNet, newID)
		if tt.id == "" {
			if s != nil || !errors.Is(err, ErrUnclaimed) {
				t.Errorf("%s: %+v, %v", tt.name, s, err)
			}
			continue
		}
		if err != nil || s.ID != tt.id {
			t.Errorf("%s: %+v, %v, want %s", tt.name, s, err, tt.id)
		}
	}
	want := &Sandbox{Name: "ci", ID: "id1", Policy: "ci", Labels: map[string]string{LabelInterface: "tap0"}}
	if diff := cmp.Diff(want, table.ByID("id1")); diff != "" {
		t.Errorf("claimed sandbox (-want +got):\n%s", diff)
	}
	if r := want.Request(policy.StageName); r.Sandbox != "ci" {
		t.Errorf("request by %q", r.Sandbox)
	}
}

// TestClaimHeedsReload asks the policy of the moment each time.
func TestClaimHeedsReload(t *testing.T) {
	table := newTable(t, &memoryStore{})
	newID := counter()
	if _, err := table.Claim(from("tap0", "192.0.2.1"), byNet, newID); err != nil {
		t.Fatal(err)
	}
	nobody := func(string, netip.Addr, string) (string, bool) { return "ci", false }
	if s, err := table.Claim(from("tap0", "192.0.2.1"), nobody, newID); !errors.Is(err, ErrUnclaimed) {
		t.Errorf("after the claim is gone: %+v, %v", s, err)
	}
	var asked Traffic
	table.Claim(Traffic{"tap9", netip.MustParseAddr("192.0.2.1"), "02:00:00:00:00:01"}, func(i string, a netip.Addr, m string) (string, bool) {
		asked = Traffic{i, a, m}
		return "", false
	}, newID)
	if asked.Interface != "tap9" || asked.MAC != "02:00:00:00:00:01" || asked.Addr.String() != "192.0.2.1" {
		t.Errorf("policy was asked for %+v", asked)
	}
}

func TestNET08ClaimSurvivesRestart(t *testing.T) {
	store := &memoryStore{}
	newID := counter()
	table := newTable(t, store)
	before, err := table.Claim(from("tap0", "192.0.2.1"), byNet, newID)
	if err != nil {
		t.Fatal(err)
	}
	table = newTable(t, store)
	if got := ids(table.List()); got != before.ID {
		t.Errorf("live after a restart: %s", got)
	}
	puts := store.puts
	after, err := table.Claim(from("tap0", "2001:db8::1"), byNet, newID)
	if err != nil || after.ID != before.ID || store.puts != puts {
		t.Errorf("after a restart %+v, %v, want ID %s", after, err, before.ID)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("sandbox over a restart (-before +after):\n%s", diff)
	}
}

func TestClaimIsKeptBeforeItIsUsed(t *testing.T) {
	store := &memoryStore{err: errors.New("no space left on device")}
	table := newTable(t, store)
	s, err := table.Claim(from("tap0", "192.0.2.1"), byNet, counter())
	if s != nil || !errors.Is(err, store.err) || len(table.List()) != 0 {
		t.Errorf("claim that is not kept: %+v, %v", s, err)
	}
	store.err = nil
	if s, err := table.Claim(from("tap0", "192.0.2.1"), byNet, counter()); err != nil || s.ID != "id1" {
		t.Errorf("afterwards: %+v, %v", s, err)
	}
	store.err = errors.New("read-only file system")
	if _, err := table.Remove("id1"); !errors.Is(err, store.err) || table.ByID("id1") == nil {
		t.Errorf("claim that cannot be dropped: %v", err)
	}
}

func TestClaimedIDIsFree(t *testing.T) {
	table := newTable(t, &memoryStore{})
	if err := table.Add(Sandbox{Name: "job", ID: "id1"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"id1", ""} {
		if s, err := table.Claim(from("tap0", "192.0.2.1"), byNet, func() string { return id }); err == nil {
			t.Errorf("claimed with ID %q: %+v", id, s)
		}
	}
}

func TestRetain(t *testing.T) {
	store := &memoryStore{}
	table := newTable(t, store)
	newID := counter()
	for _, iface := range []string{"tap0", "tap1"} {
		for _, addr := range []string{"192.0.2.1", "198.51.100.1"} {
			if _, err := table.Claim(from(iface, addr), byNet, newID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := table.Add(Sandbox{Name: "job", ID: "job"}); err != nil {
		t.Fatal(err)
	}
	ended, err := table.Retain(func(s *Sandbox, iface string) bool { return iface == "tap0" && s.Name == "ci" })
	if err != nil || len(ended) != 3 {
		t.Errorf("ended %s, %v", ids(ended), err)
	}
	if got := ids(table.List()); got != "id1 job" {
		t.Errorf("live %s", got)
	}
	if got := ids(newTable(t, store).List()); got != "id1" {
		t.Errorf("live after a restart %s", got)
	}
	if s, err := table.Claim(from("tap1", "192.0.2.1"), byNet, newID); err != nil || s.ID != "id5" {
		t.Errorf("new life after the claim ended: %+v, %v", s, err)
	}
}

func TestNewTable(t *testing.T) {
	tests := []struct {
		name, want string
		store      Store
	}{
		{"no store", "store is required", nil},
		{"claim without a name", "not readable", kept("tap0", "id1")},
		{"claim of no interface", "not readable", kept("\x00ci", "id1")},
		{"claim without an ID", "not readable", kept("tap0\x00ci", "")},
		{"one ID, two claims", "is that of", kept("tap0\x00ci", "id1", "tap1\x00ci", "id1")},
	}
	for _, tt := range tests {
		if _, err := NewTable(tt.store); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func kept(pairs ...string) *memoryStore {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return &memoryStore{buckets: map[string]map[string]string{bucketClaims: m}}
}

// TestClaimConcurrent has a flood of first packets make one life.
func TestClaimConcurrent(t *testing.T) {
	store := &memoryStore{}
	table := newTable(t, store)
	newID := counter()
	var wg sync.WaitGroup
	var seen sync.Map
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				s, err := table.Claim(from("tap0", fmt.Sprintf("192.0.2.%d", i)), byNet, newID)
				if err != nil {
					t.Error(err)
					return
				}
				seen.Store(s.ID, true)
				id := fmt.Sprintf("r%d-%d", g, i)
				if err := table.Add(Sandbox{Name: "job", ID: id}); err != nil {
					t.Error(err)
				}
				table.List()
				if _, err := table.Remove(id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := ids(table.List()); got != "id1" || store.puts != 1 {
		t.Errorf("live %s, %d writes; want one life", got, store.puts)
	}
	seen.Range(func(k, _ any) bool {
		if k != "id1" {
			t.Errorf("traffic was taken for %v", k)
		}
		return true
	})
}

// TestClaimAllocations is the ceiling of the hot path: a claim that stands
// costs none.
func TestClaimAllocations(t *testing.T) {
	table := newTable(t, &memoryStore{})
	of, newID := from("tap0", "192.0.2.1"), counter()
	claimant := func(string, netip.Addr, string) (string, bool) { return "ci", true }
	if _, err := table.Claim(of, claimant, newID); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { table.Claim(of, claimant, newID) }); n != 0 {
		t.Errorf("%v allocations a claim", n)
	}
}

// TestClaimAll: a thousand lives are one write, and so are their ends; who has
// one keeps it; where the store fails nobody has one.
func TestClaimAll(t *testing.T) {
	store := &memoryStore{}
	table := newTable(t, store)
	newID := counter()
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("s%d", i))
	}
	if err := table.ClaimAll("proxy p", names[:1], newID); err != nil {
		t.Fatal(err)
	}
	first := table.List()[0].ID
	store.err = errors.New("the disk is full")
	if err := table.ClaimAll("proxy p", names, newID); !errors.Is(err, store.err) || len(table.List()) != 1 {
		t.Errorf("%v, and %d sandboxes", err, len(table.List()))
	}
	store.err, store.puts = nil, 0
	for range 2 { // again: nothing changes
		if err := table.ClaimAll("proxy p", append(names, names...), newID); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(table.List()); n != 1000 || store.puts != 1 || table.ByName("s0")[0].ID != first {
		t.Errorf("%d sandboxes, %d writes, s0 is %s and was %s", n, store.puts, table.ByName("s0")[0].ID, first)
	}
	again := newTable(t, store)
	if s := again.ByName("s999"); len(s) != 1 || s[0].ID != table.ByName("s999")[0].ID {
		t.Errorf("kept: %+v", s)
	}
	store.puts = 0
	ended, err := table.Retain(func(s *Sandbox, _ string) bool { return s.Name == "s0" })
	if err != nil || len(ended) != 999 || len(table.List()) != 1 || store.puts != 1 {
		t.Errorf("%d ended with %d writes, %d left: %v", len(ended), store.puts, len(table.List()), err)
	}
	if err := table.ClaimAll("", names, newID); !errors.Is(err, ErrUnclaimed) {
		t.Errorf("without an interface: %v", err)
	}
	if err := table.ClaimAll("proxy q", names[:2], func() string { return "same" }); !errors.Is(err, ErrDuplicate) || len(table.List()) != 1 {
		t.Errorf("the same ID twice: %v", err)
	}
}
