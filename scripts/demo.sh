#!/bin/bash
# demo.sh COWAUDIT: runs the demo. Where no Ruby is found it installs Debian's first, if this is Debian (or its like), it is
# run by root, and a mirror is within reach. Without a Ruby the demo shows its built-in server alone.
set -euo pipefail

"$(dirname "$0")/install.sh" demo ruby || echo "demo: going on without" >&2
exec "$1" demo
