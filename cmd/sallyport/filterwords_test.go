package main

import (
	"net/url"
	"testing"
)

// TestAHostIsAskedForAsItIsRecorded: hosts are compared in one form, also those
// that records are asked for.
func TestAHostIsAskedForAsItIsRecorded(t *testing.T) {
	for asked, want := range map[string]string{
		"":                 "",
		"ok.test":          "ok.test",
		"OK.test.":         "ok.test",
		"bücher.test":      "xn--bcher-kva.test",
		"*.Bücher.test.":   "*.xn--bcher-kva.test",
		"*":                "*",
		"a?.ok.test":       "a?.ok.test",
		"10.0.*":           "10.0.*",
		"192.0.2.1":        "192.0.2.1",
		"2001:DB8::0:1":    "2001:db8::1",
		"2001:db8:*":       "2001:db8:*",
		"_dmarc.OK.test":   "_dmarc.ok.test",
		"not..a.host.test": "not..a.host.test", // as it was asked
	} {
		f := tailFlags{host: asked}
		got, err := f.filter()
		if err != nil || got.Host != want {
			t.Errorf("tail --host %s asks for %q, %v; want %q", asked, got.Host, err, want)
		}
		if asked == "" {
			continue
		}
		if got, err := eventFilter(url.Values{"host": {asked}}); err != nil || got.Host != want {
			t.Errorf("events of host %s asks for %q, %v; want %q", asked, got.Host, err, want)
		}
	}
}
