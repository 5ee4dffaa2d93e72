package audit

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// soundLine is a line as the log writes it, with escapes.
func soundLine(t testing.TB) []byte {
	t.Helper()
	l := openTest(t, Options{})
	e := decision()
	e.HTTP.Path, e.Rule.ID = "/\x01\u2028\"\\é", `sandbox "ci" allow "a.test"`
	if err := l.Write(e); err != nil {
		t.Fatal(err)
	}
	c := newCursor(l.o.Dir, place{n: 1})
	defer c.close()
	for {
		line, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(line, []byte(`"rule"`)) {
			return bytes.Clone(line)
		}
	}
}

// TestSound: what the log writes is sound; cut anywhere, or with bytes that are
// nothing in their place, it is not.
func TestSound(t *testing.T) {
	line := soundLine(t)
	if !sound(line) {
		t.Fatalf("not sound: %s", line)
	}
	for i := range line {
		for what, damaged := range map[string][]byte{
			"cut":   line[:i],
			"torn":  append(bytes.Clone(line[:i]), line...),
			"zero":  replaced(line, i, 0),
			"tab":   replaced(line, i, '\t'),
			"quote": replaced(line, i, '"'),
		} {
			if _, err := DecodeLine(damaged); err != nil && sound(damaged) {
				t.Errorf("%s at %d is taken for sound: %s", what, i, damaged)
			}
		}
	}
	for _, tail := range []string{"", `,"count":01}`, `,"count":1.}`, `,"count":-}`, `,"count":tru}`, `,"count":1}}`, `,"x":"\x"}`, `,"x":"\u12g4"}`, `,"x":"\u12`,
		`,"x":[1,]}`, `,"x":[}`, `,"x":{"a"}}`, `,"x":{,}}`, `,}`, `,"x":1]`, `,"x":` + strings.Repeat("[", 20000)} {
		if bad := append(bytes.Clone(line[:len(line)-1]), tail...); sound(bad) {
			t.Errorf("taken for sound: %s", tail)
		}
	}
	if good := append(bytes.Clone(line[:len(line)-1]), `,"x":[[],{},[1,-2.5,true,false,null,"\u00e9\/"],{"a":{"b":0}}]}`...); !sound(good) {
		t.Errorf("not sound: %s", good)
	}
}

func replaced(line []byte, at int, by byte) []byte {
	b := bytes.Clone(line)
	b[at] = by
	return b
}

// FuzzSound: no line is taken for sound that is not JSON with the head of a
// record. Whether each value is what its name wants is not asked.
func FuzzSound(f *testing.F) {
	for line := range bytes.Lines(goodSegment(f)) {
		line = bytes.TrimSpace(line)
		f.Add(line)
		f.Add(line[:len(line)/2])
		f.Add(append(bytes.Clone(line[:len(line)-1]), `,"x":[[],{},[1,-2.5,true,null,"\u00e9\/\t"],{"a":{"b":0}}]}`...))
		f.Add(bytes.ReplaceAll(line, []byte(`:"`), []byte(`:"\`)))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if sound(line) && (!json.Valid(line) || !bytes.HasPrefix(line, []byte(headTime))) {
			t.Fatalf("taken for sound: %s", line)
		}
	})
}

func BenchmarkSound(b *testing.B) {
	line := soundLine(b)
	for name, what := range map[string]func(){
		"sound":  func() { sound(line) },
		"decode": func() { _, _ = DecodeLine(line) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				what()
			}
		})
	}
}
