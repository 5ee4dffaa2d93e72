package upstream

import (
	"io"
	"sync"
)

// Write implements net.Conn. The records of a long p are sent together.
func (a *clearConn) Write(p []byte) (int, error) {
	if a.Conn == a.under { // without TLS
		return a.under.Write(p)
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	if !a.begun {
		a.begun = true
		a.under.claimLastFlight() // it goes with p
	}
	return a.under.records.Write(a.Conn, (*sending)(a.under), p)
}

// Close implements net.Conn. A write that has not ended is broken off, as
// crypto/tls does with its own, which a gathered one is not while it is sent.
func (a *clearConn) Close() error {
	if !a.writing.TryLock() {
		return a.under.Close()
	}
	defer a.writing.Unlock()
	a.under.flushLastFlight()
	return a.Conn.Close()
}

// Sizes in bytes of what is read of a request's body at once: of one that pauses
// less, as its buffer may be waited with.
const (
	littleBody = 32 << 10
	muchBody   = 3*maxPlain + maxRecord // four records
)

// bodyBuffers lends what bodies are copied with.
type bodyBuffers struct{ little, much sync.Pool }

func (p *bodyBuffers) get(much bool) *[]byte {
	pool, size := &p.little, littleBody
	if much {
		pool, size = &p.much, muchBody
	}
	if b, ok := pool.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, size)
	return &b
}

func (p *bodyBuffers) put(b *[]byte) {
	if len(*b) == muchBody {
		p.much.Put(b)
		return
	}
	p.little.Put(b)
}

// ReadFrom implements io.ReaderFrom, by which net/http copies a request's body.
// What a read brings is sent before the next.
func (a *clearConn) ReadFrom(src io.Reader) (total int64, err error) {
	buffers := &a.under.pool.u.bodies
	for much := false; err == nil; {
		b := buffers.get(much)
		var n, sent int
		n, err = src.Read(*b)
		if n > 0 {
			var failed error
			if sent, failed = a.Write((*b)[:n]); failed != nil {
				err = failed
			}
		}
		much = n > len(*b)-maxRecord
		total += int64(sent)
		buffers.put(b)
	}
	if err == io.EOF {
		err = nil
	}
	return total, err
}
