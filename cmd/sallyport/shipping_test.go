package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestShipBlocks(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("Bearer t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ text, wrong string }{
		"all": {`ship "otlp" {
  url          = "https://otel.test:4318"
  headers      = { X-Scope = "a" }
  header_files = { Authorization = "` + token + `" }
  resource     = { "host.name" = "gw" }
}
ship "otlp" { url = "http://127.0.0.1:4318" }`, ""},
		"kind":       {`ship "kafka" { url = "https://otel.test" }`, `ship "kafka": the kind of receiver is otlp`},
		"twice":      {`ship "otlp" { url = "https://otel.test" }` + "\n" + `ship "otlp" { url = "https://otel.test" }`, "two blocks for one receiver"},
		"in clear":   {`ship "otlp" { ` + "\n" + `url = "http://otel.test"` + "\n" + `header_files = { Authorization = "` + token + `" }` + "\n}", "needs an HTTPS URL"},
		"no file":    {`ship "otlp" { ` + "\n" + `url = "https://otel.test"` + "\n" + `header_files = { Authorization = "` + dir + `/none" }` + "\n}", "header_files: open"},
		"no CA":      {`ship "otlp" { ` + "\n" + `url = "https://otel.test"` + "\n" + `ca_file = "` + token + `"` + "\n}", "ca_file"},
		"URL":        {`ship "otlp" { url = "otel.test:4318" }`, "url"},
		"credential": {`ship "otlp" { url = "https://u:p@otel.test" }`, "url is no URL of a receiver"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "sallyport.hcl")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			d, _, diags := readDaemonFile(file)
			if diags.HasErrors() {
				t.Fatal(diags)
			}
			s, err := d.settings(paths{state: dir})
			switch {
			case test.wrong == "" && (err != nil || len(s.ships) != 2):
				t.Errorf("%d receivers, %v", len(s.ships), err)
			case test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)):
				t.Errorf("error %v, want %q in it", err, test.wrong)
			}
		})
	}
}
