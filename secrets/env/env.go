// Package env takes a secret from an environment variable of the gateway.
package env

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"sallyport/secrets"
)

// Config says which variable.
type Config struct {
	Name string
}

type source struct{ name string }

// New makes a source of c. The variable is read at each fetch, not by New.
func New(c Config) (secrets.Source, error) {
	switch {
	case c.Name == "":
		return nil, errors.New("env: name is missing")
	case strings.ContainsAny(c.Name, "=\x00"):
		return nil, fmt.Errorf("env: %q is not the name of a variable", c.Name)
	}
	return source{c.Name}, nil
}

// Fetch reads the variable. A value is good for the process's life.
func (s source) Fetch(context.Context) (secrets.Fetched, error) {
	text, ok := os.LookupEnv(s.name)
	if !ok {
		return secrets.Fetched{}, fmt.Errorf("environment variable %s is not set", s.name)
	}
	v, err := secrets.NewValue([]byte(text))
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("environment variable %s: %w", s.name, err)
	}
	return secrets.Fetched{Value: v}, nil
}
