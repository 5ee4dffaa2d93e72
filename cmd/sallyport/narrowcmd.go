package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
)

// narrowCommand attaches a namespace as a sandbox that is narrowed for one job.
func narrowCommand(f *controlFlags) *cobra.Command {
	var in apiAttach
	var labels []string
	cmd := &cobra.Command{Use: "add --parent NAME [--only HOST]... [--method METHOD]... [--ttl TIME] --netns NAME|PATH | --pid PID",
		Short: "Narrow a sandbox of the policy for one job, and attach its namespace",
		Long: `Attach a network namespace as a sandbox that may use a part of what its parent
may: fewer hosts, fewer methods, for a shorter time. A request is let through if
the parent's rules allow it and the narrowing does.

What names anything that the parent does not allow is refused whole, with the
parent's nearest rule. Each method must be allowed on each host. When its time
is over the sandbox ends and what is open is cut. It outlives a restart of the
daemon.`,
		Example: `  ip netns add job1
  sallyport sandbox add --parent ci --only api.example.com --method GET --ttl 1h --netns job1`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var err error
			if in.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			if in.Parent == "" {
				return usage("sandbox add: --parent is required")
			}
			var out apiSandbox
			if err := f.call(http.MethodPost, "/v1/sandboxes", in, &out); err != nil || f.json {
				return err
			}
			fmt.Println(out.ID)
			return nil
		}}
	fs := cmd.Flags()
	fs.StringVar(&in.Parent, "parent", "", "sandbox of the policy that is narrowed")
	fs.StringVar(&in.Name, "name", "", "name of the job in the records (default: the parent's)")
	fs.StringArrayVar(&in.Only, "only", nil, "host, or pattern of hosts, that is left (repeatable; default: all)")
	fs.StringArrayVar(&in.Methods, "method", nil, "HTTP method that is left (repeatable; default: all)")
	fs.StringVar(&in.TTL, "ttl", "", "how long it lives, as 30m, 12h or 7d (default: until it is removed)")
	fs.StringVar(&in.NetNS, "netns", "", "name below /run/netns, or path")
	fs.IntVar(&in.PID, "pid", 0, "process in the namespace")
	fs.StringArrayVar(&labels, "label", nil, "NAME=VALUE for the records (repeatable)")
	return cmd
}
