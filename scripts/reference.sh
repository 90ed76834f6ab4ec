#!/bin/bash
# reference.sh: compares Debian's Rubies in every scenario, prints the table and writes it to docs/reference.md. The first is the
# Ruby in PATH, the others the trees of rubies.sh. Installs ruby and debootstrap where they are missing. Needs bin/cowaudit, Go
# and root; takes a quarter of an hour.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install.sh reference ruby debootstrap
scripts/rubies.sh
new=$(mktemp docs/.reference.XXXXXX)
trap 'rm -f "$new"' EXIT
${GO:-go} run ./bench/reference "$(ruby -e 'print RUBY_VERSION[/\d+\.\d+/]')=ruby" '3.3=chroot .rubies/3.3 ruby3.3' '3.4=chroot .rubies/3.4 ruby3.4' | tee "$new"
chmod 644 "$new"
mv "$new" docs/reference.md
