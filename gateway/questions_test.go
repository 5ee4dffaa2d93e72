package gateway

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	mdns "github.com/miekg/dns"

	"sallyport/audit"
	"sallyport/gateway/dns"
	"sallyport/gateway/identity"
)

// TestQuestionsTogether: of questions that came together those that need no new
// lease are decided as each by itself would be, and their records take one write.
// Without its record none is answered.
func TestQuestionsTogether(t *testing.T) {
	l := newLab(t)
	l.allow("api.test", 443)
	l.load()
	stranger := netip.MustParseAddrPort("192.0.2.66:40000")
	in := &Inbound{Identify: func(a netip.Addr) (*identity.Sandbox, bool) {
		if a == stranger.Addr() {
			return nil, false
		}
		return l.sandbox, true
	}}
	asked := func() []dns.Asked {
		var list []dns.Asked
		for _, host := range []string{"api.test", "evil.test", "localhost", "api.test"} {
			list = append(list, dns.Asked{Question: dns.Question{Name: host, Host: host, Type: mdns.TypeA, TypeName: "A",
				Transport: dns.TransportUDP, Peer: netip.MustParseAddrPort("192.0.2.7:40000"), Resolver: netip.MustParseAddrPort("198.51.100.53:53")}})
		}
		list[3].Peer = stranger
		return list
	}
	decided := func(list []dns.Asked) (out []bool) {
		for _, x := range list {
			out = append(out, x.Decided)
		}
		return out
	}
	first := asked()
	l.g.questions(in, first)
	if got := decided(first); !slices.Equal(got, []bool{false, true, true, true}) {
		t.Errorf("decided before there is a lease: %v", got)
	}
	lease := l.g.question(l.sandbox, first[0].Question)
	if n := len(l.events(nil)); n != 4 {
		t.Errorf("%d records of 4 questions", n)
	}
	groups, second := l.recorder.Stats().Groups, asked()
	l.g.questions(in, second)
	if n := l.recorder.Stats().Groups - groups; n != 1 {
		t.Errorf("%d writes for questions that came together, want 1", n)
	}
	for i, x := range second {
		sb, _ := in.Identify(x.Peer.Addr())
		if alone := l.g.question(sb, x.Question); !x.Decided || !reflect.DeepEqual(x.Answer, alone) {
			t.Errorf("question %d: answered %+v, by itself %+v", i, x.Answer, alone)
		}
	}
	if !slices.Equal(second[0].Answer.Addrs, lease.Addrs) {
		t.Errorf("answered %v, leased %v", second[0].Answer, lease)
	}
	sameRecords(t, l.events(nil)[4:])
	l.recorder.failWhen(func(e *audit.Event) error {
		if e.Host == "localhost" {
			return audit.ErrUnavailable
		}
		return nil
	})
	third := asked()
	l.g.questions(in, third)
	for i, x := range third {
		if want := i == 2 || i == 3; (x.Answer.RCode == mdns.RcodeRefused) != want {
			t.Errorf("question %d: answered %+v, refused must be %t", i, x.Answer, want)
		}
	}
}

// sameRecords holds that the first half of the records says what the second
// does, apart from their places in the log.
func sameRecords(t *testing.T, events []*audit.Event) {
	t.Helper()
	half := len(events) / 2
	for i, e := range events[:half] {
		a, b := *e, *events[half+i]
		for _, x := range []*audit.Event{&a, &b} {
			x.ID, x.Seq, x.Prev, x.Time = "", 0, "", time.Time{}
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("record %d (-together +alone):\n%s", i, diff)
		}
	}
}

// BenchmarkQuestions answers 32 questions that came together, with their records.
// A turn is one question.
func BenchmarkQuestions(b *testing.B) {
	l := newLab(b)
	asked := make([]dns.Asked, 32)
	for i := range asked {
		host := fmt.Sprintf("n%d.names.test", i)
		l.allow(host, 443)
		asked[i].Question = dns.Question{Name: host, Host: host, Type: mdns.TypeA, TypeName: "A", Transport: dns.TransportUDP,
			Peer: netip.MustParseAddrPort("192.0.2.7:40000"), Resolver: netip.MustParseAddrPort("198.51.100.53:53")}
		_, err := l.g.Pool.Lease(l.sandbox.ID, host, false)
		must(b, err)
	}
	l.load()
	in := &Inbound{Identify: func(netip.Addr) (*identity.Sandbox, bool) { return l.sandbox, true }}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += len(asked) {
		for k := range asked {
			asked[k].Decided = false
		}
		l.g.questions(in, asked)
		if !asked[0].Decided || len(asked[0].Answer.Addrs) != 1 {
			b.Fatal(asked[0])
		}
	}
}
