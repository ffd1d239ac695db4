#!/usr/bin/env bash
# A whole RL post-training run on this machine: installs what is missing, builds, trains with four sharded ranks and an
# inference engine, and leaves the report in runs/quickstart/report.html; earlier ones are kept as runs/quickstart.1, .2, ….
#   scripts/quickstart.sh [--set KEY=VALUE]…        e.g. --set seed=3
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
-h | --help)
    sed -n '2,4s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
step() { printf '== %s (%s s)\n' "$1" "$SECONDS"; }

step "packages"
scripts/install.sh
step "build"
[ -f build/release/build.ninja ] || cmake --preset release >/dev/null
cmake --build --preset release
step "run"
exec build/release/bin/tandem-train examples/quickstart/quickstart.toml --set run.if_exists=keep "$@"
