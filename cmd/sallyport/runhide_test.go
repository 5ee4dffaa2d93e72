package main

import (
	"strings"
	"testing"
)

// TestReloadNamesNothingThatIsSeen: a file or variable that a reload names was
// not hidden from the command of a run when that began, and no source of any
// kind has its value.
func TestReloadNamesNothingThatIsSeen(t *testing.T) {
	t.Setenv("SEEN_TOKEN", "seen-by-the-command")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIASEEN")
	dir := t.TempDir()
	p := &runLoader{t: t, dir: dir}
	p.mkdir("closed")
	p.write("closed/known", "known-value\n")
	p.write("closed/seen", "seen-value\n")
	known := secretOf("KEY", `"file" { path = "DIR/closed/known" }`)
	p = newPinned(t, dir, known+pinnedSandbox)
	p.pins.seal()
	late := map[string]string{
		"FILE": `"file" { path = "DIR/closed/seen" }`,
		"ENV":  `"env" { name = "SEEN_TOKEN" }`,
		"EXEC": `"exec" {
    command = ["/bin/sh", "-c", "echo $SEEN_TOKEN"]
    env     = ["SEEN_TOKEN"]
  }`,
		"AWS": `"aws" { credentials_file = "DIR/closed/seen" }`,
		"AWSSM": `"awssm" {
    id     = "a"
    region = "eu-west-1"
  }`,
		"VAULT": `"vault" {
    address   = "https://vault.test"
    path      = "a/b"
    token_env = "SEEN_TOKEN"
  }`,
		"OAUTH2": `"oauth2" {
    token_url          = "https://a.test/"
    client_id          = "a"
    client_secret_file = "DIR/closed/seen"
  }`,
		"APP": `"github_app" {
    app_id          = "1"
    installation_id = 1
    key_file        = "DIR/closed/seen"
  }`,
		"GCP": `"gcp_jwt" {
    key_file = "DIR/closed/seen"
    audience = "https://a.test/"
  }`,
		"CERT": `"client_cert" { cert_file = "DIR/closed/seen" }`,
		"AGE": `"age" {
    path     = "DIR/closed/known"
    identity = "DIR/closed/seen"
  }`,
	}
	policy := known + secretOf("AGAIN", `"file" { path = "DIR/closed/known" }`) +
		secretOf("COMMON", `"exec" {
    command = ["/bin/sh", "-c", "echo common-value"]
    env     = ["HOME"]
  }`) + pinnedSandbox
	for name, source := range late {
		policy += secretOf(name, source)
	}
	for range 2 { // what was refused once is not known by that
		p.reload(policy)
		for name := range late {
			if v, err := p.value(name); v != "" || err == nil || !strings.Contains(err.Error(), "was not hidden when the run began") {
				t.Errorf("%s is %q, %v", name, v, err)
			}
		}
		for name, want := range map[string]string{"KEY": "known-value", "AGAIN": "known-value", "COMMON": "common-value"} {
			if v, err := p.value(name); v != want || err != nil {
				t.Errorf("%s is %q, %v", name, v, err)
			}
		}
	}
}
