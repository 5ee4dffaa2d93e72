package dns

// How many datagrams are read at a time from a socket: from one that is quiet,
// and from one that was found with more than one waiting.
const (
	fewDatagrams  = 2
	manyDatagrams = 32
)

// batch is the memory for datagrams that are read and answered together.
type batch struct {
	in     []Datagram
	asked  []Asked  // the questions among them
	parsed []parsed // for each of asked
	out    []Datagram
	space  []byte // for the answers, MaxUDPBytes each
}

// parsed is where a question is.
type parsed struct {
	query    query
	datagram int // in the batch
}

func newBatch(n int) *batch {
	b := &batch{
		in: make([]Datagram, n), asked: make([]Asked, 0, n), parsed: make([]parsed, n),
		out: make([]Datagram, 0, n), space: make([]byte, n*MaxUDPBytes),
	}
	space := make([]byte, n*MaxQuestionBytes)
	for i := range b.in {
		b.in[i].B = space[i*MaxQuestionBytes:][:0:MaxQuestionBytes]
	}
	return b
}

// room returns room for as many datagrams as there are, and at most n.
func (b *batch) room(n int) []Datagram {
	ds := b.in[:min(n, len(b.in))]
	for i := range ds {
		ds[i].B = ds[i].B[:MaxQuestionBytes]
	}
	return ds
}

// answer appends the answer a to the question q, which is datagram i.
func (b *batch) answer(out []Datagram, i int, q query, a Answer) []Datagram {
	d := b.in[i]
	d.B = reply(b.space[i*MaxUDPBytes:][:0:MaxUDPBytes], d.B, q, a, datagramLimit(q), false)
	return append(out, d)
}

// batch returns memory for few or many datagrams, and free gives it back.
func (s *Server) batch(many bool) *batch {
	n, pool := fewDatagrams, &s.few
	if many {
		n, pool = manyDatagrams, &s.many
	}
	if b, ok := pool.Get().(*batch); ok {
		return b
	}
	return newBatch(n)
}

func (s *Server) free(b *batch) {
	if len(b.in) == fewDatagrams {
		s.few.Put(b)
	} else {
		s.many.Put(b)
	}
}
