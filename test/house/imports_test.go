package house

import (
	"strings"
	"testing"
)

// layer is what a package may import: packages of the module and, of other
// modules, those with one of the prefixes.
type layer struct {
	own   []string
	third []string
}

// layers is the import table. A pattern that ends in /* stands for every
// package below; the longest match counts.
func layers() map[string]layer {
	hclog := "github.com/hashicorp/go-hclog"
	return map[string]layer{
		"policy":             {nil, []string{"golang.org/x/net/idna", "golang.org/x/net/publicsuffix"}},
		"policy/policyfile":  {[]string{"policy"}, []string{"github.com/hashicorp/hcl/v2", "github.com/zclconf/go-cty"}},
		"secrets":            {nil, []string{hclog, "golang.org/x/sync", "golang.org/x/sys"}},
		"secrets/*":          {[]string{"secrets"}, []string{hclog, "github.com/fsnotify/fsnotify", "github.com/aws/aws-sdk-go-v2", "filippo.io/age", "golang.org/x/sys"}},
		"audit":              {nil, []string{hclog, "go.etcd.io/bbolt", "golang.org/x/sync", "golang.org/x/sys", "github.com/fsnotify/fsnotify"}},
		"audit/*":            {[]string{"audit"}, []string{hclog}},
		"certs":              {nil, []string{"golang.org/x/sync", "golang.org/x/sys", "software.sslmate.com/src/go-pkcs12", "github.com/hashicorp/golang-lru/v2"}},
		"gateway/identity":   {[]string{"policy"}, nil},
		"gateway/dns":        {[]string{"policy"}, []string{hclog, "github.com/miekg/dns"}},
		"gateway/http1":      {nil, nil},
		"gateway/http2guard": {nil, []string{"golang.org/x/net"}},
		"gateway/inject":     {[]string{"policy", "secrets"}, []string{"github.com/klauspost/compress", "github.com/andybalholm/brotli", "github.com/aws/aws-sdk-go-v2/aws"}},
		"gateway/upstream":   {nil, []string{hclog, "golang.org/x/net", "golang.org/x/sync", "golang.org/x/sys"}},
		"gateway/capture":    {nil, []string{"github.com/google/nftables", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "github.com/mdlayher/netlink", "golang.org/x/sys"}},
		"gateway":            {[]string{"policy", "secrets", "audit", "certs", "gateway/*"}, []string{hclog, "github.com/elazarl/goproxy", "github.com/miekg/dns", "github.com/hashicorp/golang-lru/v2", "golang.org/x/time"}},
		"cmd/sallyport":      {[]string{"*"}, []string{hclog, "github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/hashicorp/hcl/v2", "github.com/fsnotify/fsnotify", "github.com/coreos/go-systemd", "github.com/prometheus/client_golang", "charm.land/", "golang.org/x/term", "github.com/landlock-lsm/go-landlock", "golang.org/x/sys"}},
	}
}

// TestImports holds the layers: policy knows nobody, siblings do not know
// one another, and a library has one place.
func TestImports(t *testing.T) {
	table := layers()
	files, _ := sources(t)
	seen := map[string]bool{}
	for _, s := range files {
		if s.test || strings.HasPrefix(s.pkg, "test") || strings.HasPrefix(s.pkg, "examples") {
			continue
		}
		name, l, ok := layerOf(table, s.pkg)
		if !ok {
			t.Errorf("%s: package %s has no line in the import table", s.path, s.pkg)
			continue
		}
		seen[name] = true
		for _, i := range imports(s) {
			if !permitted(l, s.pkg, i) {
				t.Errorf("%s: package %s must not import %s", s.path, s.pkg, i)
			}
		}
	}
	for name := range table {
		if !seen[name] && !strings.HasSuffix(name, "/*") {
			t.Errorf("the import table has a line for %s, which has no file", name)
		}
	}
}

func layerOf(table map[string]layer, pkg string) (string, layer, bool) {
	if l, ok := table[pkg]; ok {
		return pkg, l, true
	}
	if i := strings.LastIndexByte(pkg, '/'); i > 0 {
		name := pkg[:i] + "/*"
		l, ok := table[name]
		return name, l, ok
	}
	return "", layer{}, false
}

func permitted(l layer, pkg, path string) bool {
	if rest, ok := strings.CutPrefix(path, module+"/"); ok {
		return within(l.own, rest)
	}
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		return true // the standard library
	}
	for _, p := range l.third {
		if path == p || strings.HasPrefix(path, strings.TrimSuffix(p, "/")+"/") {
			return true
		}
	}
	return false
}

func within(patterns []string, pkg string) bool {
	for _, p := range patterns {
		base, star := strings.CutSuffix(p, "*")
		if p == "*" || pkg == p || star && strings.HasPrefix(pkg, base) {
			return true
		}
	}
	return false
}
