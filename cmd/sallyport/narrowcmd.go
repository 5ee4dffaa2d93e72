package main

import (
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"
)

// narrowCommand attaches a namespace as a sandbox that is narrowed for one job.
func narrowCommand(f *controlFlags) *cobra.Command {
	var in apiAttach
	var labels []string
	var file string
	fd := -1
	cmd := &cobra.Command{Use: "add --parent NAME [--only HOST]... [--method METHOD]... [--ttl TIME] (--netns NAME|PATH | --pid PID | --netns-fd N | --netns-file PATH)",
		Short: "Narrow a sandbox of the policy for one job, and attach its namespace",
		Long: `Attach a network namespace as a sandbox that may use a part of what its parent
may: fewer hosts, fewer methods, for a shorter time. A request is let through if
the parent's rules allow it and the narrowing does.

What names anything that the parent does not allow is refused whole, with the
parent's nearest rule. Each method must be allowed on each host. When its time
is over the sandbox ends and what is open is cut. It outlives a restart of the
daemon.

The namespace is named for the daemon, by a name, path or process that it sees
too; or its descriptor is passed: one that this command was started with
(--netns-fd), or one that it opens (--netns-file). A namespace that was passed
is held until its time is over or it is removed, also when nobody is in it.`,
		Example: `  ip netns add job1
  sallyport sandbox add --parent ci --only api.example.com --method GET --ttl 1h --netns job1
  sallyport sandbox add --parent ci --ttl 1h --netns-fd 3 3< /proc/4242/ns/net`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var err error
			if in.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			if in.Parent == "" {
				return usage("sandbox add: --parent is required")
			}
			if err := f.passed(&in, fd, file); err != nil {
				return err
			}
			var out apiSandbox
			if err := f.call(http.MethodPost, "/v1/sandboxes", in, &out); err != nil || f.json {
				return err
			}
			return put("%s\n", out.ID)
		}}
	fs := cmd.Flags()
	fs.StringVar(&in.Parent, "parent", "", "sandbox of the policy that is narrowed")
	fs.StringVar(&in.Name, "name", "", "name of the job in the records (default: the parent's)")
	fs.StringArrayVar(&in.Only, "only", nil, "host, or pattern of hosts, that is left (repeatable; default: all)")
	fs.StringArrayVar(&in.Methods, "method", nil, "HTTP method that is left (repeatable; default: all)")
	fs.StringVar(&in.TTL, "ttl", "", "how long it lives, as 30m, 12h or 7d (default: until it is removed)")
	fs.StringVar(&in.NetNS, "netns", "", "name below /run/netns, or path")
	fs.IntVar(&in.PID, "pid", 0, "process in the namespace")
	fs.IntVar(&fd, "netns-fd", -1, "descriptor of the namespace, which this command was started with")
	fs.StringVar(&file, "netns-file", "", "file of the namespace, opened by this command and not by the daemon")
	fs.StringArrayVar(&labels, "label", nil, "NAME=VALUE for the records (repeatable)")
	return cmd
}

// passed has the descriptor of a namespace go with the call, if the daemon is not
// told another way which it is.
func (f *controlFlags) passed(in *apiAttach, fd int, file string) (err error) {
	switch {
	case fd < 0 && file == "" && in.NetNS == "" && in.PID == 0:
		return usage("sandbox add: give one of --netns, --pid, --netns-fd and --netns-file")
	case fd < 0 && file == "":
		return nil
	case fd >= 0 && file != "":
		return usage("sandbox add: give one of --netns-fd and --netns-file")
	case file != "":
		if f.pass, err = os.Open(file); err != nil {
			return fmt.Errorf("--netns-file: %w", err)
		}
	default:
		if f.pass = os.NewFile(uintptr(fd), "netns-fd"); f.pass == nil {
			return usage("--netns-fd %d: no such descriptor", fd)
		}
		if _, err := f.pass.Stat(); err != nil {
			return usage("--netns-fd %d: this command was not started with it; in a shell: %d< /proc/PID/ns/net", fd, fd)
		}
	}
	in.NetNSFD = true
	return nil
}
