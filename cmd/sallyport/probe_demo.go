package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
)

// probe is the tail of the tour: every way out is tried from inside a sandbox,
// and none leads to the origin.
func (t *tour) probe(ctx context.Context) error {
	t.origin.forget()
	args := []string{"probe", "--policy", t.path("policy.hcl"), "--state", t.path("state"), "--run-flag=--ca-file=" + t.path("origin-ca.pem")}
	for _, name := range demoHosts() {
		args = append(args, "--run-flag=--host="+name+"=127.0.0.1")
	}
	cmd := demoCommandOf(ctx, args)
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	err := cmd.Run()
	title := "At last: the sandbox is attacked from inside (sallyport probe)"
	if t.color {
		title = "\x1b[1m" + title + "\x1b[0m"
	}
	if printed := put("\n%s\n%s", title, indent(out.String())); printed != nil {
		return printed
	}
	switch got := t.origin.received(); {
	case err != nil:
		return errors.Join(err, errors.New(strings.TrimSpace(failed.String())))
	case len(got) > 0:
		return fmt.Errorf("the origin received %d requests", len(got))
	case strings.Contains(out.String(), demoSecret):
		return errors.New("the sandbox saw the key")
	}
	return nil
}
