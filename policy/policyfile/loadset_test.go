package policyfile

import (
	"strings"
	"testing"

	"sallyport/policy"
)

// loadSetText writes text to a file and loads it.
func loadSetText(t *testing.T, text string) (*policy.Set, *Diagnostics) {
	t.Helper()
	return ParseSet(map[string][]byte{"ci.hcl": []byte(text)}, 7, testOptions())
}

// TestPOL02StarGluedToAName holds that a wildcard that would open foreign
// domains fails the load where it stands, and that the message proposes what
// was meant.
func TestPOL02StarGluedToAName(t *testing.T) {
	for pattern, hint := range map[string]string{
		"*good.test": "*.good.test",
		"good.*":     "",
		"g*d.test":   "",
		"*.*.test":   "",
		"*":          "any_host",
		"**":         "",
		"*.com":      "public_suffix",
	} {
		t.Run(pattern, func(t *testing.T) {
			set, diags := loadSetText(t, "sandbox \"ci\" {\n  allow \""+pattern+"\" {}\n}\n")
			text := shown(t, diags)
			if set != nil || !diags.HasErrors() {
				t.Fatalf("allow %q loads", pattern)
			}
			for _, want := range []string{"ci.hcl:2:3", "allow \"" + pattern + "\"", "^^^^", hint} {
				if !strings.Contains(text, want) {
					t.Errorf("text does not have %q:\n%s", want, text)
				}
			}
			if set, _ := loadSetText(t, "secret \"KEY\" {\n  hosts = [\""+pattern+"\"]\n  source \"env\" { name = \"KEY\" }\n}\n"); set != nil {
				t.Errorf("a secret with the host %q loads", pattern)
			}
		})
	}
	t.Run("any host never carries a secret", func(t *testing.T) {
		set, _ := loadSetText(t, `org {
  any_host = true
  allow "*" {}
}
secret "KEY" {
  hosts = ["*"]
  source "env" { name = "KEY" }
}
sandbox "ci" {
  allow "*" { inject = ["KEY"] }
}
`)
		if set != nil {
			t.Error("a rule for any host with a secret loads")
		}
	})
}

// TestPOL19SoundRulesBesideBrokenOnes: rules of a sandbox in which another
// rule cannot be read are judged in the same pass.
func TestPOL19SoundRulesBesideBrokenOnes(t *testing.T) {
	_, diags := loadSetText(t, "sandbox \"s\" {\n  alow \"a.test\" {}\n  allow \"*b.test\" {}\n  deny \"c.test\" { methds = 1 }\n}\n")
	text := shown(t, diags)
	for _, want := range []string{"ci.hcl:2", "alow", "ci.hcl:3", "*b.test", "ci.hcl:4", "methds"} {
		if !strings.Contains(text, want) {
			t.Errorf("text does not have %q:\n%s", want, text)
		}
	}
}

// TestPOL19DecoderAndCompilerTogether holds that one load reports what the
// decoder and what the compiler finds, and nothing that only follows.
func TestPOL19DecoderAndCompilerTogether(t *testing.T) {
	set, diags := loadSetText(t, `sandbox "a" {
  moed = "report"
  allow "api.example.com" {
    inject = ["FOLLOWS"]
  }
}
sandbox "b" {
  use = ["nowhere"]
  allow "api.example.com" {
    inject = ["UNDECLARED"]
  }
}
`)
	text := shown(t, diags)
	if set != nil {
		t.Fatal("a policy with errors was compiled")
	}
	for _, want := range []string{`no attribute "moed"`, "UNDECLARED", "nowhere"} {
		if !strings.Contains(text, want) {
			t.Errorf("text does not have %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "FOLLOWS") {
		t.Errorf("text reports a block that has errors of its own:\n%s", text)
	}

	_, diags = loadSetText(t, "secret \"KEY\" \"x\" {\n}\nsandbox \"b\" {\n  allow \"api.example.com\" {\n    inject = [\"KEY\"]\n  }\n}\n")
	if text := shown(t, diags); strings.Contains(text, "not declared") {
		t.Errorf("text reports a name whose declaration has errors as missing:\n%s", text)
	}
}

// TestStarter holds that the policy `sallyport init` writes loads without a
// complaint, shows what the language has, and does what its comments say.
func TestStarter(t *testing.T) {
	set, diags := loadSetText(t, string(Starter()))
	if set == nil || diags.Len() != 0 {
		t.Fatalf("starter policy:\n%s", shown(t, diags))
	}
	for _, block := range []string{"\norg {", "\ngroup \"", "\nsecret \"", "\nsandbox \""} {
		if !strings.Contains(string(Starter()), block) {
			t.Errorf("starter policy has no %q", block)
		}
	}
	if set.Generation() != 7 || len(set.SHA256()) != 64 {
		t.Errorf("generation %d, digest %q", set.Generation(), set.SHA256())
	}
	for _, tc := range []struct {
		method, host, path string
		want               policy.Verdict
	}{
		{"POST", "api.anthropic.com", "/v1/messages", policy.Allow},
		{"DELETE", "api.anthropic.com", "/v1/messages", policy.Deny},
		{"POST", "api.anthropic.com", "/v1/files", policy.Deny},
		{"GET", "pypi.org", "/simple/requests/", policy.Allow},
		{"POST", "pypi.org", "/legacy/", policy.Deny},
		{"GET", "registry.npmjs.org", "/@types%2fnode", policy.Allow},
		{"GET", "api.github.com", "/repos/acme/app", policy.Allow},
		{"POST", "api.github.com", "/repos/acme/app/issues", policy.Deny},
		{"GET", "api.openai.com", "/v1/models", policy.Deny},
		{"GET", "x.ngrok.io", "/", policy.Deny},
	} {
		d := set.Decide(policy.Request{Sandbox: "agent", Stage: policy.StageRequest, Host: tc.host, Port: 443, Scheme: policy.HTTPS,
			Method: tc.method, Path: tc.path})
		if d.Verdict != tc.want {
			t.Errorf("%s %s%s: %v (%s), want %v", tc.method, tc.host, tc.path, d.Verdict, d.Reason, tc.want)
		}
	}
}
