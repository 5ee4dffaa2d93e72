package policyfile

import _ "embed"

//go:embed starter.hcl
var starter string

// Starter returns the commented policy that a newcomer begins with: it loads
// as it is, and lets a coding agent reach its model, read GitHub and install
// packages.
func Starter() []byte { return []byte(starter) }
