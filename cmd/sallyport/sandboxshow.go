package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// show prints one sandbox of the daemon.
func (f *controlFlags) show(w io.Writer, id string) error {
	var sb apiSandbox
	if err := f.call(http.MethodGet, "/v1/sandboxes/"+url.PathEscape(id), nil, &sb); err != nil || f.json {
		return err
	}
	return sb.write(w)
}

// writeSandboxes writes a line for each sandbox, in columns that a tab parts.
func writeSandboxes(w io.Writer, list []apiSandbox) {
	fmt.Fprintln(w, "ID\tNAME\tPOLICY\tWHERE\tNARROWED TO\tLABELS")
	for _, sb := range list {
		labels := make([]string, 0, len(sb.Labels))
		for _, name := range slices.Sorted(maps.Keys(sb.Labels)) {
			labels = append(labels, name+"="+sb.Labels[name])
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", sb.ID, sb.Name, sb.Policy, cmp.Or(sb.Where, "-"), sb.Narrow.line(), strings.Join(labels, ","))
	}
}

// line says in one cell to what a sandbox is narrowed; "-" of one that is not.
func (n *apiNarrowed) line() string {
	if n == nil {
		return "-"
	}
	var parts []string
	if len(n.Only) > 0 {
		parts = append(parts, strings.Join(n.Only, ","))
	}
	if len(n.Methods) > 0 {
		parts = append(parts, strings.Join(n.Methods, ","))
	}
	if !n.Expires.IsZero() {
		parts = append(parts, "until "+n.Expires.UTC().Format(time.RFC3339))
	}
	return cmp.Or(strings.Join(parts, "; "), "all of "+n.Parent)
}

// write writes the sandbox for people. Its variables are written as a shell
// takes them.
func (sb *apiSandbox) write(w io.Writer) error {
	var b bytes.Buffer
	tab := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tab, "sandbox\t%s\n", sb.Name)
	fmt.Fprintf(tab, "id\t%s\n", sb.ID)
	fmt.Fprintf(tab, "policy\tsandbox %q\n", sb.Policy)
	if sb.Where != "" {
		fmt.Fprintf(tab, "where\t%s\n", sb.Where)
	}
	for _, name := range slices.Sorted(maps.Keys(sb.Labels)) {
		fmt.Fprintf(tab, "label\t%s=%s\n", name, sb.Labels[name])
	}
	if n := sb.Narrow; n != nil {
		fmt.Fprintf(tab, "narrowed\tfrom %q to %s, %s\n", n.Parent, orAll(n.Only, "all its hosts"), orAll(n.Methods, "all its methods"))
		if !n.Expires.IsZero() {
			fmt.Fprintf(tab, "ends\t%s\n", n.Expires.Local().Format(time.RFC3339))
		}
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(&b, "\n# to set in it (sallyport env writes the files that these name)")
	for _, name := range slices.Sorted(maps.Keys(sb.Env)) {
		fmt.Fprintf(&b, "export %s=%s\n", name, shellQuoted(sb.Env[name]))
	}
	fmt.Fprintln(&b, "\n# the authority that it has to trust: --json has it as ca; sallyport ca export prints it")
	_, err := b.WriteTo(w)
	return err
}

func orAll(list []string, all string) string {
	if len(list) == 0 {
		return all
	}
	return strings.Join(list, ", ")
}

// shellQuoted writes a word so that a POSIX shell reads it as it is.
func shellQuoted(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
