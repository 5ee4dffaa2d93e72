package audit

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// DefaultCheckpointAge is how often the end of the log is signed while it
// grows.
const DefaultCheckpointAge = time.Minute

// checkpointText is what a checkpoint signs: that the record seq of a log is
// the line with the SHA-256 hash, and with it, through the chain, all before.
func checkpointText(seq uint64, hash string) []byte {
	return []byte("sallyport audit checkpoint 1\n" + strconv.FormatUint(seq, 10) + "\n" + hash + "\n")
}

// checkpointDue signs the end of the log if there is a key, there is something
// new, and the last time is long enough ago or now is set. Called with commitMu
// held.
func (l *Log) checkpointDue(now bool) {
	if l.o.Key == nil || l.end.seq == 0 || l.end.seq == l.signed || l.fault.current() != nil {
		return
	}
	since := l.o.Now().Sub(l.signedAt)
	if !now && since >= 0 && since < l.o.CheckpointAge {
		return
	}
	seq, hash := l.end.seq, hex.EncodeToString(l.end.hash[:])
	err := l.note(&Event{
		Severity: Info, Message: "the log up to the record before is signed",
		Note: &Note{
			Action: ActionCheckpoint, Seq: seq, Hash: hash,
			Key: hex.EncodeToString(l.o.Key.Public().(ed25519.PublicKey)),
			Sig: hex.EncodeToString(ed25519.Sign(l.o.Key, checkpointText(seq, hash))),
		},
	})
	if err == nil {
		l.signed, l.signedAt = l.end.seq, l.o.Now()
	}
}

// checkCheckpoint checks a checkpoint that stands after the record seq with the
// given hash. It returns the key that signed.
func checkCheckpoint(n *Note, seq uint64, hash [32]byte) (ed25519.PublicKey, error) {
	if n.Seq != seq || n.Hash != hex.EncodeToString(hash[:]) {
		return nil, errors.New("the checkpoint is of another record than the one before it")
	}
	key, err := hex.DecodeString(n.Key)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, errors.New("the checkpoint has no key")
	}
	sig, err := hex.DecodeString(n.Sig)
	if err != nil || !ed25519.Verify(key, checkpointText(n.Seq, n.Hash), sig) {
		return nil, errors.New("the checkpoint's signature does not verify")
	}
	return key, nil
}

// LoadOrCreateKey reads the Ed25519 key of the checkpoints (PKCS 8, PEM, mode
// 0600) or makes one.
func LoadOrCreateKey(path string) (ed25519.PrivateKey, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return createKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint key: %w", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("checkpoint key %s: others may read it; want mode 0600", path)
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("checkpoint key %s: no PEM block", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("checkpoint key %s: %w", path, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("checkpoint key %s: is no Ed25519 key", path)
	}
	return key, nil
}

func createKey(path string) (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".key-*") // 0600
	if err != nil {
		return nil, fmt.Errorf("checkpoint key: %w", err)
	}
	defer os.Remove(f.Name())
	err = pem.Encode(f, &pem.Block{Type: "PRIVATE KEY", Bytes: der})
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Link(f.Name(), path)
	}
	if errors.Is(err, fs.ErrExist) {
		return LoadOrCreateKey(path) // another process was faster
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint key: %w", err)
	}
	return key, nil
}

// ParseKey reads a public key as checkpoints and reports show it: 64 hex
// digits.
func ParseKey(s string) (ed25519.PublicKey, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, errors.New("checkpoint key: want 64 hex digits")
	}
	return b, nil
}
