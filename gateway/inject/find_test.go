package inject

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sallyport/policy"
	"sallyport/secrets"
)

// replacing makes a plan by hand in which every secret of the table may be
// replaced in X-Api-Key.
func replacing(table *Table) *Plan {
	p := &Plan{table: table, own: table.owners.of("s1")}
	for name, c := range table.creds {
		if c.headers["X-Api-Key"] {
			p.secrets = append(p.secrets, name)
		}
	}
	return p
}

// everyForm returns every placeholder of s1 and s2.
func everyForm(table *Table) (out []string) {
	for name := range table.creds {
		out = append(out, "$"+name, "${"+name+"}", table.Placeholder("s1", name), table.Placeholder("s2", name))
	}
	return out
}

// slow finds placeholders by trying each of forms at every byte.
func slow(forms []string, text string) (out []string) {
	for i := 0; i < len(text); {
		best := ""
		for _, p := range forms {
			if !strings.HasPrefix(text[i:], p) || len(p) <= len(best) {
				continue
			}
			if !whole(text[i:], p) {
				continue
			}
			best = p
		}
		if best == "" {
			i++
			continue
		}
		out = append(out, best)
		i += len(best)
	}
	return out
}

// whole says whether text, which begins with p, does not go on with a longer
// name.
func whole(text, p string) bool {
	return p[0] != '$' || p[1] == '{' || len(text) == len(p) || !word(text[len(p)])
}

func foundIn(table *Table, text string) (out []string) {
	own := table.owners.of("s1")
	for from := 0; ; {
		h, ok := table.find.next(text, from, own)
		if !ok {
			return out
		}
		out = append(out, text[h.start:h.end])
		from = h.end
	}
}

func TestFinderAgreesWithTryingEverything(t *testing.T) {
	table := testTable()
	forms := everyForm(table)
	pieces := []string{
		"$API_KEY", "$API_KEY_2", "${API_KEY}", "$GH_TOKEN", "$", "{", "}", "_", "$FOO", "API_KEY", " ", "x", "ghp_", "gh", "p_",
		"0123456789abcdef", strings.Repeat("Z", 40), table.Placeholder("s1", "GH_TOKEN"), table.Placeholder("s2", "GH_TOKEN"),
	}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(t, "pieces"), "")
		got, want := fmt.Sprint(foundIn(table, text)), fmt.Sprint(slow(forms, text))
		if got != want {
			t.Fatalf("%q: found %s, want %s", text, got, want)
		}
	})
}

func TestReplaceIsPiecewise(t *testing.T) {
	table := testTable()
	p, values := replacing(table), testValues(t)
	word := rapid.SampledFrom([]string{"", "a", "$FOO", " - ", "\"", "$$", "é", "${", "0123456789abcdef0123"})
	secret := rapid.SampledFrom([]string{"$API_KEY", "${API_KEY}", "$API_KEY_2", table.Placeholder("s1", "GH_TOKEN")})
	meaning := map[string]string{
		"$API_KEY": realAPI, "${API_KEY}": realAPI, "$API_KEY_2": "REAL-second", table.Placeholder("s1", "GH_TOKEN"): realGH,
	}
	rapid.Check(t, func(t *rapid.T) {
		var in, want strings.Builder
		for range rapid.IntRange(0, 6).Draw(t, "n") {
			w, s := word.Draw(t, "text"), secret.Draw(t, "secret")
			in.WriteString(w + s + ".") // the dot ends a name
			want.WriteString(w + meaning[s] + ".")
		}
		got, err := p.replace("X-Api-Key", in.String(), values)
		if err != nil || got != want.String() {
			t.Fatalf("%q became %q, want %q (%v)", in.String(), got, want.String(), err)
		}
	})
}

func FuzzReplace(f *testing.F) {
	table := testTable()
	for _, s := range []string{
		"$API_KEY", "Bearer ${API_KEY}", "$API_KEY_2$API_KEY", "$API_KEYS", "${API_KEY", "$$API_KEY$", table.Placeholder("s1", "GH_TOKEN"),
		"a" + table.Placeholder("s2", "GH_TOKEN") + "b", "ghp_0123456789", "$HEADER_KEY",
	} {
		f.Add(s)
	}
	values := map[string]secrets.Value{}
	for name := range table.creds {
		// Each value looks like a placeholder of another secret.
		values[name], _ = secrets.NewValue([]byte("<$API_KEY:${API_KEY_2}:" + strings.ToLower(name) + ">"))
	}
	p, forms := replacing(table), everyForm(table)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := p.replace("X-Api-Key", text, values)
		if err != nil {
			t.Fatal(err)
		}
		// Rebuild what it must be from what the finder that tries everything
		// finds, so that nothing is expanded twice.
		var want strings.Builder
		rest := text
		for _, ph := range slow(forms, text) {
			i := strings.Index(rest, ph)
			for !whole(rest[i:], ph) {
				i += 1 + strings.Index(rest[i+1:], ph) // it is the start of a longer word
			}
			want.WriteString(rest[:i] + valueOf(table, ph, values))
			rest = rest[i+len(ph):]
		}
		want.WriteString(rest)
		if got != want.String() {
			t.Fatalf("%q became %q, want %q", text, got, want.String())
		}
	})
}

// valueOf returns what a placeholder of sandbox s1 is replaced by in
// X-Api-Key.
func valueOf(table *Table, ph string, values map[string]secrets.Value) string {
	for name, c := range table.creds {
		if ph == "$"+name || ph == "${"+name+"}" || ph == table.Placeholder("s1", name) {
			if c.headers["X-Api-Key"] {
				return values[name].Reveal()
			}
		}
	}
	return ph
}

func TestFixedTextPlaceholder(t *testing.T) {
	table := NewTable([]Secret{
		{Name: "FIXED_KEY", Spec: &policy.Secret{Placeholder: "managed-by-gateway"}, Covers: covers(goodHost)},
		{Name: "LONG_KEY", Spec: &policy.Secret{Placeholder: "managed-by-gateway-too"}, Covers: covers(goodHost)},
	}, nil, testKey)
	for text, want := range map[string]string{
		"managed-by-gateway": "managed-by-gateway", "Bearer managed-by-gateway-too": "managed-by-gateway-too",
		"xmanaged-by-gateway": "", "managed-by-gateways": "", "$FIXED_KEY": "$FIXED_KEY",
	} {
		if got := strings.Join(foundIn(table, text), "|"); got != want {
			t.Errorf("%q: found %q, want %q", text, got, want)
		}
	}
}
