package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"sallyport/audit"
	"sallyport/audit/otlp"
	"sallyport/gateway/upstream"
)

// shipBlock is a receiver of every record of the log.
type shipBlock struct {
	Kind        string            `hcl:"kind,label"`
	URL         string            `hcl:"url"`
	Headers     map[string]string `hcl:"headers,optional"`
	HeaderFiles map[string]string `hcl:"header_files,optional"` // headers that are secret, read at the start
	Resource    map[string]string `hcl:"resource,optional"`
	CAFile      string            `hcl:"ca_file,optional"`
	Range       hcl.Range         `hcl:",def_range"`
}

// at says where in the daemon file an error is.
func (b shipBlock) at(err error) error {
	return fmt.Errorf("%s:%d: ship %q: %w", b.Range.Filename, b.Range.Start.Line, b.Kind, err)
}

// shipSettings is a receiver and the name under which the place in the log is
// remembered.
type shipSettings struct {
	name    string
	carrier audit.Carrier
}

// carrierKinds are the kinds of receiver, by the label of the block.
func carrierKinds() map[string]func(shipBlock) (audit.Carrier, error) {
	return map[string]func(shipBlock) (audit.Carrier, error){"otlp": openOTLPCarrier}
}

func (d *daemonFile) ships(s *settings) error {
	taken := map[string]bool{}
	for _, b := range d.Ships {
		open := carrierKinds()[b.Kind]
		if open == nil {
			return b.at(errors.New("the kind of receiver is otlp"))
		}
		c, err := open(b)
		if err != nil {
			return b.at(err)
		}
		name := b.Kind + " " + b.URL
		if taken[name] {
			return b.at(fmt.Errorf("%s: two blocks for one receiver", b.URL))
		}
		taken[name] = true
		s.ships = append(s.ships, shipSettings{name, c})
	}
	return nil
}

func openOTLPCarrier(b shipBlock) (audit.Carrier, error) {
	if _, err := sinkURL(b.URL, "http", "https"); err != nil {
		return nil, err
	}
	headers := map[string]audit.Text{}
	for k, v := range b.Headers {
		headers[k] = audit.Fixed(v)
	}
	if len(b.HeaderFiles) > 0 && !strings.HasPrefix(b.URL, "https:") {
		return nil, errors.New("header_files: a header that is secret needs an HTTPS URL")
	}
	for k, file := range b.HeaderFiles {
		v, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("header_files: %w", err)
		}
		headers[k] = audit.Fixed(strings.TrimSpace(string(v)))
	}
	c := otlp.Config{URL: audit.Fixed(b.URL), Headers: headers, Resource: maps.Clone(b.Resource)}
	if b.CAFile != "" {
		pem, err := os.ReadFile(b.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		roots, err := upstream.Roots(pem)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		c.Transport = audit.NewTransport(roots)
	}
	return otlp.New(c)
}

// startShipping begins to carry the log to its receivers.
func (st *stack) startShipping() error {
	for _, x := range st.ships {
		s, err := audit.NewShipper(audit.ShipperOptions{Name: x.name, Dir: filepath.Join(st.own, "audit"), Carrier: x.carrier, State: st.state, Log: st.log,
			Logger: st.settings.log.Named("ship"), Count: func(result string, n int) { st.metrics.shipped.WithLabelValues(result).Add(float64(n)) }})
		if err != nil {
			return err
		}
		stop := background(st.settings.log, "shipping to "+x.name, s.Run)
		st.later(func() error { stop(); return nil })
	}
	return nil
}
