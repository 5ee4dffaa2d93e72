//go:build linux

// Package soak_test runs a gateway under mixed traffic for a long time: web
// requests, streams, uploads, refused attempts, questions and packets, while
// the policy is reloaded, the secret is rotated, sandboxes come and go, and
// upstreams misbehave by plan.
//
// It lasts three minutes, or what -soak says: `go test ./test/soak -soak 30m
// -timeout 40m -v`.
package soak_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"sallyport/test/lab"
)

// world is what the tests share. TestMain sets it.
var world struct {
	lab  *lab.Lab
	time time.Duration
}

func TestMain(m *testing.M) {
	flag.DurationVar(&world.time, "soak", 3*time.Minute, "how long the traffic lasts")
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	l, err := lab.Open()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 1
	}
	world.lab = l
	code := m.Run()
	if err := l.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		code = 1
	}
	return code
}
