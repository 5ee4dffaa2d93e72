package policyfile

import (
	"slices"
	"testing"
)

// TestVocabulary: every block that the language names has its shape in what
// editors are told.
func TestVocabulary(t *testing.T) {
	v := Vocabulary(testOptions())
	for name, b := range v {
		for _, inner := range b.Blocks {
			if inner == "source" || inner == "locals" || inner == "content" {
				continue // any name, any attribute, or what the made block has
			}
			if _, ok := v[inner]; !ok {
				t.Errorf("%s holds %s, which has no shape", name, inner)
			}
		}
		for _, r := range b.Required {
			if !slices.Contains(b.Attributes, r) {
				t.Errorf("%s requires %s, which it does not have", name, r)
			}
		}
	}
	if len(v["source.exec"].Attributes) == 0 || !slices.Contains(v["allow"].Attributes, "query") {
		t.Errorf("vocabulary %v", v)
	}
}
