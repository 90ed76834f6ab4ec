#!/bin/bash
# rubies-pair.sh [FOLDER]: two builds of libruby 3.3 with symbols and debug information that differ in one line, and a Ruby
# to run them with. FOLDER is .rubies of the project.
#
#   .rubies/libruby-a   Debian's source package as it is
#   .rubies/libruby-b   the same with a store left out that changes nothing, as Ruby 3.4 has it; the change is in iseq.c.patch
#   .rubies/ruby-pair   the tree of a Ruby that finds its libruby by LD_LIBRARY_PATH; without it, it runs Debian's own
#
#   LD_LIBRARY_PATH=.rubies/libruby-a .rubies/ruby-pair/bin/ruby
#   LD_LIBRARY_PATH=/libruby-a chroot .rubies/ruby-pair ruby3.3
#
# libruby-a is configured and compiled by Debian's own rules and not stripped: with the compiler that Debian's package was
# built with, it is that package's library to the byte, build ID included, plus the symbols. The run says whether it is.
#
# The Ruby is that of .rubies/3.3 (made when it is not there), its files hard links of that tree's. What is there and runs is
# left as it is. The tree with the compiler is kept when a run is interrupted, and used by the next; the compilation starts
# again. Needs root and a mirror with the source package; takes about two minutes on two cores after `make rubies`,
# 1.3 GiB while it builds and 60 MiB after.
set -euo pipefail

rubies=${1:+$(realpath -m "$1")}
cd "$(dirname "$0")/.."
rubies=${rubies:-$PWD/.rubies}

base=$rubies/3.3
pair=$rubies/ruby-pair
part=$rubies/.ruby-pair.partial
build=$rubies/.ruby-pair.build # base, and what building needs
log=$rubies/.ruby-pair.log

fail() {
	echo "rubies-pair: $*" >&2
	exit 1
}

# failed WHAT: after a step whose words went to the log.
failed() {
	tail -n 5 "$log" >&2 || true
	fail "$1. All that was said: $log"
}

# in_tree TREE COMMAND...: a command in a tree, with nothing of this environment but the way to the network.
in_tree() {
	local tree=$1
	shift
	chroot "$tree" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
		${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} ${no_proxy:+no_proxy="$no_proxy"} "$@"
}

# runs TREE: in a tree, each of the two libraries is found by LD_LIBRARY_PATH, and the Ruby runs with it. What the loader
# finds is asked for alone: a library that is not found gives way to Debian's without a word.
runs() {
	local lib found
	for lib in /libruby-a /libruby-b; do
		found=$(in_tree "$1" env LD_LIBRARY_PATH=$lib LD_TRACE_LOADED_OBJECTS=1 /usr/bin/ruby3.3 2>/dev/null) || return 1
		[[ $found == *" => $lib/libruby-3.3.so.3.3 "* ]] || return 1
		[ "$(in_tree "$1" env LD_LIBRARY_PATH=$lib /usr/bin/ruby3.3 -e 'print RUBY_VERSION[/\d+\.\d+/]' 2>/dev/null)" = 3.3 ] || return 1
	done
}

# finished: the tree is whole, and the links to its libraries are there.
finished() {
	[ -x "$pair/usr/bin/ruby" ] && runs "$pair" || return 1
	[ "$rubies/libruby-a" -ef "$pair/libruby-a" ] || ln -sfnT ruby-pair/libruby-a "$rubies/libruby-a"
	[ "$rubies/libruby-b" -ef "$pair/libruby-b" ] || ln -sfnT ruby-pair/libruby-b "$rubies/libruby-b"
}

there() {
	echo "rubies-pair: $rubies/libruby-a, libruby-b and ruby-pair are there: $(in_tree "$pair" ruby3.3 -v)"
}

# compiler makes the tree to build in: base, and what the source package says that it needs.
compiler() {
	[ ! -e "$build" ] || return 0
	rm -rf --one-file-system "$build.partial"
	cp -a "$base" "$build.partial"
	cp -L /etc/resolv.conf /etc/hosts "$build.partial/etc/" 2>/dev/null || true
	apt-config dump --no-empty Acquire >"$build.partial/etc/apt/apt.conf.d/00here"
	sed -n 's/^deb /deb-src /p' "$base/etc/apt/sources.list" >"$build.partial/etc/apt/sources.list.d/source.list"
	[ -s "$build.partial/etc/apt/sources.list.d/source.list" ] || fail "$base/etc/apt/sources.list names no mirror: remove $base and run again"
	{
		in_tree "$build.partial" apt-get update -q -o APT::Update::Error-Mode=any &&
			in_tree "$build.partial" apt-get build-dep -q -y --no-install-recommends "ruby3.3=$version"
	} >>"$log" 2>&1 </dev/null || failed "what building ruby3.3 $version needs could not be installed: is the mirror of $base within reach, and has it this version still? (if not, remove $base and run again)"
	in_tree "$build.partial" apt-get clean
	mv "$build.partial" "$build"
}

# sources unpacks the source package, and prints nothing. Whatever a run before has left of it is removed: make would take
# an object file that was half written for a whole one.
sources() {
	rm -rf --one-file-system "$build/build"
	mkdir "$build/build"
	in_tree "$build" sh -c 'cd /build && apt-get source -q -o APT::Sandbox::User=root "ruby3.3=$1" && mv ruby3.3-*/ ruby' sh "$version" >>"$log" 2>&1 </dev/null ||
		failed "the source of ruby3.3 $version could not be fetched"
}

