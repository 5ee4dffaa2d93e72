package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"sallyport/secrets"
)

// apiSecret is how a secret stands in the running daemon. It never holds a
// value.
type apiSecret struct {
	Name    string     `json:"name"`
	Source  string     `json:"source"`
	Fetched *time.Time `json:"fetched,omitempty"` // absent: never
	Expires *time.Time `json:"expires,omitempty"` // absent: not until its source says so
	Held    bool       `json:"held"`              // a value that may be used is there
	Stale   bool       `json:"stale,omitempty"`   // it has expired, and is used because its source is down
	Error   string     `json:"error,omitempty"`   // of the last fetch
}

// secrets answers GET /v1/secrets.
func (c *control) secrets(w http.ResponseWriter, _ *http.Request) {
	out := []apiSecret{}
	if snap := c.d.gateway.Snapshot(); snap != nil && snap.Secrets != nil {
		for _, s := range snap.Secrets.Status() {
			out = append(out, apiSecret{Name: s.Name, Source: s.Kind, Fetched: timeOrNil(s.Fetched), Expires: timeOrNil(s.Expires), Held: s.Held, Stale: s.Stale, Error: s.Error})
		}
	}
	respond(w, http.StatusOK, out)
}

// checkSecret answers POST /v1/secrets/{name}/check: it fetches the secret
// afresh from where the daemon is.
func (c *control) checkSecret(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	snap := c.d.gateway.Snapshot()
	if snap == nil || snap.Secrets == nil || snap.Policy.Secret(name) == nil {
		respond(w, http.StatusNotFound, apiError{Error: fmt.Sprintf("the policy in force has no secret %q", name)})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), checkTime)
	defer cancel()
	if err := snap.Secrets.Check(ctx, name); err != nil {
		respond(w, http.StatusBadGateway, apiError{Error: err.Error()})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// timeOrNil is t, or nil for none.
func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// secretLine is one line of secret ls.
type secretLine struct {
	Name        string     `json:"name"`
	Source      string     `json:"source"`
	Hosts       []string   `json:"hosts"`
	Placeholder string     `json:"placeholder"`
	Declared    string     `json:"declared"` // file:line
	Daemon      *apiSecret `json:"daemon,omitempty"`
}

// standing asks the running daemon how its secrets stand. Without a daemon
// there is nothing to tell, unless its socket was named.
func (f *secretFlags) standing() (map[string]*apiSecret, error) {
	var list []apiSecret
	c := controlFlags{socket: f.socket}
	if err := c.call(http.MethodGet, "/v1/secrets", nil, &list); err != nil {
		if f.socket != "" {
			return nil, err
		}
		return nil, nil
	}
	out := map[string]*apiSecret{}
	for i := range list {
		out[list[i].Name] = &list[i]
	}
	return out, nil
}

// fetch fetches a secret from the place of this process or, where the socket
// of a daemon was named, from the daemon's.
func (f *secretFlags) fetch(s *secrets.Store, name string) error {
	if f.socket != "" {
		c := controlFlags{socket: f.socket}
		return c.call(http.MethodPost, "/v1/secrets/"+url.PathEscape(name)+"/check", nil, nil)
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	return s.Check(ctx, name)
}

// list prints the secrets of the policy and, where a daemon runs, how old
// its values are and what went wrong last.
func (f *secretFlags) list() error {
	l, snap, err := f.load()
	if err != nil {
		return err
	}
	defer l.close()
	standing, err := f.standing()
	if err != nil {
		return err
	}
	w := newTable()
	row := func(cells ...string) {
		if standing == nil {
			cells = cells[:5]
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	if !f.json {
		row("NAME", "SOURCE", "HOSTS", "PLACEHOLDER", "DECLARED", "AGE", "EXPIRES", "LAST ERROR")
	}
	for _, s := range snap.Policy.Secrets() {
		line := secretLine{s.Name, s.Source.Kind, s.Hosts, s.Placeholder, s.Pos.String(), standing[s.Name]}
		if line.Placeholder == "" {
			line.Placeholder = "$" + s.Name
		}
		if f.json {
			if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
				return err
			}
			continue
		}
		age, expires, failure := line.Daemon.cells(time.Now())
		row(line.Name, line.Source, strings.Join(line.Hosts, ","), line.Placeholder, line.Declared, age, expires, failure)
	}
	return w.Flush()
}

// cells are what a line says of a secret in the daemon.
func (s *apiSecret) cells(now time.Time) (age, expires, failure string) {
	if s == nil {
		return "-", "-", "not in the daemon's policy"
	}
	age, expires, failure = "never fetched", "-", s.Error
	if s.Fetched != nil {
		age = now.Sub(*s.Fetched).Round(time.Second).String()
	}
	switch {
	case s.Stale:
		expires = "expired, still used"
	case s.Expires != nil && s.Expires.Before(now):
		expires = "expired"
	case s.Expires != nil:
		expires = "in " + s.Expires.Sub(now).Round(time.Second).String()
	}
	if failure == "" {
		failure = "-"
	}
	return age, expires, failure
}
