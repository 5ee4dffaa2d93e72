#!/bin/sh
# Runs every fuzz target for FUZZTIME, one after the other.
set -eu
GO=${GO:-go}
for package in $($GO list ./...); do
	dir=$($GO list -f '{{.Dir}}' "$package")
	for target in $(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go 2>/dev/null | sed 's/^func //'); do
		echo "== $package $target"
		$GO test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-30s}" -fuzzminimizetime 10x "$package"
	done
done
