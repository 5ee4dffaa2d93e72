package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// nssQuery asks a database, with an SQLite that is not ours, whether it is
// whole, and for each certificate and what is said of it.
const nssQuery = `
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(db.execute("pragma integrity_check").fetchone()[0])
for a, c in db.execute("select a.a11, t.ace536358 from nssPublic a join nssPublic t on a.a82 = t.a82 and a.a81 = t.a81 where a.a0 = x'00000001' and t.a0 = x'ce534353'"):
    print(a.hex(), c.hex())
db.execute("insert into nssPublic (id, a0) values (77, x'00')"); db.commit()
print(db.execute("select count(*) from nssPublic").fetchone()[0], db.execute("pragma integrity_check").fetchone()[0])
`

// TestNSSDatabaseIsSQLite: another SQLite reads the database, and writes to it.
func TestNSSDatabaseIsSQLite(t *testing.T) {
	for _, n := range []int{0, 1, 12} {
		var roots []*x509.Certificate
		want := "ok\n"
		for range n {
			c := testCA(t).Certificate()
			roots = append(roots, c)
			want += hex.EncodeToString(c.Raw) + " ce534352\n"
		}
		b, err := nssDatabase(roots)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "cert9.db")
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("/usr/bin/python3", "-c", nssQuery, file).CombinedOutput()
		want += strconv.Itoa(2*n+1) + " ok\n"
		if err != nil || string(out) != want {
			t.Errorf("%d roots: %v\n%s\nwant\n%s", n, err, out, want)
		}
	}
}

// TestNSSDatabaseIsBounded: what does not fit is an error, not half a database.
func TestNSSDatabaseIsBounded(t *testing.T) {
	c := testCA(t).Certificate()
	roots := make([]*x509.Certificate, 100)
	for i := range roots {
		roots[i] = c
	}
	if b, err := nssDatabase(roots); err == nil || !strings.Contains(err.Error(), "more than a page holds") {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// TestNSSDatabaseIsWritten: it stands with the other trust files, for all to
// read, and holds the CA alone.
func TestNSSDatabaseIsWritten(t *testing.T) {
	system, roots := testSystem(t)
	ca, dir := testCA(t), t.TempDir()
	if _, err := WriteTrust(dir, ca, system); err != nil {
		t.Fatal(err)
	}
	b := readTest(t, filepath.Join(dir, TrustNSSFile))
	if !bytes.Contains(b, ca.Certificate().Raw) || bytes.Contains(b, roots[0].Raw) {
		t.Error("the database does not hold the CA alone")
	}
	if info, err := os.Stat(filepath.Join(dir, TrustNSSFile)); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
}
