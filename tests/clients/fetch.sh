#!/bin/sh
# Puts the programs that the tests here run, which call bwrap, into a
# directory: the original in Python with its own tests, and srt. Their versions
# are in requirements.txt and package-lock.json; flatpak is the distribution's.
#
#   tests/clients/fetch.sh DIR
#
# Running it again on a finished DIR does nothing. Several runs at once are
# safe: one works, the others wait for it.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 DIR" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
dir=$(cd "$1" && pwd)

# The mark holds the lists, so a changed list is installed anew.
mark=$dir/.complete
complete() {
    cat "$here/requirements.txt" "$here/package-lock.json" "$here/fetch.sh" | cmp -s - "$mark"
}
complete && exit 0 # for users who cannot write here, too
exec 9>"$dir/.lock"
flock 9
complete && exit 0
rm -rf "$mark" "$dir/venv" "$dir/postern" "$dir/node_modules"

python3 -m venv "$dir/venv"
"$dir/venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: -r "$here/requirements.txt"

# The tests are only in the source distribution.
"$dir/venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
    --dest "$dir/sdist" "$(grep '^postern==' "$here/requirements.txt")"
mkdir "$dir/postern"
tar -xzf "$dir"/sdist/postern-*.tar.gz -C "$dir/postern" --strip-components 1 --no-same-owner
rm -rf "$dir/sdist"

cp "$here/package.json" "$here/package-lock.json" "$dir"
(cd "$dir" && PATH="$dir/venv/bin:$PATH" npm ci --silent --ignore-scripts --no-audit --no-fund)

chmod -R a+rX "$dir"
cat "$here/requirements.txt" "$here/package-lock.json" "$here/fetch.sh" >"$mark"
