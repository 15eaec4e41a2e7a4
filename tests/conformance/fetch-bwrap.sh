#!/bin/sh
# fetch-bwrap.sh [CACHE-DIR]: put the reference bwrap of the conformance suite into a cache.
#
# Debian's package of bubblewrap and the libraries it needs are downloaded from the mirror this
# machine already uses, checked by apt against the distribution's signing keys, unpacked below the cache
# directory and pointed at each other with patchelf. Nothing is installed. Running it again is free.
# The last line of output is the path of the binary. Needs: apt, dpkg, patchelf, and root for apt.
#
#   BWRAP_VERSION   the version wanted (default 0.13.1)
#   BWRAP_SUITES    the suites to look in (default: sid and testing, or devel on Ubuntu)
#   BWRAP_MIRROR    the archive to use instead of the one in the apt sources
set -eu

version=${BWRAP_VERSION:-0.13.1}
cache=${1:-${XDG_CACHE_HOME:+$XDG_CACHE_HOME/postern}}
# Not below root's home, where the suite's unprivileged user could not run it.
cache=${cache:-/var/cache/postern}
target=$cache/bwrap-$version
packages='bubblewrap libc6 libcap2 libselinux1 libpcre2-8-0'

die() {
	echo "fetch-bwrap: $*" >&2
	exit 1
}

works() {
	[ -x "$target/bwrap" ] && [ "$("$target/bwrap" --version 2>/dev/null)" = "bubblewrap $version" ]
}

if works; then
	echo "$target/bwrap"
	exit 0
fi

for tool in apt-get dpkg dpkg-deb patchelf; do
	command -v "$tool" >/dev/null || die "$tool is missing (on Debian and Ubuntu: apt-get install $tool)"
done
[ "$(id -u)" = 0 ] || die "apt-get downloads as root only; run me as root, then use the cache as anybody"

. /etc/os-release
case $ID in
ubuntu)
	suites=${BWRAP_SUITES:-devel}
	component='main universe'
	;;
*)
	suites=${BWRAP_SUITES:-sid testing}
	component=main
	;;
esac

# The first archive that the machine's own sources name, in either of apt's two formats. Security and
# ports archives do not carry the development suites, so they do not count.
configured_mirror() {
	{
		cat /etc/apt/sources.list.d/*.sources 2>/dev/null | sed -n 's/^URIs:[[:space:]]*//p'
		cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
			sed -n 's/^deb[[:space:]]\{1,\}\(\[[^]]*\][[:space:]]*\)\{0,1\}\([^[:space:]]*\).*/\2/p'
	} | tr ' ' '\n' | while read -r uri; do
		case $uri in
		mirror+file:*)
			sed -n 's/^\(https\{0,1\}:[^[:space:]]*\).*/\1/p' "${uri#mirror+file:}"
			;;
		http:* | https:*)
			echo "$uri"
			;;
		esac
	done | grep "/$ID/*\$" | head -n 1
}

mirror=${BWRAP_MIRROR:-$(configured_mirror)}
[ -n "$mirror" ] || die "no archive of $ID found in the apt sources; name one in BWRAP_MIRROR"

for keyring in /usr/share/keyrings/$ID-archive-keyring.gpg /usr/share/keyrings/$ID-archive-keyring.pgp /usr/share/keyrings/debian-archive-keyring.gpg; do
	[ -e "$keyring" ] && break
done
[ -e "$keyring" ] || die "no archive keyring found (apt-get install $ID-archive-keyring)"

mkdir -p "$cache"
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
# apt drops to a user of its own for downloads, which has to be able to come here.
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/debs" "$work/root" "$work/etc"
: >"$work/status"
for suite in $suites; do
	echo "deb [signed-by=$keyring] $mirror $suite $component"
done >"$work/etc/sources.list"

cat >"$work/etc/apt.conf" <<CONF
Dir::State "$work";
Dir::State::lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work";
Dir::Cache::archives "$work/archives";
Dir::Etc::sourcelist "$work/etc/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::preferences "/dev/null";
APT::Sandbox::User "root";
APT::Get::List-Cleanup "false";
Acquire::Languages "none";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
CONF
export APT_CONFIG="$work/etc/apt.conf"

apt-get -q update >&2 || die "cannot read the package lists of $mirror ($suites)"
full=$(apt-cache madison bubblewrap | awk -F'|' -v v="$version" '{gsub(/ /, "", $2)} index($2, v "-") == 1 {print $2; exit}')
[ -n "$full" ] || die "$mirror ($suites) has no bubblewrap $version but: $(apt-cache madison bubblewrap | awk '{print $3}' | tr '\n' ' ')"

for package in $packages; do
	[ "$package" = bubblewrap ] && package=bubblewrap=$full
	(cd "$work/debs" && apt-get -q download "$package" >&2) || die "cannot download $package from $mirror"
done
for deb in "$work"/debs/*.deb; do
	dpkg-deb -x "$deb" "$work/root"
done

# Everything is reached by absolute path, because the binary runs where nothing of this tree's
# surroundings is known: the libraries are loaded before bwrap changes its root.
triplet=$(dirname "$(cd "$work/root" && find usr/lib lib -name libcap.so.2 2>/dev/null | head -n 1)")
loader=$(cd "$work/root" && find usr/lib lib lib64 usr/lib64 -name 'ld-linux*.so.*' 2>/dev/null | head -n 1)
[ -n "$triplet" ] && [ -n "$loader" ] || die "the downloaded packages are not laid out as expected"
cp "$work/root/usr/bin/bwrap" "$work/root/bwrap"
patchelf --force-rpath --set-interpreter "$target/$loader" --set-rpath "$target/$triplet" "$work/root/bwrap"

rm -rf "$target"
mv "$work/root" "$target"
# Tests run it as other users too.
chmod -R a+rX "$target"
works || die "the unpacked $target/bwrap does not run as bubblewrap $version"
echo "$target/bwrap"
