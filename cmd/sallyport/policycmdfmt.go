package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"sallyport/policy/policyfile"
)

// fmtFlags are the flags of policy fmt.
type fmtFlags struct {
	policyFlags
	check bool
	diff  bool
}

func fmtCommand() *cobra.Command {
	var f fmtFlags
	cmd := &cobra.Command{
		Use:   "fmt [PATH...]",
		Short: "Put policy files into the one layout",
		Long: `Rewrite policy files, test files too, in the one layout, and name those that
changed. A test file may also be named by itself. With - it formats standard input to standard output.

With --check or --diff nothing is written, and it exits with 1 when a file is
not in the layout.`,
		Example: `  sallyport policy fmt policy.d
  sallyport policy fmt --check --diff policy.d
  sallyport policy fmt policy.d/ci_test.hcl
  sallyport policy fmt - < ci.hcl`,
		RunE: func(_ *cobra.Command, args []string) error { return f.format(args) },
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.check, "check", false, "name the files that are not in the layout")
	cmd.Flags().BoolVar(&f.diff, "diff", false, "show what would change")
	return cmd
}

func (f *fmtFlags) format(args []string) error {
	if len(args) == 1 && args[0] == "-" {
		return f.stream(os.Stdin, os.Stdout)
	}
	paths, err := f.paths(args)
	if err != nil {
		return err
	}
	files, diags := policyfile.Files(paths)
	if diags.HasErrors() {
		return f.invalid(diags)
	}
	changed, broken := 0, false
	for _, path := range files {
		was, now, err := f.file(path)
		if err != nil {
			return err
		}
		if now == nil {
			broken = true
			continue
		}
		if bytes.Equal(was, now) {
			continue
		}
		changed++
		if err := f.tell(path, was, now); err != nil {
			return err
		}
	}
	if broken {
		return &exit{code: exitFailed, err: errors.New("files with syntax errors are left as they are")}
	}
	if changed > 0 && (f.check || f.diff) {
		return &exit{code: exitFailed, err: fmt.Errorf("%s not in the layout", counted(changed, "file")), hint: "sallyport policy fmt writes it"}
	}
	return nil
}

// file reads and formats one file. It prints what is wrong with one that has
// a syntax error, and returns nil for it.
func (f *fmtFlags) file(path string) (was, now []byte, err error) {
	if was, err = os.ReadFile(path); err != nil {
		return nil, nil, err
	}
	now, diags := policyfile.Format(path, was)
	if diags.HasErrors() {
		return was, nil, f.print(diags)
	}
	return was, now, nil
}

// tell reports a file that is not in the layout, or rewrites it.
func (f *fmtFlags) tell(path string, was, now []byte) error {
	if f.json {
		if err := writeJSON(os.Stdout, map[string]any{"file": path, "written": !f.check && !f.diff}); err != nil {
			return err
		}
	} else if !f.diff {
		if err := put("%s\n", path); err != nil {
			return err
		}
	}
	if f.diff && !f.json {
		if _, err := os.Stdout.WriteString(unified(path, string(was), string(now))); err != nil {
			return err
		}
	}
	if f.check || f.diff {
		return nil
	}
	return replaceFile(path, now)
}

// replaceFile writes a file whole or not at all, with the mode that it had.
func replaceFile(path string, data []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	t, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(t.Name()) // it is gone when all went well
	_, err = t.Write(data)
	if err = errors.Join(err, t.Chmod(info.Mode().Perm()), t.Close()); err != nil {
		return err
	}
	return os.Rename(t.Name(), path)
}

func (f *fmtFlags) stream(in io.Reader, out io.Writer) error {
	data, err := io.ReadAll(io.LimitReader(in, policyfile.MaxBytes))
	if err != nil {
		return err
	}
	now, diags := policyfile.Format("standard input", data)
	if diags.HasErrors() {
		return f.invalid(diags)
	}
	if f.check || f.diff {
		if bytes.Equal(data, now) {
			return nil
		}
		if f.diff {
			if _, err := io.WriteString(out, unified("standard input", string(data), string(now))); err != nil {
				return err
			}
		}
		return &exit{code: exitFailed, err: errors.New("standard input is not in the layout")}
	}
	_, err = out.Write(now)
	return err
}
