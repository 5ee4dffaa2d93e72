package inject

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/andybalholm/brotli"

	"sallyport/policy"
	"sallyport/secrets"
)

// roomOf is a Room of so many bytes.
type roomOf struct {
	mu               sync.Mutex
	most, used, peak int64
}

func (r *roomOf) Take(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > 0 && r.used+n > r.most {
		return false
	}
	r.used += n
	r.peak = max(r.peak, r.used)
	return true
}

// Beginnings of streams with the widest windows: of br, with a piece of 16 MiB
// that is not compressed (RFC 7932, sections 9.1 and 9.2), and of zstd, with the
// head of a frame (RFC 8878, section 3.1.1).
const (
	wideBrotli = "\xcf\xff\xff\xff"
	wideZstd   = "\x28\xb5\x2f\xfd\x00\x68"
)

// wide is a stream in br or zstd with the widest window, which begins with text
// and does not end.
func wide(coding, text string) io.Reader {
	if coding == "br" {
		return io.MultiReader(strings.NewReader(wideBrotli+text), &endless{text: "x"})
	}
	block := func(text string) string {
		return string(binary.LittleEndian.AppendUint32(nil, uint32(len(text)<<3))[:3]) + text
	}
	return io.MultiReader(strings.NewReader(wideZstd+block(text)), &endless{text: block(strings.Repeat("x", 64<<10))})
}

// heap is what is reachable, in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestAnswersTakeWhatTheyHold: what is taken from the room is no less than what
// answers hold of which the rest is not read.
func TestAnswersTakeWhatTheyHold(t *testing.T) {
	m := maskerOf(t, "REAL-7f3a9c51e2d84b06")
	text := strings.Repeat("a text ", 10<<10)
	for coding := range compressors() {
		const answers = 4
		room := &roomOf{most: 1 << 40}
		var open []io.Reader
		before := heap()
		for range answers {
			src := io.Reader(strings.NewReader(packed(t, coding, text)))
			if coding == "br" || coding == "zstd" {
				src = wide(coding, text)
			}
			one := *m
			one.Within(room)
			resp := respond(coding, src, -1)
			if err := one.Response(resp, noUse); err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, decompress(t, coding, resp.Body), 1<<10); err != nil {
				t.Fatalf("%s: %v", coding, err)
			}
			open = append(open, resp.Body)
		}
		got, taken := (heap()-before)/answers, room.used/answers
		runtime.KeepAlive(open)
		if got > taken+taken/8+64<<10 {
			t.Errorf("%s: %d KiB are held, and %d taken", coding, got>>10, taken>>10)
		}
		if coding == "br" && taken < 16<<20 || coding == "zstd" && taken < maxWindow {
			t.Errorf("%s: %d bytes are taken", coding, taken)
		}
	}
}

// TestAnswersThatFindNoRoom: an answer is another one when there is none at all,
// and is broken off when it comes to need more than there is.
func TestAnswersThatFindNoRoom(t *testing.T) {
	m := maskerOf(t, "REAL-7f3a9c51e2d84b06")
	for coding := range compressors() {
		one := *m
		one.Within(&roomOf{most: 10 << 10})
		body := packed(t, coding, "text")
		if err := one.Response(respond(coding, strings.NewReader(body), int64(len(body))), noUse); !isRefusal(err, policy.RateLimited) {
			t.Errorf("%s: %v", coding, err)
		}
	}
	for _, coding := range []string{"br", "zstd"} {
		for how, read := range map[string]func(io.Reader) io.Reader{"whole": asIs, "bytes": iotest.OneByteReader} {
			one := *m
			room := &roomOf{most: 2 << 20}
			one.Within(room)
			resp := respond(coding, read(wide(coding, "a text")), -1)
			if err := one.Response(resp, noUse); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); !isRefusal(err, policy.RateLimited) {
				t.Errorf("%s, %s: %v", coding, how, err)
			}
			if room.used > 1<<20 {
				t.Errorf("%s, %s: %d bytes are still taken", coding, how, room.used)
			}
		}
	}
}

func noUse(string, string) {}

