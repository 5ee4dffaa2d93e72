package audit

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Sync says when what was written is also made to survive a power cut. A
// crash of the process never loses an acknowledged record.
type Sync int

const (
	// SyncInterval calls fsync once per Options.Interval while there is
	// something to sync. It is the zero value.
	SyncInterval Sync = iota
	// SyncAlways calls fsync before Write returns, once for all callers that
	// wait.
	SyncAlways
	// SyncNever leaves it to the kernel.
	SyncNever
)

// ParseSync reads the value of the audit block's sync attribute.
func ParseSync(s string) (Sync, error) {
	switch s {
	case "", "interval":
		return SyncInterval, nil
	case "always":
		return SyncAlways, nil
	case "never":
		return SyncNever, nil
	}
	return SyncInterval, fmt.Errorf("audit sync %q: want always, interval or never", s)
}

// Defaults of Options.
const (
	DefaultInterval     = 100 * time.Millisecond
	DefaultSegmentBytes = 64 << 20
	DefaultSegmentAge   = 24 * time.Hour
	DefaultRetainAge    = 30 * 24 * time.Hour
	DefaultRetainBytes  = 10 << 30
)

// Options of Open. Dir is required; a zero limit is its default.
type Options struct {
	// Dir holds the segments, their index and the writer's lock, and nothing
	// else. It is made with mode 0700.
	Dir      string
	Sync     Sync
	Interval time.Duration // between two fsyncs of SyncInterval

	SegmentBytes int64         // a segment that would grow beyond it is closed
	SegmentAge   time.Duration // a segment that is older is closed
	RetainAge    time.Duration // closed segments whose last record is older are removed
	RetainBytes  int64         // the oldest are removed while all segments together have more

	// Key, if not nil, signs the end of the log every CheckpointAge while it
	// grows, and at Close.
	Key           ed25519.PrivateKey
	CheckpointAge time.Duration

	// Logger gets what an operator should know of the log itself; nil is
	// silence.
	Logger hclog.Logger
	// State, if not nil, remembers the end of the log, so that records cut off
	// while the gateway was down are noticed and no seq is used twice.
	State *State
	// Now is the wall clock; nil is time.Now.
	Now func() time.Time

	up func() time.Duration // how long the machine has been up; nil is uptime
}

var (
	// ErrUnavailable is returned by Write while the log cannot be written.
	// What it was about must not happen.
	ErrUnavailable = errors.New("audit log unavailable")
	// ErrBusy is returned by Open and OpenState when another process has it.
	ErrBusy = errors.New("in use")
	// ErrClosed is returned by Write after Close.
	ErrClosed = errors.New("audit log closed")
)

// withDefaults returns o with every zero filled in.
func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("audit log: no directory")
	}
	if o.Interval < 0 || o.SegmentBytes < 0 || o.SegmentAge < 0 || o.RetainAge < 0 || o.RetainBytes < 0 || o.CheckpointAge < 0 {
		return o, fmt.Errorf("audit log %s: negative limit", o.Dir)
	}
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.SegmentAge == 0 {
		o.SegmentAge = DefaultSegmentAge
	}
	if o.RetainAge == 0 {
		o.RetainAge = DefaultRetainAge
	}
	if o.RetainBytes == 0 {
		o.RetainBytes = DefaultRetainBytes
	}
	if o.CheckpointAge == 0 {
		o.CheckpointAge = DefaultCheckpointAge
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.up == nil {
		o.up = uptime()
	}
	return o, nil
}
