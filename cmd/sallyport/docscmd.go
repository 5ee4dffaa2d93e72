package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

// docsCommand writes what a package installs beside the program.
func docsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "docs DIR", Short: "Write the manual pages and the completions of shells to a folder", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := notDash("docs", args[0]); err != nil {
				return err
			}
			root := cmd.Root()
			root.InitDefaultHelpCmd()
			root.InitDefaultCompletionCmd()
			for _, step := range []func(*cobra.Command, string) error{writeManual, writeCompletions} {
				if err := step(root, args[0]); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func writeCompletions(root *cobra.Command, dir string) error {
	dir = filepath.Join(dir, "completions")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for shell, write := range map[string]func(*bytes.Buffer) error{
		"bash": func(b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) },
		"zsh":  func(b *bytes.Buffer) error { return root.GenZshCompletion(b) },
		"fish": func(b *bytes.Buffer) error { return root.GenFishCompletion(b, true) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return fmt.Errorf("completions of %s: %w", shell, err)
		}
		if err := os.WriteFile(filepath.Join(dir, shell), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeManual writes a page for cmd and one for each of its commands.
func writeManual(cmd *cobra.Command, dir string) error {
	pages := filepath.Join(dir, "man1")
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(pages, pageName(cmd)+".1"), manual(cmd), 0o644); err != nil {
		return err
	}
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() || sub.Name() == "help" {
			continue
		}
		if err := writeManual(sub, dir); err != nil {
			return err
		}
	}
	return nil
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manual is the page of one command, in the man macros (man(7)).
func manual(cmd *cobra.Command) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"sallyport\" \"sallyport\"\n.nh\n.ad l\n", strings.ToUpper(roff(pageName(cmd))))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(pageName(cmd)), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(cmd.UseLine()))
	if cmd.Long != "" {
		fmt.Fprint(&b, ".SH DESCRIPTION\n")
		for i, paragraph := range strings.Split(strings.TrimSpace(cmd.Long), "\n\n") {
			if i > 0 {
				fmt.Fprint(&b, ".PP\n")
			}
			if strings.HasPrefix(paragraph, "  ") {
				literal(&b, paragraph)
				continue
			}
			fmt.Fprintln(&b, roff(paragraph))
		}
	}
	if usage := cmd.LocalFlags().FlagUsages(); usage != "" {
		fmt.Fprint(&b, ".SH OPTIONS\n")
		literal(&b, strings.TrimRight(usage, "\n"))
	}
	if cmd.Example != "" {
		fmt.Fprint(&b, ".SH EXAMPLES\n")
		literal(&b, cmd.Example)
	}
	var also []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			also = append(also, pageName(sub))
		}
	}
	if cmd.HasParent() {
		also = append(also, pageName(cmd.Parent()))
	}
	if len(also) > 0 {
		fmt.Fprint(&b, ".SH SEE ALSO\n")
		for i, name := range also {
			comma := ","
			if i == len(also)-1 {
				comma = ""
			}
			fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(name), comma)
		}
	}
	return b.Bytes()
}

// literal writes text as it stands, line by line.
func literal(b *bytes.Buffer, text string) {
	fmt.Fprintf(b, ".nf\n%s\n.fi\n", roff(text))
}

// roff escapes text: backslashes, hyphens that are to be copied, letters beyond
// ASCII, and lines that begin as a macro does.
func roff(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r > unicode.MaxASCII:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	lines := strings.Split(b.String(), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
