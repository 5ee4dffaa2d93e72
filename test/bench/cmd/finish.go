//go:build linux

package main

import (
	"fmt"

	"sallyport/test/bench/report"
)

// finish says what was reached, and writes and compares what is asked for.
func (b *bench) finish(results, baseline string, check, keep bool) error {
	fmt.Fprint(b.out, "\n### Targets\n\n")
	b.samples.Verdicts(b.out, report.Targets())
	return nil
}
