package audit

import (
	"fmt"
	"os"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// State is a small store that survives restarts: alert state, leases of
// virtual addresses, registered sandboxes. It is safe for concurrent use.
type State struct {
	db *bbolt.DB

	mu      sync.Mutex
	waiting []*change
	holding map[*Spool]struct{} // what is not in the file yet

	writing sync.Mutex // held by the one who writes for all that wait
}

// change is what one call changes. done and err are guarded by writing.
type change struct {
	apply func(tx *bbolt.Tx) error
	done  bool
	err   error
}

// change makes a change that is on disk when it returns, together with all
// that gathered while another was being written.
func (s *State) change(apply func(tx *bbolt.Tx) error) error {
	c := &change{apply: apply}
	s.mu.Lock()
	s.waiting = append(s.waiting, c)
	s.mu.Unlock()
	s.writing.Lock()
	defer s.writing.Unlock()
	if !c.done {
		s.mu.Lock()
		list := s.waiting
		s.waiting = nil
		s.mu.Unlock()
		s.write(list)
	}
	return c.err
}

// write makes all changes at once, or, where one of them cannot be made, each
// by itself.
func (s *State) write(list []*change) {
	err := s.db.Update(func(tx *bbolt.Tx) error {
		for _, c := range list {
			if err := c.apply(tx); err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range list {
		c.done, c.err = true, err
		if err != nil && len(list) > 1 {
			c.err = s.db.Update(c.apply)
		}
	}
}

// stateWait bounds how long OpenState waits for another holder to leave.
const stateWait = time.Second

// OpenState opens or creates the file at path with mode 0600. One process may
// have it open; another gets ErrBusy.
func OpenState(path string) (*State, error) {
	db, err := openBolt(path, bbolt.Options{Timeout: stateWait})
	if err != nil {
		return nil, fmt.Errorf("state %s: %w", path, err)
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
		db.Close()
		return nil, fmt.Errorf("state %s: mode %04o lets others in; want 0600", path, info.Mode().Perm())
	}
	return &State{db: db, holding: make(map[*Spool]struct{})}, nil
}

// Put stores value under key in bucket, which is made if it is not there. It
// is on disk when Put returns.
func (s *State) Put(bucket string, key, value []byte) error {
	err := s.change(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		return b.Put(key, value)
	})
	if err != nil {
		return fmt.Errorf("state %q: put: %w", bucket, err)
	}
	return nil
}

// PutAll stores many pairs in bucket at once: all are on disk when it returns,
// or none.
func (s *State) PutAll(bucket string, pairs map[string][]byte) error {
	err := s.change(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		for k, v := range pairs {
			if err == nil {
				err = b.Put([]byte(k), v)
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("state %q: put %d: %w", bucket, len(pairs), err)
	}
	return nil
}

// DeleteAll removes many keys from bucket at once, or none. It is no error if
// one is not there.
func (s *State) DeleteAll(bucket string, keys [][]byte) error {
	err := s.change(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		if b == nil {
			return nil
		}
		for _, k := range keys {
			if err := b.Delete(k); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("state %q: delete %d: %w", bucket, len(keys), err)
	}
	return nil
}

// pair is a value to store under a key, nil to remove it.
type pair struct {
	bucket     string
	key, value []byte
}

// apply stores and removes pairs of any buckets at once, or none.
func (s *State) apply(list []pair) error {
	err := s.change(func(tx *bbolt.Tx) error {
		for _, p := range list {
			b, err := tx.CreateBucketIfNotExists([]byte(p.bucket))
			switch {
			case err != nil:
			case p.value == nil:
				err = b.Delete(p.key)
			default:
				err = b.Put(p.key, p.value)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("state: change %d: %w", len(list), err)
	}
	return nil
}

// Get returns a copy of the value under key, or nil if there is none.
func (s *State) Get(bucket string, key []byte) ([]byte, error) {
	var value []byte
	err := s.db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte(bucket)); b != nil {
			if v := b.Get(key); v != nil {
				value = append([]byte{}, v...)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("state %q: get: %w", bucket, err)
	}
	return value, nil
}

// Delete removes key from bucket. It is no error if it is not there.
func (s *State) Delete(bucket string, key []byte) error {
	err := s.change(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte(bucket)); b != nil {
			return b.Delete(key)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("state %q: delete: %w", bucket, err)
	}
	return nil
}

// ForEach calls fn for every pair of bucket in the order of the keys, until it
// returns an error. The slices are fn's only until it returns.
func (s *State) ForEach(bucket string, fn func(key, value []byte) error) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		if b == nil {
			return nil
		}
		return b.ForEach(fn)
	})
}

// Close releases the file. Calls that are under way are waited for.
func (s *State) Close() error { return s.db.Close() }
