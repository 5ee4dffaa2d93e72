package main

import (
	"io"
	"os"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"golang.org/x/term"
)

// useColor says whether f is a terminal that may be written to in color
// (no-color.org).
func useColor(f *os.File) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// printHCL prints diagnostics with the source that they are about.
func printHCL(w io.Writer, parser *hclparse.Parser, diags hcl.Diagnostics) {
	_ = hcl.NewDiagnosticTextWriter(w, parser.Files(), 100, false).WriteDiagnostics(diags) // there is nowhere else to say it
}
