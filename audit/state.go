package audit

import (
	"fmt"
	"os"
	"time"

	"go.etcd.io/bbolt"
)

// State is a small store that survives restarts: alert state, leases of
// virtual addresses, registered sandboxes. It is safe for concurrent use.
type State struct {
	db *bbolt.DB
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
	return &State{db: db}, nil
}

// Put stores value under key in bucket, which is made if it is not there. It
// is on disk when Put returns.
func (s *State) Put(bucket string, key, value []byte) error {
	err := s.db.Batch(func(tx *bbolt.Tx) error {
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
	err := s.db.Update(func(tx *bbolt.Tx) error {
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
	err := s.db.Update(func(tx *bbolt.Tx) error {
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
	err := s.db.Batch(func(tx *bbolt.Tx) error {
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
