package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// put prints to standard output. What cannot be printed is a failure of the
// command: who reads the output has less than they think.
func put(format string, args ...any) error {
	_, err := fmt.Printf(format, args...)
	return err
}

// dash is standard output, where a path is asked for.
const dash = "-"

// notDash refuses standard output where a path is to be written that it cannot
// be. A file that is called so is written "./-".
func notDash(what, path string) error {
	if path != dash {
		return nil
	}
	return &exit{code: exitUsage, err: fmt.Errorf("%s -: this is not written to standard output", what), hint: "name a path; one that is called - is ./-"}
}

// table lays out columns for standard output, where they appear with Flush.
type table struct {
	*tabwriter.Writer
	text *bytes.Buffer
}

func newTable() table {
	text := new(bytes.Buffer)
	return table{tabwriter.NewWriter(text, 0, 8, 2, ' ', 0), text}
}

// Flush prints the table.
func (t table) Flush() error {
	_ = t.Writer.Flush() // into memory
	_, err := t.text.WriteTo(os.Stdout)
	return err
}

// remembering writes to w until that fails, and remembers why. What prints help
// does not look at the error.
type remembering struct {
	w   io.Writer
	err error
}

// Write returns the first error from then on.
func (r *remembering) Write(p []byte) (n int, err error) {
	if r.err == nil {
		n, r.err = r.w.Write(p)
	}
	return n, r.err
}

// failure is what went wrong with the output, as the failure of a command.
func (r *remembering) failure() error {
	if r.err == nil {
		return nil
	}
	return &exit{code: exitFailed, err: r.err}
}
