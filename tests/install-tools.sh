#!/bin/sh
# Installs what the tests need on Debian or Ubuntu, as root. Running it again is
# cheap. Nothing of it is needed to use postern.
set -eu
cd "$(dirname "$0")/.."

# What several users' tests share is kept where all of them can read it.
cache=${POSTERN_TEST_CACHE:-/var/cache/postern}

export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends \
	bubblewrap patchelf \
	qemu-user-static gcc libc6-dev libseccomp-dev binutils \
	python3 python3-venv git socat iproute2 procps util-linux uidmap strace \
	bash less vim-tiny nodejs default-jdk-headless \
	flatpak dbus busybox-static ripgrep python3-grpcio

sh tests/conformance/fetch-bwrap.sh "$cache"
# The interpreter of the system, not one below somebody's home: guests have it.
PATH=/usr/bin:$PATH sh tests/venv.sh "$cache/venv"
PATH=/usr/bin:$PATH sh tests/clients/fetch.sh "$cache/clients"
chmod -R a+rX "$cache"
