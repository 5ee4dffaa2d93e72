package inject

import (
	"encoding/hex"
	"strings"
	"testing"

	"sallyport/secrets"
)

// TestAUD02TextsOfRecords: no form of a value that is looked for stays in what
// is recorded.
func TestAUD02TextsOfRecords(t *testing.T) {
	g := NewGuard([]secrets.Held{{Name: "API_KEY", Value: mustValue(t, talk)}})
	for text, want := range map[string]string{
		"/a/b":                                 "/a/b",
		"/a/" + talk + "/b":                    "/a/***************************/b",
		"/a/%52EAL-" + talk[5:]:                "/a/" + strings.Repeat("*", 29),
		"/a/%2552EAL-" + talk[5:]:              strings.Repeat("*", 34),
		"/" + hex.EncodeToString([]byte(talk)): "/******************************************************",
		"":                                     "",
	} {
		if got := g.Cover(text); got != want {
			t.Errorf("%q is recorded as %q, not %q", text, got, want)
		}
	}
	for name, want := range map[string]string{
		"api.example.com":                        "api.example.com",
		"real-7f3a9c51.e2d84b06-value.evil.test": "***.evil.test",
		"real-7f3a9c51e2d84b06-value.test":       "***",
		"REAL-7f3a9c51e2d84b06-value":            "***",
	} {
		if got := g.CoverName(name); got != want {
			t.Errorf("the name %q is recorded as %q, not %q", name, got, want)
		}
	}
	if got := NewGuard(nil).Cover("/a/" + talk); got != "/a/"+talk {
		t.Errorf("without values: %q", got)
	}
}
