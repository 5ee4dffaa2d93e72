package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// signedLog makes a closed log with checkpoints and returns it with its key.
func signedLog(t *testing.T) (string, ed25519.PrivateKey) {
	t.Helper()
	key, err := LoadOrCreateKey(filepath.Join(t.TempDir(), "audit.key"))
	if err != nil {
		t.Fatal(err)
	}
	c := newClock()
	dir := filepath.Join(t.TempDir(), "audit")
	for range 2 {
		l, err := Open(Options{Dir: dir, Key: key, SegmentBytes: 4 << 10, Now: c.Now})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			write(t, l, fmt.Sprintf("h%d.test", i))
			if i%5 == 4 {
				c.step(2 * time.Minute)
				l.keepHouse()
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir, key
}

func TestCheckpoints(t *testing.T) {
	dir, key := signedLog(t)
	rep, err := VerifyWith(dir, VerifyOptions{Key: key.Public().(ed25519.PublicKey)})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Checkpoints < 8 || rep.SignedSeq != rep.LastSeq-1 || len(rep.Keys) != 1 {
		t.Errorf("report %+v", rep)
	}
	public, err := ParseKey(rep.Keys[0])
	if err != nil || !key.Public().(ed25519.PublicKey).Equal(public) {
		t.Errorf("key %x, %v", public, err)
	}
	if b, err := json.Marshal(rep); err != nil || !bytes.Contains(b, []byte(`"signed_seq":`)) {
		t.Errorf("report %s, %v", b, err)
	}
	_, other, _ := ed25519.GenerateKey(nil)
	if _, err := VerifyWith(dir, VerifyOptions{Key: other.Public().(ed25519.PublicKey)}); err == nil || !strings.Contains(err.Error(), "another key") {
		t.Errorf("verify with another key: %v", err)
	}
	if _, err := VerifyWith(smallSegments(t, 3), VerifyOptions{Key: public}); err == nil || !strings.Contains(err.Error(), "no checkpoint") {
		t.Errorf("verify of an unsigned log: %v", err)
	}
}

// rechain changes a record and repairs every prev after it, as one who may
// write the disk can.
func rechain(t *testing.T, dir string) {
	t.Helper()
	list, err := segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	prev := strings.Repeat("0", 64)
	for _, n := range list {
		path := filepath.Join(dir, segmentName(n))
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var out []byte
		for line := range bytes.Lines(b) {
			i := bytes.Index(line, []byte(headPrev)) + len(headPrev)
			copy(line[i:], prev)
			line = bytes.Replace(line, []byte(`"host":"h3.test"`), []byte(`"host":"hX.test"`), 1)
			sum := sha256.Sum256(bytes.TrimSuffix(line, []byte("\n")))
			prev = hex.EncodeToString(sum[:])
			out = append(out, line...)
		}
		if err := os.WriteFile(path, out, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckpointsStandAgainstARewrittenLog(t *testing.T) {
	dir, key := signedLog(t)
	before, err := Verify(dir)
	if err != nil {
		t.Fatal(err)
	}
	rechain(t, dir)
	_, err = VerifyWith(dir, VerifyOptions{Key: key.Public().(ed25519.PublicKey)})
	var b *Break
	if !errors.As(err, &b) || !strings.Contains(b.Reason, "checkpoint") {
		t.Errorf("verify of a rewritten log: %v", err)
	}
	// Without checkpoints a head that was kept elsewhere still shows it.
	plain := smallSegments(t, 10)
	head, err := Verify(plain)
	if err != nil {
		t.Fatal(err)
	}
	expect := VerifyOptions{Expect: map[uint64]string{head.LastSeq: head.Head}}
	if _, err := VerifyWith(plain, expect); err != nil {
		t.Errorf("expected record: %v", err)
	}
	rechain(t, plain)
	if _, err := Verify(plain); err != nil {
		t.Errorf("the rewritten chain does not hold in itself: %v", err)
	}
	if _, err := VerifyWith(plain, expect); err == nil || !strings.Contains(err.Error(), "expected") {
		t.Errorf("verify against a head: %v", err)
	}
	if _, err := VerifyWith(plain, VerifyOptions{Expect: map[uint64]string{before.LastSeq + 100: before.Head}}); err == nil {
		t.Error("a record that was cut off is not missed")
	}
}

// TestAnAnchorCountsWithItsSignature: who may write the disk removes the
// beginning of a signed log and appends an anchor that says so.
func TestAnAnchorCountsWithItsSignature(t *testing.T) {
	dir, key := signedLog(t)
	o := VerifyOptions{Key: key.Public().(ed25519.PublicKey)}
	list, err := segments(dir)
	if err != nil || len(list) < 3 {
		t.Fatalf("segments %v, %v", list, err)
	}
	forge, err := Open(Options{Dir: dir, Now: newClock().Now}) // it has no key
	if err != nil {
		t.Fatal(err)
	}
	forge.commitMu.Lock()
	err = forge.anchor(list[2], 2, 1)
	forge.commitMu.Unlock()
	if err != nil || forge.Close() != nil {
		t.Fatal(err)
	}
	for _, n := range list[:2] {
		if err := os.Remove(filepath.Join(dir, segmentName(n))); err != nil {
			t.Fatal(err)
		}
	}
	if rep, err := Verify(dir); err != nil || !rep.Anchored {
		t.Errorf("without a key: %+v, %v", rep, err)
	}
	var b *Break
	if _, err := VerifyWith(dir, o); !errors.As(err, &b) || !strings.Contains(b.Reason, "is not signed") {
		t.Errorf("verify with the key: %v, want that the anchor is not signed", err)
	}
}

// TestRetentionSignsItsAnchor: there is no moment at which a log that retention
// has shortened does not verify with its key.
func TestRetentionSignsItsAnchor(t *testing.T) {
	_, key, _ := ed25519.GenerateKey(nil)
	l := openTest(t, Options{Key: key, SegmentBytes: 2 << 10, RetainBytes: 6 << 10, CheckpointAge: 24 * time.Hour})
	for i := range 60 {
		write(t, l, fmt.Sprintf("h%d.test", i))
	}
	l.retain()
	if rep, err := VerifyWith(l.o.Dir, VerifyOptions{Key: key.Public().(ed25519.PublicKey)}); err != nil || !rep.Anchored {
		t.Errorf("%+v, %v", rep, err)
	}
}

func TestCheckpointOfAnotherRecord(t *testing.T) {
	_, key, _ := ed25519.GenerateKey(nil)
	hash := sha256.Sum256([]byte("x"))
	text := hex.EncodeToString(hash[:])
	good := Note{Action: ActionCheckpoint, Seq: 7, Hash: text, Key: hex.EncodeToString(key.Public().(ed25519.PublicKey)),
		Sig: hex.EncodeToString(ed25519.Sign(key, checkpointText(7, text)))}
	if _, err := checkCheckpoint(&good, 7, hash); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(n *Note){
		"seq":       func(n *Note) { n.Seq = 8 },
		"hash":      func(n *Note) { n.Hash = strings.Repeat("0", 64) },
		"key":       func(n *Note) { n.Key = n.Key[2:] },
		"no key":    func(n *Note) { n.Key = "" },
		"signature": func(n *Note) { n.Sig = strings.Repeat("0", 128) },
		"rubbish":   func(n *Note) { n.Sig = "zz" },
	} {
		n := good
		edit(&n)
		if _, err := checkCheckpoint(&n, 7, hash); err == nil {
			t.Errorf("a checkpoint with another %s passes", name)
		}
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.key")
	a, err := LoadOrCreateKey(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := LoadOrCreateKey(path)
	if err != nil || !a.Equal(b) {
		t.Errorf("another key the second time: %v", err)
	}
	os.Chmod(path, 0o644)
	if _, err := LoadOrCreateKey(path); err == nil {
		t.Error("a key that others can read was taken")
	}
	os.WriteFile(path, []byte("x"), 0o600)
	os.Chmod(path, 0o600)
	if _, err := LoadOrCreateKey(path); err == nil {
		t.Error("rubbish was taken")
	}
}
