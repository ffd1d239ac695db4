#!/usr/bin/env bash
# Checks the specification of a push (tests/protocol/push.pml) with spin: all three promises hold in every state, and
# leaving a rule out is found. About 1.5 GiB and a minute.
#   scripts/check_protocol.sh
set -euo pipefail
cd "$(dirname "$0")/.."

command -v spin >/dev/null || {
    echo "scripts/check_protocol.sh: spin is missing; on Debian: apt-get install spin" >&2
    exit 2
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp tests/protocol/push.pml "$work"
cd "$work"

# verdict RULE PROMISE: without that rule (0: with all of them); prints "RULE PROMISE: STATES states, ERRORS errors".
verdict() {
    if [ "${built:-}" != "$1" ]; then
        spin -DBREAK="$1" -a push.pml >spin.log 2>&1 || {
            cat spin.log >&2
            exit 1
        }
        gcc -O2 -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c
        built=$1
    fi
    ./pan -a $([ "$2" = nobody_waits ] && echo -f) -m1000000 -N "$2" >pan.log 2>&1  # exits with 0 whatever it finds
    if grep -q "max search depth too small\|out of memory" pan.log; then
        echo "scripts/check_protocol.sh: the search was cut short" >&2
        cat pan.log >&2
        exit 1
    fi
    sed -n "s/.*errors: \([0-9]*\)$/\1/p" pan.log >errors
    sed -n "s/^ *\([0-9]*\) states, stored.*/\1/p" pan.log >states
    echo "without rule $1, $2: $(cat states) states, $(cat errors) errors"
}

failed=0
expect() {  # RULE PROMISE ERRORS
    verdict "$1" "$2"
    [ "$(cat errors)" = "$3" ] || {
        echo "  expected $3" >&2
        failed=1
    }
}
for promise in whole_versions one_version nobody_waits; do expect 0 "$promise" 0; done
expect 1 one_version 1
expect 2 one_version 1
expect 3 nobody_waits 1
expect 4 whole_versions 1
exit $failed
