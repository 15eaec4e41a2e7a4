#!/bin/sh
# Installs what the tests need, checks the sources, and runs every test: as root,
# and what concerns isolation also as an unprivileged user. Run it as root.
set -eu
cd "$(dirname "$0")/.."
cache=${POSTERN_TEST_CACHE:-/var/cache/postern}

if [ "$(id -u)" != 0 ]; then
	echo "tests/all.sh: run me as root; I start unprivileged users myself" >&2
	exit 1
fi
sh tests/install-tools.sh

export POSTERN_TEST_VENV="$cache/venv" POSTERN_BWRAP_NEW="$cache/bwrap-0.13.1/bwrap"
export CGO_ENABLED=1 # for the tests with -race; the programs themselves use none

unformatted=$(gofmt -l .)
if [ -n "$unformatted" ]; then
	echo "gofmt would change:" "$unformatted" >&2
	exit 1
fi
go vet ./...
for platform in darwin/arm64 windows/amd64 linux/arm64; do
	GOOS=${platform%/*} GOARCH=${platform#*/} CGO_ENABLED=0 go vet ./...
done
GOARCH=386 CGO_ENABLED=0 go build ./...
go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

(cd checkpoint/blobstore && go vet ./... && go test -count=1 ./...)
exec go test -count=1 ./...
