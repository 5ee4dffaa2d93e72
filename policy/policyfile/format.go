package policyfile

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
)

// Format returns a policy file in the one layout of the language. A file that
// has a syntax error is not formatted; the diagnostics say what is wrong.
func Format(name string, data []byte) ([]byte, *Diagnostics) {
	diags := &Diagnostics{}
	diags.addFile(name, data)
	if tooDeep(data, name) {
		diags.add(Diagnostic{Summary: "brackets or operators are nested too deeply"})
		return nil, diags
	}
	_, problems := hclsyntax.ParseConfig(data, name, hcl.InitialPos)
	if problems.HasErrors() {
		diags.addHCL(credible(problems, damaged(problems)))
		return nil, diags
	}
	return hclwrite.Format(data), diags
}
