#!/bin/bash
# install.sh NAME PROGRAM...: installs Debian's packages of the same names for programs that are not here, as root on Debian or
# its like. NAME is for whom, in what is said. Fails, with the remedy, where it cannot.
set -euo pipefail

name=$1
shift
missing=()
for program in "$@"; do
	command -v "$program" >/dev/null || missing+=("$program")
done
[ ${#missing[@]} = 0 ] && exit 0
command -v apt-get >/dev/null || { echo "$name: no ${missing[*]} here, and no apt-get to install with" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "$name: no ${missing[*]} here; as root this would install Debian's (sudo make $name)" >&2; exit 1; }
echo "$name: no ${missing[*]} here: installing Debian's with apt-get" >&2
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if apt-get install -y -q --no-install-recommends "${missing[@]}" >"$log" 2>&1 ||
	{ apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
	echo "$name: installed ${missing[*]}" >&2
else
	tail -n 3 "$log" >&2
	echo "$name: apt-get could not install ${missing[*]}" >&2
	exit 1
fi
