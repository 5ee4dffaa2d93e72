package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport/audit"
)

func alertCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "alert", Short: "Alerts: what is firing, a test of where they go, mutes"}
	cmd.AddCommand(alertListCommand(), alertTestCommand(), alertDeliverCommand(), alertMuteCommand(), alertUnmuteCommand())
	return cmd
}

func alertListCommand() *cobra.Command {
	var f controlFlags
	cmd := &cobra.Command{Use: "ls", Short: "What is firing now, what is muted, and what waits for delivery", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var out apiAlerts
			if err := f.call(http.MethodGet, "/v1/alerts", nil, &out); err != nil || f.json {
				return err
			}
			return printAlerts(out)
		}}
	f.add(cmd)
	return cmd
}

func printAlerts(a apiAlerts) error {
	w := newTable()
	fmt.Fprintln(w, "ALERT\tSEVERITY\tCOUNT\tSINCE\tLAST\tMESSAGE")
	for _, x := range a.Active {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\n", x.Name, x.Severity, x.Count, clock(x.FirstSeen), clock(x.LastSeen), audit.Escape(x.Message, 120))
	}
	if len(a.Mutes) > 0 {
		fmt.Fprintln(w, "\nMUTE\tALERTS\tSANDBOXES\tHOSTS\tUNTIL\tWHY")
		for _, m := range a.Mutes {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", m.ID, globs(m.Alerts), globs(m.Sandboxes), globs(m.Hosts), clock(m.Until), audit.Escape(m.Why, 80))
		}
	}
	if len(a.Sinks) > 0 {
		fmt.Fprintln(w, "\nSINK\tWAITING\tSENT\tFAILED\tDROPPED\tLAST ERROR")
		for _, s := range a.Sinks {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\n", s.Name, s.Waiting, s.Sent, s.Failed, s.Dropped, audit.Escape(s.LastError, 200))
		}
	}
	return w.Flush()
}

func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

func globs(list []string) string {
	if len(list) == 0 {
		return "*"
	}
	return audit.Escape(strings.Join(list, ","), 80)
}

// testTime bounds one delivery of alert test.
const testTime = 30 * time.Second

func alertTestCommand() *cobra.Command {
	var f secretFlags
	cmd := &cobra.Command{Use: "test NAME", Short: "Send a test notice to every sink of an alert, or of a notify block",
		Long: `Send a notice that says that it is a test to every sink of an alert, or of a
notify block, and say of each whether it was accepted. It needs no daemon and
leaves no trace in the log.`,
		Example: `  sallyport alert test exfiltration --policy policy.d`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, _, err := (&f).load()
			if err != nil {
				return err
			}
			defer l.close()
			return testAlert(cmd.Context(), l.alerts, args[0])
		}}
	cmd.Flags().StringArrayVar(&f.policy, "policy", nil, "policy file or folder (repeatable; default: the configured policy.d)")
	varsVar(cmd.Flags(), &f.vars)
	return cmd
}

func testAlert(ctx context.Context, s alertSetup, name string) error {
	r, ok := s.rule(name)
	if !ok && len(s.sinks[name]) > 0 {
		r, ok = audit.AlertRule{Name: name, Severity: audit.Info, Notify: []string{name}}, true
	}
	if !ok {
		return &exit{code: exitFailed, err: fmt.Errorf("the policy has no alert and no notify block %q", name), hint: "it has: " + strings.Join(s.names(), ", ")}
	}
	now := time.Now()
	notice := audit.Alert{ID: audit.NewID(), Name: r.Name, State: audit.Firing, Severity: cmp.Or(r.Severity, audit.DefaultAlertSeverity), Count: 1, New: 1, FirstSeen: now, LastSeen: now,
		Message: "test of alert " + r.Name + ", sent by hand", Notify: r.Notify, Event: &audit.Event{Kind: audit.KindAlert, Phase: audit.PhaseEvent, Time: now, Message: "test"}}
	sent, failed := 0, 0
	for _, notify := range r.Notify {
		for _, n := range s.sinks[notify] {
			err := deliverOnce(ctx, n.sink, notice)
			if err != nil {
				failed++
				err = put("FAIL  %s: %v\n", n.name, err)
			} else {
				sent++
				err = put("ok    %s\n", n.name)
			}
			if err != nil {
				return err
			}
		}
	}
	switch {
	case failed > 0:
		return &exit{code: exitFailed, err: fmt.Errorf("%d of %s did not accept the notice", failed, several(sent+failed, "sink"))}
	case sent == 0:
		return &exit{code: exitFailed, err: fmt.Errorf("alert %q notifies nobody", name), hint: `add notify = ["ops"] and a block notify "ops"`}
	}
	return nil
}

func deliverOnce(ctx context.Context, sink audit.Sink, a audit.Alert) error {
	ctx, cancel := context.WithTimeout(ctx, testTime)
	defer cancel()
	return sink.Send(ctx, a)
}

// names are those that alert test takes.
func (s alertSetup) names() []string {
	var out []string
	for _, r := range s.rules {
		out = append(out, r.Name)
	}
	for n := range s.sinks {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func alertMuteCommand() *cobra.Command {
	var f controlFlags
	var m apiMute
	var long time.Duration
	cmd := &cobra.Command{Use: "mute NAME --for DURATION", Short: "Silence the notices of an alert for a while; what happens is recorded as ever",
		Example: `  sallyport alert mute scanning --for 2h --why "load test"
  sallyport alert mute 'builtin/*' --for 24h --sandbox ci`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if long <= 0 {
				return usage("alert mute: give --for, as 2h or 7d")
			}
			m.Alerts, m.Seconds = args, int64(long/time.Second)
			var out audit.Mute
			if err := f.call(http.MethodPost, "/v1/alerts/mutes", m, &out); err != nil || f.json {
				return err
			}
			return put("%s until %s\n", out.ID, clock(out.Until))
		}}
	f.add(cmd)
	spanVar(cmd.Flags(), &long, "for", "how long, as 2h or 7d")
	cmd.Flags().StringArrayVar(&m.Sandboxes, "sandbox", nil, "only of sandboxes that match this glob (repeatable)")
	cmd.Flags().StringArrayVar(&m.Hosts, "host", nil, "only of hosts that match this glob (repeatable)")
	cmd.Flags().StringVar(&m.Why, "why", "", "for those who ask")
	return cmd
}

func alertUnmuteCommand() *cobra.Command {
	var f controlFlags
	cmd := &cobra.Command{Use: "unmute ID", Short: "End a mute before its time; sallyport alert ls shows the IDs", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return f.call(http.MethodDelete, "/v1/alerts/mutes/"+url.PathEscape(args[0]), nil, nil)
		}}
	f.add(cmd)
	return cmd
}
