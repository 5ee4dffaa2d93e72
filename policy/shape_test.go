package policy

import (
	"fmt"
	"net/netip"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// variants are values of a type that differ from its zero value, and from one
// another, in one place each.
func variants(t reflect.Type) []reflect.Value {
	var out []reflect.Value
	of := func(list ...any) []reflect.Value {
		for _, x := range list {
			out = append(out, reflect.ValueOf(x).Convert(t))
		}
		return out
	}
	switch t {
	case reflect.TypeFor[time.Time]():
		return of(time.Unix(1, 0).UTC(), time.Unix(2, 0).UTC(), time.Unix(1, 5).UTC(), time.Unix(1, 0).In(time.FixedZone("X", 3600)))
	case reflect.TypeFor[netip.Prefix]():
		return of(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/9"), netip.MustParsePrefix("11.0.0.0/8"), netip.MustParsePrefix("::ffff:10.0.0.0/104"))
	}
	switch t.Kind() {
	case reflect.String:
		return of("x", "y", "xy")
	case reflect.Bool:
		return of(true)
	case reflect.Int, reflect.Int64, reflect.Uint8, reflect.Uint16:
		return of(1, 2)
	case reflect.Pointer:
		out = append(out, reflect.New(t.Elem()))
		for _, v := range variants(t.Elem()) {
			p := reflect.New(t.Elem())
			p.Elem().Set(v)
			out = append(out, p)
		}
	case reflect.Slice:
		out = append(out, reflect.MakeSlice(t, 0, 0), reflect.MakeSlice(t, 1, 1), reflect.MakeSlice(t, 2, 2))
		for _, v := range variants(t.Elem()) {
			out = append(out, reflect.Append(reflect.MakeSlice(t, 0, 1), v))
		}
	case reflect.Map:
		out = append(out, reflect.MakeMap(t))
		for _, v := range variants(t.Elem()) {
			m := reflect.MakeMap(t)
			m.SetMapIndex(reflect.ValueOf("a"), v)
			out = append(out, m)
		}
	case reflect.Struct:
		for i := range t.NumField() {
			for _, v := range variants(t.Field(i).Type) {
				s := reflect.New(t).Elem()
				s.Field(i).Set(v)
				out = append(out, s)
			}
		}
	default:
		panic(t.String())
	}
	return out
}

// A field that is left out would have one rule allow what another does.
func TestAShapeTellsEveryField(t *testing.T) {
	zero := string((&Rule{}).appendShape(nil))
	seen := map[string]Rule{}
	for _, v := range variants(reflect.TypeFor[Rule]()) {
		r := v.Interface().(Rule)
		key := string(r.appendShape(nil))
		if r.Host != "" || r.Pos.Line+r.Pos.Column != 0 {
			if key != zero {
				t.Errorf("%+v is another shape for its host or place", r)
			}
			continue
		}
		if key == zero {
			t.Errorf("%+v is of the shape of an empty rule", r)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%+v and %+v are of one shape", r, other)
		}
		seen[key] = r
	}
	if len(seen) < 80 {
		t.Errorf("%d rules compared", len(seen))
	}
}

func TestPackedRulesAreAsTheyWere(t *testing.T) {
	same := cmp.Options{cmpopts.EquateComparable(netip.Prefix{})}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom([]string{"a", "b"})
		lists := [][]Rule{nil, {}}
		for n := range rapid.IntRange(0, 3).Draw(t, "lists") {
			var list []Rule
			for i := range rapid.IntRange(0, 5).Draw(t, "rules") {
				r := rapid.SampledFrom(variants(reflect.TypeFor[Rule]())).Draw(t, "rule").Interface().(Rule)
				r.Host, r.Pos = s.Draw(t, "host")+strings.Repeat("x", n), Pos{File: s.Draw(t, "file"), Line: 10 * i, Column: n}
				r.Inject = append(r.Inject, Ref{Name: "KEY", Pos: Pos{File: "a", Line: 7, Column: i}})
				list = append(list, r)
			}
			lists = append(lists, list)
		}
		got := PackRules(lists...).Unpack()
		lists[1] = nil // no rules
		if diff := cmp.Diff(lists, got, same); diff != "" {
			t.Errorf("-packed +unpacked:\n%s", diff)
		}
	})
}

// What a set holds is followed by the collector of garbage while traffic flows.
func TestALargeSetIsLittleMemory(t *testing.T) {
	const rules = 100_000
	inUse := func() (bytes, objects uint64) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, m.HeapObjects
	}
	document := func() Document {
		big := Group{Name: "big"}
		for i := range rules {
			r := allowRule(fmt.Sprintf("n%d.rules.test", i), inject("API_KEY"))
			r.Addresses = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
			r.Pos = Pos{File: "p.hcl", Line: i + 1}
			r.Inject[0].Pos = Pos{File: "p.hcl", Line: i + 1, Column: 20}
			big.Rules = append(big.Rules, r)
		}
		return Document{Groups: []Group{big}, Sandboxes: []Sandbox{{Name: "s1", Use: []Ref{{Name: "big"}}}},
			Secrets: []Secret{{Name: "API_KEY", Hosts: []string{"*.rules.test"}}}}
	}
	bytes, objects := inUse()
	s := mustCompile(t, document())
	packed := PackRules(document().Groups[0].Rules)
	after, objectsAfter := inUse()
	wantReason(t, s, get("n77777.rules.test", "/"), GroupAllow)
	if got := packed.Unpack(); len(got[0]) != rules {
		t.Errorf("%d rules unpacked", len(got[0]))
	}
	if got := (int64(after) - int64(bytes)) / rules; got > 250 {
		t.Errorf("%d bytes a rule", got)
	}
	if got := int64(objectsAfter) - int64(objects); got > rules/10 {
		t.Errorf("%d objects for %d rules", got, rules)
	}
}
