package age

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"

	"sallyport/secrets"
)

// recorder is an identity that opens nothing and keeps to whom a file is
// encrypted.
type recorder struct{ stanzas []*age.Stanza }

// Unwrap keeps stanzas.
func (r *recorder) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	r.stanzas = stanzas
	return nil, age.ErrIncorrectIdentity
}

// opened returns a reader of an encrypted file without its armor, and whether
// it has one.
func opened(f io.Reader) (src io.Reader, isArmored bool) {
	b := bufio.NewReader(io.LimitReader(f, maxFile))
	if head, _ := b.Peek(len(armored)); string(head) == armored {
		return armor.NewReader(b), true
	}
	return b, false
}

// noOthers is an error when a file that identities open is encrypted to
// somebody else as well, who could not read what is written in its place: a
// file does not tell to whom. It also says whether the file has an armor.
func noOthers(c Config, identities []age.Identity) (isArmored bool, err error) {
	f, err := secrets.OpenFile(c.Path)
	if err != nil {
		return false, fmt.Errorf("age file %s: %w", c.Path, reason(err))
	}
	defer f.Close()
	src, isArmored := opened(f)
	var all recorder
	if _, _ = age.Decrypt(src, &all); len(all.stanzas) == 0 {
		return false, fmt.Errorf("age file %s: is damaged or no age file", c.Path)
	}
	others := 0
	for _, s := range all.stanzas {
		if strings.HasSuffix(s.Type, "-grease") {
			continue // it is nobody's, by design
		}
		if len(all.stanzas) > 1 && !openedBy(s, identities) { // the only one has opened the file
			others++
		}
	}
	if others > 0 {
		return false, fmt.Errorf("age file %s: %d of its %d recipients are not in the identity file %s, and could not read the new file; write it with age, to all of them, or remove it first",
			c.Path, others, len(all.stanzas), c.Identity)
	}
	return isArmored, nil
}

// openedBy says whether one of identities opens a stanza.
func openedBy(s *age.Stanza, identities []age.Identity) bool {
	for _, i := range identities {
		if _, err := i.Unwrap([]*age.Stanza{s}); err == nil {
			return true
		}
	}
	return false
}
