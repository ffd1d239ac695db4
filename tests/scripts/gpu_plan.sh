#!/usr/bin/env bash
# tests/gpu/checks.txt is whole: every test with the label gpu has a line and every such line a test; those with the label
# sanitize have one for each tool; each program that a line names is built for it; no name, kind or need is made up.
#   tests/scripts/gpu_plan.sh BUILD_FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
plan=$here/../gpu/checks.txt
lines() { grep -vE '^(#|$)' "$plan"; }
labelled() { ctest --test-dir "$1" -N -L "^$2\$" | sed -n 's/.*Test *#[0-9]*: //p'; }
same() { # WHAT LIST LIST
    diff <(sort <<<"$2") <(sort <<<"$3") || { echo "$1: < is what there is, > what checks.txt has" && exit 1; }
}
same "tests with the label gpu" "$(labelled "$1" gpu)" "$(lines | awk '$3 ~ /^test/ {print $1}')"
same "tests with the label sanitize, by tool" \
    "$(for test in $(labelled "$1" sanitize); do printf '%s\n' "$test".{memcheck,racecheck,initcheck}; done)" \
    "$(lines | awk '$3 ~ /^sanitize/ {print $1}')"
for program in $(lines | grep -oE '\$TANDEM_BIN/[a-z_-]+' | sed 's#.*/##' | sort -u); do
    grep -qE "add_dependencies\(tandem_gpu_checks .*\b$program\b" "$here/../gpu/CMakeLists.txt" || { echo "$program is not in tandem_gpu_checks" && exit 1; }
done
bad=$(lines | grep -vE '^[a-z_.]+ [0-9]+ (test|run|sanitize)(,(mps|nccl|torch|two|real))*( .*)?$' || true)
[ -z "$bad" ] || { echo "not NAME LIMIT_S KIND[,NEED…]: $bad" && exit 1; }
twice=$(lines | awk '{print $1}' | sort | uniq -d)
[ -z "$twice" ] || { echo "twice: $twice" && exit 1; }
echo passed
