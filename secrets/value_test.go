package secrets

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"testing"
	"text/template"

	"github.com/hashicorp/go-hclog"
)

const hidden = "REAL-value-that-never-prints"

// forms are the ways in which the bytes of hidden could show.
func forms() []string {
	return []string{
		hidden,
		fmt.Sprintf("%x", hidden),
		fmt.Sprintf("%X", hidden),
		strings.Trim(fmt.Sprint([]byte(hidden)), "[]"),
		"0x52, 0x45, 0x41, 0x4c",
		"UkVBTC12YWx1Z",
	}
}

type nested struct {
	Name    string
	Value   Value
	pointer *Value
	inner   struct{ value Value }
	list    []Value
	byName  map[string]Value
	any     any
	err     error
}

func everyShape(v Value) map[string]any {
	n := nested{Name: "n", Value: v, pointer: &v, list: []Value{v}, byName: map[string]Value{"k": v}, any: v}
	n.inner.value = v
	n.err = fmt.Errorf("used %v: %w", v, errors.New("down"))
	return map[string]any{
		"value": v, "pointer": &v, "struct": n, "struct pointer": &n, "slice": []Value{v}, "array": [1]Value{v},
		"map": map[string]Value{"k": v}, "any": []any{v, &v}, "error": n.err, "fetched": Fetched{Value: v}, "held": Held{"N", v},
	}
}

func TestAUD02ValueNeverPrints(t *testing.T) {
	v, err := NewValue([]byte(hidden))
	if err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, how, text string) {
		t.Helper()
		for _, form := range forms() {
			if strings.Contains(text, form) {
				t.Errorf("%s shows the value: %.300s", how, text)
			}
		}
	}
	for name, x := range everyShape(v) {
		t.Run(name, func(t *testing.T) {
			for _, flag := range []string{"", "+", "#", "-", "0", " ", "5", ".3", "+#", "40.2"} {
				for _, verb := range "vTtbcdoOqxXUeEfFgGspw" {
					format := "%" + flag + string(verb)
					check(t, format, fmt.Sprintf(format, x))
				}
			}
			check(t, "Sprint", fmt.Sprint(x))
			check(t, "Errorf", fmt.Errorf("%v", x).Error())
			if b, err := json.Marshal(x); err == nil {
				check(t, "json", string(b))
			}
			if b, err := xml.Marshal(x); err == nil {
				check(t, "xml", string(b))
			}
			var buf bytes.Buffer
			_ = gob.NewEncoder(&buf).Encode(x) // an error is as good
			check(t, "gob", buf.String())
			buf.Reset()
			slog.New(slog.NewTextHandler(&buf, nil)).Info("m", "x", x)
			slog.New(slog.NewJSONHandler(&buf, nil)).Info("m", "x", x, slog.Group("g", "x", x))
			log.New(&buf, "", 0).Printf("%v %+v", x, x)
			for _, asJSON := range []bool{false, true} {
				hclog.New(&hclog.LoggerOptions{Output: &buf, Level: hclog.Trace, JSONFormat: asJSON}).Error("m", "x", x, "q", hclog.Quote("q"), "f", hclog.Fmt("%v", x))
			}
			_ = template.Must(template.New("").Parse(`{{.}} {{printf "%#v" .}}`)).Execute(&buf, x)
			check(t, "a logger", buf.String())
			if buf.Len() == 0 {
				t.Error("no logger wrote anything")
			}
		})
	}
}

func TestSEC32PanicDoesNotShowAValue(t *testing.T) {
	v, _ := NewValue([]byte(hidden))
	defer func() {
		if text := fmt.Sprint(recover()); strings.Contains(text, hidden) || text == "" {
			t.Errorf("panic says %q", text)
		}
	}()
	panic(fmt.Errorf("secret: %v %+v", v, nested{Value: v, inner: struct{ value Value }{v}}))
}

func TestSEC05NewValue(t *testing.T) {
	for name, tt := range map[string]struct{ in, want, err string }{
		"plain":                {in: "REAL", want: "REAL"},
		"newline":              {in: "REAL\n", want: "REAL"},
		"return and newline":   {in: "REAL\r\n", want: "REAL"},
		"spaces stay":          {in: " REAL ", want: " REAL "},
		"beyond ASCII":         {in: "pässwörd", want: "pässwörd"},
		"longest":              {in: strings.Repeat("x", MaxValue), want: strings.Repeat("x", MaxValue)},
		"longest and newline":  {in: strings.Repeat("x", MaxValue) + "\n", want: strings.Repeat("x", MaxValue)},
		"two newlines":         {in: "REAL\n\n", err: "control character (0x0a) at byte 4"},
		"line in it":           {in: "REAL\r\nX-Evil: 1", err: "control character (0x0d) at byte 4"},
		"NUL":                  {in: "REAL\x00", err: "control character (0x00) at byte 4"},
		"DEL":                  {in: "\x7f", err: "control character (0x7f) at byte 0"},
		"tab":                  {in: "a\tb", err: "control character (0x09) at byte 1"},
		"empty":                {in: "", err: "value is empty"},
		"only a newline":       {in: "\n", err: "value is empty"},
		"byte order mark":      {in: "\xef\xbb\xbfREAL", err: "byte order mark"},
		"too long":             {in: strings.Repeat("x", 70<<10), err: "longer than 65536 bytes"},
		"UTF-16 has NUL bytes": {in: "R\x00E\x00", err: "control character"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := NewValue([]byte(tt.in))
			if tt.err == "" {
				if err != nil || v.Reveal() != tt.want || v.IsZero() {
					t.Fatalf("value of %d bytes, error %v", len(v.Reveal()), err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "REAL") || !v.IsZero() {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
	if (Value{}).Reveal() != "" || !(Value{}).IsZero() {
		t.Error("the zero value holds something")
	}
}

func TestReflectionCannotReachTheBytes(t *testing.T) {
	v, _ := NewValue([]byte(hidden))
	// %#v follows pointers one level deep; a chain of them must not help.
	type deep struct{ p **Value }
	p := &v
	if text := fmt.Sprintf("%#v %+v", deep{&p}, &deep{&p}); strings.Contains(text, hidden) {
		t.Errorf("shows %q", text)
	}
	if os.Expand("$V", func(string) string { return fmt.Sprint(v) }) != redacted {
		t.Error("does not print as " + redacted)
	}
}