# library SIDE: compiles libruby and puts it into the pair's tree, with its symbol table and debug information. What was
# compiled before and has not changed is used.
library() {
	in_tree "$build" make -C /build/ruby -j"$(nproc)" V=1 "$so" >>"$log" 2>&1 </dev/null || failed "libruby-$1 could not be built"
	local sections
	sections=$(in_tree "$build" readelf -SW "/build/ruby/$so")
	[[ $sections == *" .symtab "* && $sections == *" .debug_info "* ]] || fail "libruby-$1 was built without .symtab or without .debug_info"
	mkdir "$part/libruby-$1"
	cp "$build/build/ruby/$so" "$part/libruby-$1/"
	ln -s "$so" "$part/libruby-$1/libruby-3.3.so.3.3"
	ids+=("$(build_id "/build/ruby/$so")")
}

# fix makes the change of ruby/ruby commit 9d6b8806 (in 3.4, not in 3.3): a call cache that is the empty one already is
# not stored again. It is written here as one condition on the same line, equal in what it does, so that the lines of the
# two builds have the same numbers. Fails unless exactly one line changes.
fix() {
	cp "$build/build/ruby/iseq.c" "$build/build/iseq.c.orig"
	sed -i 's/^\( *\)\(cds\[i\]\.cc\) = \(rb_vm_empty_cc()\);$/\1if (\2 != \3) \2 = \3;/' "$build/build/ruby/iseq.c"
	{
		echo "The change of ruby/ruby commit 9d6b8806, written as one condition on the same line."
		diff -u --label a/iseq.c --label b/iseq.c "$build/build/iseq.c.orig" "$build/build/ruby/iseq.c" || true
	} >"$build/build/iseq.c.patch"
	[ "$(grep -c '^+ ' "$build/build/iseq.c.patch")" = 1 ] || fail "iseq.c of ruby3.3 $version does not have the store that libruby-b is to leave out, once: look at rb_iseq_mark_and_move"
}

# build_id FILE, a path in the tree to build in.
build_id() {
	in_tree "$build" readelf -n "$1" | sed -n 's/.*Build ID: //p'
}

# command writes the pair's ruby, which runs the tree's Ruby from outside and from inside of it. It is also the way in for
# an LD_LIBRARY_PATH that names the folders as they are called outside.
command_of_pair() {
	rm -f "$part/usr/bin/ruby"
	cat >"$part/usr/bin/ruby" <<'END'
#!/bin/sh
# Ruby 3.3 of the tree that this file lies in, started from outside (as root) or inside of it. Of LD_LIBRARY_PATH, folders
# of the tree may be named as they are called outside.
self=$(readlink -f "$0")
tree=${self%/usr/bin/ruby}
[ -n "$tree" ] || exec /usr/bin/ruby3.3 "$@"
if [ -n "${LD_LIBRARY_PATH:-}" ]; then
	inside= rest=$LD_LIBRARY_PATH:
	while [ -n "$rest" ]; do
		dir=${rest%%:*} rest=${rest#*:}
		real=$(readlink -e "$dir") || real=$dir
		case $real in
		"$tree"/*) dir=${real#"$tree"} ;;
		esac
		inside=$inside${inside:+:}$dir
	done
	export LD_LIBRARY_PATH="$inside"
fi
PATH=$PATH:/usr/sbin:/sbin exec chroot "$tree" /usr/bin/ruby3.3 "$@"
END
	chmod 755 "$part/usr/bin/ruby"
}

mkdir -p "$rubies"
if finished 2>/dev/null; then
	there
	exit 0
fi
[ "$(id -u)" = 0 ] || fail "building $pair needs root, for chroot: sudo make rubies-pair"
command -v apt-config >/dev/null || fail "there is no apt, from which the way to the mirror is known: this needs Debian"
[ "$(chroot "$base" ruby3.3 -e 'print RUBY_VERSION[/\d+\.\d+/]' 2>/dev/null)" = 3.3 ] || scripts/rubies.sh "$rubies"
exec 9>"$rubies/.lock" # as scripts/rubies.sh has it; the descriptor is inherited, also by a compiler whose script was killed
flock --nonblock 9 || {
	echo "rubies-pair: waiting for another run to end"
	flock 9
}
if finished 2>/dev/null; then
	there
	exit 0
fi

start=$SECONDS
version=$(in_tree "$base" dpkg-query -W -f '${source:Version}' libruby3.3)
so=$(basename "$(realpath "$base"/usr/lib/*/libruby-3.3.so.3.3)")
ids=() # of the two libraries
echo "rubies-pair: building libruby of ruby3.3 $version twice, which takes about two minutes (log: $log)"
: >"$log"
rm -rf --one-file-system "$part"
compiler
sources
cp -al "$base" "$part"
in_tree "$build" make -C /build/ruby -f debian/rules override_dh_auto_configure >>"$log" 2>&1 </dev/null || failed "ruby3.3 $version could not be configured"
library a
fix
library b
cp "$build/build/iseq.c.patch" "$part/libruby-b/"
command_of_pair
runs "$part" || fail "Ruby does not run with the libraries of $part"
debians=$(realpath "$base"/usr/lib/*/"$so")
if [ "${ids[0]}" = "$(build_id "${debians#"$base"}")" ]; then
	same="Debian's own library with symbols (one build ID)"
else
	same="not Debian's own library to the byte: the compiler is another"
fi
[ ! -e "$pair" ] || rm -rf --one-file-system "$pair" # not whole, or does not run
[ "${ids[0]}" != "${ids[1]}" ] || fail "the two libraries are one: the change to iseq.c had no effect"
mv "$part" "$pair"
finished || fail "$pair does not run"
rm -rf --one-file-system "$build"
rm -f "$log"
echo "rubies-pair: $pair: $(in_tree "$pair" ruby3.3 -v), $((SECONDS - start)) s; libruby-a is $same"
