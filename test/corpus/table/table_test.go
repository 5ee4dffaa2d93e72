package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"sallyport/test/corpus"
)

// TestPlacesAreThere holds that the tests that cases are said to have in other
// packages are there, so that the table can run them.
func TestPlacesAreThere(t *testing.T) {
	for id, where := range corpus.Elsewhere() {
		for pkg, tests := range Places(where) {
			if _, err := os.Stat("../../../" + pkg); err != nil {
				t.Errorf("%s: %v", id, err)
				continue
			}
			out, err := exec.Command("grep", "-rhoE", "^func Test[A-Za-z0-9_]+", "../../../"+pkg).CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", pkg, err, out)
			}
			for _, test := range tests {
				if name, _, _ := strings.Cut(test, "/"); !strings.Contains(string(out)+"\n", "func "+name+"\n") {
					t.Errorf("%s: %s has no %s", id, pkg, test)
				}
			}
		}
	}
	if got := Places("gateway: TestA; test/secrets: TestB, TestC"); len(got["gateway"]) != 1 || len(got["test/secrets"]) != 2 {
		t.Errorf("places: %v", got)
	}
	if got := Places("forty thousand here, for the time; gateway/dns: FuzzQuestion has no bound"); len(got) != 0 {
		t.Errorf("places: %v", got)
	}
}
