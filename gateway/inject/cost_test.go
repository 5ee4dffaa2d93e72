package inject

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// hostileTime is far more than what a sandbox writes to be dear may take, and
// far less than what it took where each place was compared with each value.
const hostileTime = 10 * time.Second

// TestCredentialsOfRepeatedPrefixes: a prefix that is of the characters of its
// own format can be repeated; the run of them is read once.
func TestCredentialsOfRepeatedPrefixes(t *testing.T) {
	table := testTable()
	for _, f := range keyFormats() {
		r := request("GET", "https://other.test/ok")
		r.URL.RawQuery = strings.Repeat(strings.ReplaceAll(f.prefix, " ", "%20"), (500<<10)/len(f.prefix))
		begun := time.Now()
		table.Credentials(input(r))
		if took := time.Since(begun); took > hostileTime {
			t.Errorf("%s: half a MiB of %q takes %v", f.name, f.prefix, took)
		}
	}
}

// TestCredentialInTheRunOfAnother: what follows a prefix is looked at behind
// each of several that stand in one run.
func TestCredentialInTheRunOfAnother(t *testing.T) {
	key := "SG." + strings.Repeat("aB3dE.", 11)
	for text, want := range map[string]int{
		key:                             1,
		"SG.SG." + key:                  1,
		"SG.SG." + key + "x":            0,
		"SG.SG." + key + "/" + key[:60]: 1,
	} {
		r := request("GET", "https://other.test/ok")
		r.URL.RawQuery = "k=" + text
		if got := testTable().Credentials(input(r)); len(got) != want {
			t.Errorf("%s: found %+v, want %d", text, got, want)
		}
	}
}

// TestBodiesOfEscapes: escapes of what many held values begin with cost about
// as much as others.
func TestBodiesOfEscapes(t *testing.T) {
	const prefix = "sk-ant-api03-"
	var values []string
	for i := range 200 {
		values = append(values, fmt.Sprintf("%s%016x%016x", prefix, i*7919, i*104729))
	}
	escaped := ""
	for i := range len(prefix) {
		escaped += fmt.Sprintf("%%%02x", prefix[i])
	}
	text := strings.Repeat(escaped, (1<<20)/len(escaped))
	for name, r := range map[string]io.Reader{
		"sent":     guardOf(t, values...).Body(io.NopCloser(strings.NewReader(text)), "body"),
		"received": maskerOf(t, values...).Reader(io.NopCloser(strings.NewReader(text)), func(string) {}),
	} {
		begun := time.Now()
		n, err := io.Copy(io.Discard, r)
		if took := time.Since(begun); err != nil || int(n) != len(text) || took > hostileTime {
			t.Errorf("%s: %d of %d bytes in %v, %v", name, n, len(text), took, err)
		}
	}
}
