package main

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"sallyport/gateway/inject"
	"sallyport/policy"
)

// keepFor is how long a value is masked and looked for that was replaced, or
// whose secret has left the policy.
const keepFor = time.Hour

// formerSecret is a secret that the policy had, and until when the hosts that
// it was for may send its value back.
type formerSecret struct {
	name  string
	hosts []string
	until time.Time
}

// formerSecrets are those of which a policy before has other hosts than the
// one in force, or which only it had.
type formerSecrets []formerSecret

// next returns what is former when the secrets of one policy are followed by
// those of another.
func (f formerSecrets) next(was, now []policy.Secret, at time.Time) formerSecrets {
	out := slices.DeleteFunc(slices.Clone(f), func(s formerSecret) bool { return !at.Before(s.until) })
	for _, s := range was {
		same := func(hosts []string) bool { return slices.Equal(hosts, s.Hosts) }
		if slices.ContainsFunc(now, func(n policy.Secret) bool { return n.Name == s.Name && same(n.Hosts) }) {
			continue
		}
		out = slices.DeleteFunc(out, func(o formerSecret) bool { return o.name == s.Name && same(o.hosts) })
		// The store that has its value in use is closed retireAfter from now.
		out = append(out, formerSecret{s.Name, s.Hosts, at.Add(retireAfter + keepFor)})
	}
	return out
}

// table returns them for a table of package inject.
func (f formerSecrets) table() []inject.Secret {
	var out []inject.Secret
	for _, s := range f {
		var hosts []policy.HostPattern
		every := false
		for _, text := range s.hosts {
			h, err := policy.ParseHostPattern(text, policy.HostOptions{PublicSuffix: true})
			every = every || err != nil // it was read once, so this is not to be
			hosts = append(hosts, h)
		}
		covers := func(host string) bool {
			return every || slices.ContainsFunc(hosts, func(h policy.HostPattern) bool { return h.Match(host) })
		}
		out = append(out, inject.Secret{Name: s.name, Covers: covers, Gone: true})
	}
	return out
}

// sameSecrets says whether two policies declare the same secrets, wherever in
// their files they stand.
func sameSecrets(a, b []policy.Secret) bool {
	bare := func(list []policy.Secret) []policy.Secret {
		list = slices.Clone(list)
		for i := range list {
			list[i].Pos, list[i].Source.Pos = policy.Pos{}, policy.Pos{}
		}
		slices.SortFunc(list, func(x, y policy.Secret) int { return cmp.Compare(x.Name, y.Name) })
		return list
	}
	return reflect.DeepEqual(bare(a), bare(b))
}
