package inject

import (
	"fmt"
	"testing"

	"sallyport/policy"
	"sallyport/secrets"
)

// tableOf makes n secrets, all approved for good.test, of the plain or the
// shaped form.
func tableOf(n int, placeholder string) (*Table, []string) {
	var list []Secret
	var names []string
	for i := range n {
		name := fmt.Sprintf("SECRET_%04d", i)
		names = append(names, name)
		list = append(list, Secret{Name: name, Spec: &policy.Secret{Placeholder: placeholder}, Covers: covers(goodHost)})
	}
	return NewTable(list, []string{"s1"}, testKey), names
}

// ordinary are the headers of a common request.
var ordinary = []string{
	"User-Agent: python-requests/2.32.3", "Accept-Encoding: gzip, deflate, br, zstd", "Accept: application/json",
	"Content-Type: application/json", "Connection: keep-alive", "X-Request-Id: 7b2f3c60-2b1e-4a51-9d40-0c9f6f6d2a11",
	"Cookie: session=2f6c0f0a8b7e4f3d9a1c5e7b3d2f1a0c; theme=dark",
}

func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{1, 1000} {
		for form, placeholder := range map[string]string{"name": "", "shaped": "sk-{rand:40}"} {
			table, names := tableOf(n, placeholder)
			none := input(request("GET", "https://free.test/v1/x?page=2", ordinary...))
			b.Run(fmt.Sprintf("none/%s/%d", form, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, refusal := table.Plan(none); refusal != nil {
						b.Fatal(refusal)
					}
				}
			})
			swap := input(request("GET", "https://good.test/v1/x?page=2", append([]string{"Authorization: Bearer " + table.Placeholder("s1", names[n/2])}, ordinary...)...), names[n/2])
			b.Run(fmt.Sprintf("swap/%s/%d", form, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if p, refusal := table.Plan(swap); refusal != nil || len(p.Secrets()) != 1 {
						b.Fatal(refusal)
					}
				}
			})
		}
	}
}

func BenchmarkFind(b *testing.B) {
	for _, n := range []int{1, 1000} {
		for form, placeholder := range map[string]string{"name": "", "shaped": "sk-{rand:40}"} {
			table, names := tableOf(n, placeholder)
			text, own := "Bearer "+table.Placeholder("s1", names[n/2]), table.owners.of("s1")
			b.Run(fmt.Sprintf("%s/%d", form, n), func(b *testing.B) {
				for b.Loop() {
					if _, ok := table.find.next(text, 0, own); !ok {
						b.Fatal("not found")
					}
				}
			})
		}
	}
}

func TestPlanAllocations(t *testing.T) {
	for form, placeholder := range map[string]string{"name": "", "shaped": "sk-{rand:40}"} {
		table, names := tableOf(100, placeholder)
		none := input(request("GET", "https://free.test/v1/x?page=2&q=a%20b", ordinary...))
		bound := input(request("GET", "https://good.test/v1/x?page=2", ordinary...), names[0])
		swap := input(request("GET", "https://good.test/v1/x?page=2", append([]string{"Authorization: Bearer " + table.Placeholder("s1", names[0])}, ordinary...)...), names[0])
		for name, tt := range map[string]struct {
			in      Input
			ceiling float64
		}{
			"no placeholder, no secret": {none, 1},  // shaped: the query is decoded
			"no placeholder, a secret":  {bound, 2}, // the plan: what is covered in the response
			"a swap":                    {swap, 8},
		} {
			plan := func() { table.Plan(tt.in) }
			// All of the process is counted, also the end of what other tests began.
			got := min(testing.AllocsPerRun(100, plan), testing.AllocsPerRun(100, plan), testing.AllocsPerRun(100, plan))
			if form == "name" && name == "no placeholder, no secret" {
				tt.ceiling = 0
			}
			if got > tt.ceiling {
				t.Errorf("%s, %s: %v allocations, at most %v", form, name, got, tt.ceiling)
			}
		}
	}
}

func BenchmarkOutgoing(b *testing.B) {
	in := input(request("GET", "https://free.test/v1/x?page=2", ordinary...))
	for _, n := range []int{1, 1000} {
		values := make([]string, n)
		for i := range values {
			values[i] = fmt.Sprintf("sk-REAL-%06d-abcdefghijklmnopqrstuv", i)
		}
		g := guardOf(b, values...)
		b.Run(fmt.Sprintf("values/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if g.Request(in.Request) != nil {
					b.Fatal("found")
				}
			}
		})
	}
	table, _ := tableOf(1, "")
	b.Run("patterns", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if table.Credentials(in) != nil {
				b.Fatal("found")
			}
		}
	})
}

// BenchmarkMasker is what a response asks for that is covered.
func BenchmarkMasker(b *testing.B) {
	for _, n := range []int{1, 1000} {
		values := make([]string, n)
		for i := range values {
			values[i] = fmt.Sprintf("sk-REAL-%06d-abcdefghijklmnopqrstuv", i)
		}
		g, name := guardOf(b, values...), fmt.Sprintf("KEY_%d", n-1)
		names, used := []string{name}, map[string]secrets.Value{name: mustValue(b, values[n-1])}
		b.Run(fmt.Sprintf("values/%d", n), func(b *testing.B) {
			for b.Loop() {
				if g.Masker(names, used) == nil {
					b.Fatal("nothing is covered")
				}
			}
		})
	}
}
