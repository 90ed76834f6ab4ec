#!/bin/bash
# rubies.sh [FOLDER]: Debian's Rubies as trees, for tests that compare real versions. FOLDER is .rubies of the project.
#
#   .rubies/3.3   trixie's ruby3.3           chroot .rubies/3.3 ruby3.3
#   .rubies/3.4   experimental's ruby3.4     chroot .rubies/3.4 ruby3.4
#
# A tree whose Ruby runs is left as it is. A tree is built under another name and renamed when it is whole, so a run that
# was interrupted is repeated by running again. The mirror, and what is needed to reach it, are those of this machine's apt.
# Needs root and debootstrap; takes about a minute and 600 MiB.
set -euo pipefail

rubies=${1:+$(realpath -m "$1")}
cd "$(dirname "$0")/.."
rubies=${rubies:-.rubies}

fail() {
	echo "rubies: $*" >&2
	exit 1
}

# runs TREE RUBY VERSION: the Ruby of a tree is there, runs and is of that version.
runs() {
	[ -d "$1" ] && [ "$(chroot "$1" "$2" -e 'print RUBY_VERSION[/\d+\.\d+/]' 2>/dev/null)" = "$3" ]
}

# mirror: where this machine's apt gets Debian itself from. Asks apt, which reads sources.list, *.list and *.sources.
mirror() {
	local codename
	codename=$(. /etc/os-release && [ "${ID:-}" = debian ] && echo "${VERSION_CODENAME:-sid}") || return 0
	apt-get --print-uris update 2>/dev/null | sed -n "s|^'\(.*\)/dists/$codename/InRelease'.*|\1|p" | head -n 1
}

# in_tree COMMAND...: apt-get and dpkg in the tree that is being built.
in_tree() {
	chroot "$part" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"
}

# apt_as_here gives the tree this machine's way to the mirror: its resolver, its proxy, its certificates and keys.
apt_as_here() {
	cp -L /etc/resolv.conf "$part/etc/resolv.conf" 2>/dev/null || true
	cp -L /etc/hosts "$part/etc/hosts" 2>/dev/null || true
	apt-config dump --no-empty Acquire >"$part/etc/apt/apt.conf.d/00here"
	echo "deb $mirror $1 main" >"$part/etc/apt/sources.list.d/$1.list"
}

as_left() {
	rm -f "$part/etc/apt/apt.conf.d/00here" "$part/etc/resolv.conf" "$part/etc/hosts"
	rm -rf "$part"/var/lib/apt/lists/* "$part"/var/cache/apt/*.bin "$part"/var/cache/apt/archives/*.deb
	rm -rf "$part"/usr/share/{doc,man,locale,info} "$part"/var/log/*
}

# build VERSION SUITE [SUITE_ON_TOP]
build() {
	local version=$1 suite=$2 top=${3:-} ruby=ruby$1 tree=$rubies/$1 start=$SECONDS
	part=$rubies/.$version.partial
	local log=$part.log
	if runs "$tree" "$ruby" "$version"; then
		echo "rubies: $tree is there: $(chroot "$tree" "$ruby" -v)"
		return
	fi
	echo "rubies: building $tree from $suite${top:+ and $top}, which takes about half a minute"
	rm -rf --one-file-system "$part"
	local packages=(--variant=minbase)
	[ -n "$top" ] || packages+=(--include="$ruby")
	if ! debootstrap "${packages[@]}" "$suite" "$part" "$mirror" >"$log" 2>&1; then
		tail -n 3 "$log" "$part/debootstrap/debootstrap.log" >&2 2>/dev/null || true
		fail "debootstrap of $suite from $mirror ended with an error: is the mirror within reach? All it said: $log"
	fi
	if [ -n "$top" ]; then
		apt_as_here "$top"
		if ! { in_tree apt-get update -q && in_tree apt-get install -q -y --no-install-recommends -t "$top" "$ruby"; } >>"$log" 2>&1; then
			tail -n 3 "$log" >&2
			fail "$ruby could not be installed from $top on $mirror. All that was said: $log"
		fi
	fi
	as_left
	runs "$part" "$ruby" "$version" || fail "$ruby in $part does not run, or is not $version"
	[ ! -e "$tree" ] || rm -rf --one-file-system "$tree" # its Ruby does not run
	mv "$part" "$tree"
	rm -f "$log"
	echo "rubies: $tree: $(chroot "$tree" "$ruby" -v), $((SECONDS - start)) s"
}

mkdir -p "$rubies"
if runs "$rubies/3.3" ruby3.3 3.3 && runs "$rubies/3.4" ruby3.4 3.4; then
	for v in 3.3 3.4; do echo "rubies: $rubies/$v is there: $(chroot "$rubies/$v" "ruby$v" -v)"; done
	exit 0
fi
[ "$(id -u)" = 0 ] || fail "building $rubies needs root, for debootstrap and chroot: sudo make rubies"
command -v debootstrap >/dev/null || fail "there is no debootstrap: apt-get install debootstrap"
command -v apt-get >/dev/null || fail "there is no apt-get, from which the mirror is known: this needs Debian"
# Mounts that debootstrap makes, and does not undo when it is interrupted, end with this process.
if [ -z "${RUBIES_UNSHARED:-}" ] && unshare --mount true 2>/dev/null; then
	exec env RUBIES_UNSHARED=1 unshare --mount "$BASH" "scripts/rubies.sh" "$rubies"
fi
exec 9>"$rubies/.lock"
flock --nonblock 9 || { # the descriptor is inherited: also by a debootstrap whose script was killed
	echo "rubies: waiting for another run to end"
	flock 9
}
mirror=$(mirror)
[ -n "$mirror" ] || fail "apt on this machine has no source for Debian itself: look at /etc/apt/sources.list"
build 3.3 trixie
build 3.4 sid experimental
