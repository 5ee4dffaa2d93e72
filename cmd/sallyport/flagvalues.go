package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sallyport/policy/policyfile"
)

// spanFlag is the value of a flag for a length of time, which may be in days.
type spanFlag struct{ to *time.Duration }

// spanVar adds a flag for a length of time.
func spanVar(fs *pflag.FlagSet, to *time.Duration, name, what string) {
	fs.Var(spanFlag{to}, name, what)
}

// Set reads the value.
func (f spanFlag) Set(s string) error {
	d, err := duration(s)
	switch {
	case err != nil || s == "":
		return errors.New("want a duration such as 90s, 2h or 7d")
	case d < 0:
		return errors.New("it must be positive")
	}
	*f.to = d
	return nil
}

// Type is shown in the help.
func (f spanFlag) Type() string { return "duration" }

// String is the default in the help.
func (f spanFlag) String() string {
	if f.to == nil || *f.to == 0 {
		return ""
	}
	return f.to.String()
}

// checkedFlag is the value of a flag that takes some words and no others.
type checkedFlag struct {
	to    *string
	kind  string
	check func(string) error
}

// Set takes the value.
func (f checkedFlag) Set(s string) error {
	if err := f.check(s); err != nil {
		return err
	}
	*f.to = s
	return nil
}

// Type is shown in the help.
func (f checkedFlag) Type() string { return f.kind }

// String is the default in the help.
func (f checkedFlag) String() string {
	if f.to == nil {
		return ""
	}
	return *f.to
}

// wordVar adds a flag whose value is not empty: it chooses, and empty, as of a
// variable that is not set, would choose everything.
func wordVar(fs *pflag.FlagSet, to *string, name, what string) {
	fs.Var(checkedFlag{to, "string", func(s string) error {
		if s == "" {
			return errors.New("the value is empty")
		}
		return nil
	}}, name, what)
}

// choiceVar adds a flag whose value is one of of; the first is the default.
func choiceVar(fs *pflag.FlagSet, to *string, name, short, what string, of ...string) {
	*to = of[0]
	list := strings.Join(of, ", ")
	fs.VarP(checkedFlag{to, "string", func(s string) error {
		if !slices.Contains(of, s) {
			return errors.New("want one of " + list)
		}
		return nil
	}}, name, short, what+": "+list)
}

// hostPortVar adds a flag for where something listens.
func hostPortVar(fs *pflag.FlagSet, to *string, name, what string) {
	fs.Var(checkedFlag{to, "address:port", func(s string) error {
		host, port, err := net.SplitHostPort(s)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || host == "" || n == 0 {
			return errors.New("want address:port, such as 127.0.0.1:3128 or [::1]:3128")
		}
		return nil
	}}, name, what)
}

// knowTopics makes a word that is no command wrong usage of help, too.
func knowTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			continue
		}
		c.Run = nil
		c.RunE = func(_ *cobra.Command, args []string) error {
			topic, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return &exit{code: exitUsage, err: fmt.Errorf("help: unknown command %q", strings.Join(args, " ")), hint: "sallyport --help lists the commands"}
			}
			topic.InitDefaultHelpFlag()
			return topic.Help()
		}
	}
}

// knowSubcommands makes a word that is no command of a group wrong usage, with
// the nearest one. By itself the group shows its help.
func knowSubcommands(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		if !sub.HasSubCommands() || sub.Run != nil {
			continue
		}
		sub.Args = cobra.ArbitraryArgs
		sub.RunE = func(group *cobra.Command, args []string) error {
			if len(args) == 0 {
				return group.Help()
			}
			return unknownWord(group, args[0])
		}
		sub.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
			if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
				return unknownWord(cmd, words[0]) // the flag is of what was meant
			}
			return sayNumber(cmd, err)
		})
		knowSubcommands(sub)
	}
}

// sayNumber has the error of a flag say what it takes where Go's own says how
// it was read.
func sayNumber(_ *cobra.Command, err error) error {
	if n, ok := errors.AsType[*strconv.NumError](err); ok {
		want := "want a number that is whole"
		switch {
		case n.Func == "ParseBool":
			want = "want true or false"
		case errors.Is(n, strconv.ErrRange):
			want = "it is too large"
		}
		return errors.New(strings.TrimSuffix(err.Error(), n.Error()) + want)
	}
	return err
}

// unknownWord is the error of a word that is no command of a group.
func unknownWord(group *cobra.Command, word string) error {
	var names []string
	for _, c := range group.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	hint := policyfile.DidYouMean(word, names)
	if hint == "" {
		hint = group.CommandPath() + " --help lists its commands"
	}
	return &exit{code: exitUsage, err: fmt.Errorf("unknown command %q for %q", word, group.CommandPath()), hint: hint}
}

// sayNoArguments has a command that takes no arguments say so: cobra calls them
// unknown commands.
func sayNoArguments(cmd *cobra.Command) {
	if check := cmd.Args; check != nil && !cmd.HasSubCommands() {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err != nil && len(args) > 0 && check(cmd, nil) == nil && check(cmd, args[:1]) != nil {
				return fmt.Errorf("%s takes no arguments: %q", cmd.CommandPath(), args[0])
			}
			return err
		}
	}
	for _, sub := range cmd.Commands() {
		sayNoArguments(sub)
	}
}

// underPolicy is the hint for a word that is a command of policy, and was given
// without it; "" for every other.
func underPolicy(root *cobra.Command, args []string) string {
	if len(args) == 0 {
		return ""
	}
	group, _, err := root.Find([]string{"policy"})
	if err != nil {
		return ""
	}
	for _, c := range group.Commands() {
		if c.Name() == args[0] {
			return "it is under policy: " + c.CommandPath()
		}
	}
	return ""
}

// checkedList is the value of a repeatable flag that takes some words and no
// others.
type checkedList struct {
	to    *[]string
	check func(string) error
}

// Set adds one word.
func (f checkedList) Set(s string) error {
	if err := f.check(s); err != nil {
		return err
	}
	*f.to = append(*f.to, s)
	return nil
}

// Type is shown in the help.
func (checkedList) Type() string { return "NAME=VALUE" }

// String is the default in the help.
func (checkedList) String() string { return "" }

// varsVar adds the flag for the variables of a policy.
func varsVar(fs *pflag.FlagSet, to *[]string) {
	fs.Var(checkedList{to, func(s string) error {
		if name, _, ok := strings.Cut(s, "="); !ok || name == "" {
			return errors.New("want NAME=VALUE, such as --var stage=test")
		}
		return nil
	}}, "var", "NAME=VALUE for a variable block of the policy (repeatable)")
}

// environVar adds the flag for variables of the sandbox's environment.
func environVar(fs *pflag.FlagSet, to *[]string) {
	fs.Var(checkedList{to, func(s string) error {
		if name, _, _ := strings.Cut(s, "="); name == "" {
			return errors.New("want NAME=VALUE to set a variable, or NAME to unset it")
		}
		return nil
	}}, "env", "set NAME=VALUE in the sandbox, or unset NAME (repeatable)")
}

// generationFlag is the value of a flag that names a generation of the policy;
// nil: none is named.
type generationFlag struct{ to **uint64 }

// Set reads the value.
func (f generationFlag) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return errors.New("want the number of a generation, as plan --against SOCKET prints it")
	}
	*f.to = &n
	return nil
}

// Type is shown in the help.
func (generationFlag) Type() string { return "number" }

// String is the default in the help.
func (generationFlag) String() string { return "" }
