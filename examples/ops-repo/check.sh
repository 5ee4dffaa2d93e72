#!/bin/sh
# check.sh [BASE]: everything that a change of policy must pass. With the
# commit that it is based on it also says what every sandbox gains and loses,
# and fails with 3 when something widens, unless ALLOW_WIDENING=1 says that
# somebody has agreed to it.
set -eu
cd "$(dirname "$0")"

sallyport policy fmt --check --diff policy.d
sallyport policy validate --strict policy.d
sallyport policy test --cover --junit "${JUNIT:-/dev/null}" policy.d

[ $# -eq 1 ] || exit 0
base=$(mktemp -d)
trap 'rm -rf "$base"' EXIT
git archive "$1" policy.d | tar -x -C "$base"
code=0
sallyport policy plan --against "$base/policy.d" policy.d || code=$?
case $code in
0 | 2) ;; # no change, or none that widens; an error is 1, also one of usage
3) [ "${ALLOW_WIDENING:-}" = 1 ] || exit 3 ;;
*) exit "$code" ;;
esac
