package secrets

import "testing"

// TestCover: the values that are held are covered in a text, also where one
// begins in another, and those that stand in texts by chance are not.
func TestCover(t *testing.T) {
	s := open(t, Options{Specs: []Spec{
		{Name: "PASSWORD", Source: &fake{value: "hunterhunter"}},
		{Name: "LONGER", Source: &fake{value: "hunterhunter-and-more"}},
		{Name: "SHORT", Source: &fake{value: "main"}},
		{Name: "UNREAD", Source: &fake{value: "never-fetched"}},
	}})
	for _, name := range []string{"PASSWORD", "LONGER", "SHORT"} {
		if err := s.Check(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]string{
		"":                                   "",
		"make main":                          "make main",
		"-phunterhunter":                     "-p************",
		"hunterhunter hunterhunter":          "************ ************",
		"x=hunterhunter-and-more;y":          "x=*********************;y",
		"hunterhunter-and-mor":               "************-and-mor",
		"never-fetched":                      "never-fetched",
		"hunterhuntehunterhunter-and-more ü": "hunterhunte********************* ü",
	} {
		if got := s.Cover(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
