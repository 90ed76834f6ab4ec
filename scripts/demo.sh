#!/bin/bash
# demo.sh COWAUDIT: runs the demo. Where no Ruby is found it installs Debian's first, if this is Debian (or its like), it is
# run by root, and a mirror is within reach. Without a Ruby the demo shows its built-in server alone.
set -euo pipefail

install_ruby() {
	command -v apt-get >/dev/null || { echo "demo: no Ruby here, and no apt-get to install one with" >&2; return; }
	[ "$(id -u)" = 0 ] || { echo "demo: no Ruby here; as root this would install Debian's (sudo make demo)" >&2; return; }
	echo "demo: no Ruby here: installing Debian's with apt-get" >&2
	export DEBIAN_FRONTEND=noninteractive
	log=$(mktemp)
	if apt-get install -y -q --no-install-recommends ruby >"$log" 2>&1 ||
		{ apt-get update -q && apt-get install -y -q --no-install-recommends ruby; } >"$log" 2>&1; then
		echo "demo: installed $(ruby -v)" >&2
	else
		tail -n 3 "$log" >&2
		echo "demo: apt-get could not install ruby: going on without" >&2
	fi
	rm -f "$log"
}

command -v ruby >/dev/null || install_ruby
exec "$1" demo
