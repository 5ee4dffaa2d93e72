package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// at says where in the daemon file an error is: path are the names of a block
// and of an attribute in it, or of an attribute alone.
func (d *daemonFile) at(err error, path ...string) error {
	err = fmt.Errorf("%s: %w", strings.Join(path, ": "), err)
	if r := d.place(path); r != nil {
		return fmt.Errorf("%s:%d: %w", r.Filename, r.Start.Line, err)
	}
	return err
}

// place finds what path names, or else the block that it would stand in; nil
// without either.
func (d *daemonFile) place(path []string) *hcl.Range {
	if d.source == nil {
		return nil
	}
	body, ok := d.source.Body.(*hclsyntax.Body)
	if !ok {
		return nil
	}
	var block *hcl.Range
	for _, name := range path {
		if a := body.Attributes[name]; a != nil {
			return &a.NameRange
		}
		for _, b := range body.Blocks {
			if b.Type == name {
				block, body = &b.TypeRange, b.Body
				break
			}
		}
	}
	return block
}

// span reads a duration of the daemon file, or says which it takes.
func (d *daemonFile) span(s string, path ...string) (time.Duration, error) {
	t, err := duration(s)
	switch {
	case err != nil:
		return 0, d.at(fmt.Errorf("%q is not a duration such as 100ms, 12h or 30d", s), path...)
	case t < 0:
		return 0, d.at(fmt.Errorf("%q is negative", s), path...)
	}
	return t, nil
}

// atLeast0 refuses a number that is negative. 0 is the default.
func (d *daemonFile) atLeast0(n int64, path ...string) error {
	if n < 0 {
		return d.at(errors.New("a negative number is no limit"), path...)
	}
	return nil
}
