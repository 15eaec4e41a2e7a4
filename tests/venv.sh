#!/bin/sh
# Makes a Python virtual environment with what the tests and the examples run
# as a guest: grpcio and its stub generator, protobuf, pandas.
#
#   tests/venv.sh DIR
#
# Running it again on a finished DIR does nothing. Several runs at once are
# safe: one builds, the others wait for it.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 DIR" >&2
    exit 2
fi
dir=$1
packages='grpcio grpcio-tools protobuf pandas'

mkdir -p "$dir"
exec 9>"$dir/.lock"
flock 9

# The mark names the package list, so a changed list is installed again.
mark=$dir/.complete
if [ "$(cat "$mark" 2>/dev/null || true)" = "$packages" ]; then
    exit 0
fi
python3 -m venv "$dir"
# shellcheck disable=SC2086 # a list of words
"$dir/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: $packages
printf '%s\n' "$packages" >"$mark"