// TestStreamsTakeLittle: a stream of short events takes what it is, and not the
// window that it names.
func TestStreamsTakeLittle(t *testing.T) {
	m := maskerOf(t, "REAL-7f3a9c51e2d84b06")
	var body bytes.Buffer
	w := brotli.NewWriterOptions(&body, brotli.WriterOptions{Quality: 4, LGWin: 22})
	for range 100 {
		_, _ = io.WriteString(w, "data: an event\n\n")
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	room := &roomOf{most: 512 << 10}
	m.Within(room)
	resp := respond("br", io.MultiReader(&body, endsBadly{}), -1)
	if err := m.Response(resp, noUse); err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(decompress(t, "br", resp.Body))
	if !errors.Is(err, errBad) || strings.Count(string(plain), "event") != 100 {
		t.Errorf("%d bytes of %d taken: %v", len(plain), room.peak, err)
	}
}

var errBad = errors.New("reset")

type endsBadly struct{}

func (endsBadly) Read([]byte) (int, error) { return 0, errBad }

// TestZstdFramesTakeTheirWindows: each frame of a stream, however it comes.
func TestZstdFramesTakeTheirWindows(t *testing.T) {
	skipped := "\x50\x2a\x4d\x18\x05\x00\x00\x00other"
	small, large := packed(t, "zstd", "a text"), wideZstd+"\x09\x00\x00x"
	for name, tt := range map[string]struct {
		sent string
		want int64
	}{
		"small":        {small + small, zstdRest + 7<<10},
		"large":        {large, zstdRest + maxWindow + 6*zstdBlock},
		"large behind": {small + skipped + small + large, zstdRest + maxWindow + 6*zstdBlock},
	} {
		for how, read := range map[string]func(io.Reader) io.Reader{"whole": asIs, "bytes": iotest.OneByteReader} {
			room := &roomOf{most: tt.want}
			c, _ := codecOf("zstd")
			if _, err := io.Copy(io.Discard, &lazyDecoder{src: read(strings.NewReader(tt.sent)), codec: c, lease: lease{room: room}}); err != nil {
				t.Errorf("%s, %s: %v", name, how, err)
			}
			if room.peak < tt.want*3/4 || room.used != 0 {
				t.Errorf("%s, %s: %d bytes of %d were taken, and %d are", name, how, room.peak, tt.want, room.used)
			}
			room.most = tt.want/2 - 1
			if _, err := io.Copy(io.Discard, &lazyDecoder{src: read(strings.NewReader(tt.sent)), codec: c, lease: lease{room: room}}); !isRefusal(err, policy.RateLimited) {
				t.Errorf("%s, %s, without room: %v", name, how, err)
			}
		}
	}
}

// TestAMessageIsHeldCompressed: however much it stands for, and with a value in
// it too; only until it has gone on.
func TestAMessageIsHeldCompressed(t *testing.T) {
	const value = "REAL-7f3a9c51e2d84b06"
	m := maskerOf(t, value)
	text := strings.Repeat("x", 4<<20) + value
	sent := envelope("gzip", text)
	room := &roomOf{most: int64(len(sent)) + deflateHolds}
	m.Within(room)
	before := heap()
	var open []io.Reader
	for range 2 {
		r := m.messages(binaryEnvelopes, "gzip", strings.NewReader(sent+envelope("gzip", "more")), noHit, false)
		if n, err := r.Read(make([]byte, 5)); n == 0 || err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		open = append(open, r)
		room.most += room.used
	}
	if got := heap() - before; got > 2<<20 || room.used < 2*int64(len(sent)-5) {
		t.Errorf("%d bytes are held, %d taken", got, room.used)
	}
	for _, r := range open {
		rest, err := io.ReadAll(r)
		if err != nil || bytes.Contains(rest, []byte(value)) || !bytes.Contains(rest, bytes.Repeat([]byte("*"), len(value))) || len(rest) < len(text) {
			t.Errorf("%d bytes: %v", len(rest), err)
		}
	}
	if room.used != 0 {
		t.Errorf("%d bytes are still taken", room.used)
	}
	room.most = 4 << 10
	noise := incompressible(64 << 10)
	if _, err := io.ReadAll(m.messages(binaryEnvelopes, "gzip", strings.NewReader(envelope("gzip", noise)), noHit, false)); !isRefusal(err, policy.RateLimited) {
		t.Errorf("without room: %v", err)
	}
}

// TestABodyTakesItsWindow: a compressed body of a request, announced or not.
func TestABodyTakesItsWindow(t *testing.T) {
	text := `{"auth":{"token":"$BODY_KEY"},"n":"` + incompressible(40<<10) + `"}`
	for _, chunked := range []bool{false, true} {
		for _, coding := range []string{"br", "zstd"} {
			body := packed(t, coding, text)
			for most, want := range map[int64]policy.Reason{100 << 10: policy.RateLimited, 12 << 20: ""} {
				r := post(jsonType, body, chunked, asIs)
				r.Header.Set("Content-Encoding", coding)
				p, refusal := bodyTable().Plan(input(r, "BODY_KEY"))
				if refusal != nil {
					t.Fatal(refusal)
				}
				room := &roomOf{most: most}
				p.Within(room)
				err := p.Apply(r, map[string]secrets.Value{"BODY_KEY": mustValue(t, "REAL-value-4f1c")})
				if err == nil {
					_, err = io.Copy(io.Discard, r.Body)
				}
				if want == "" && err != nil || want != "" && !isRefusal(err, want) {
					t.Errorf("%s, %d: %v", coding, most, err)
				}
				if want == "" && room.peak < 100<<10 {
					t.Errorf("%s: %d bytes were taken", coding, room.peak)
				}
			}
		}
	}
}
