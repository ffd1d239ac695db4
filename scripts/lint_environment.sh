#!/usr/bin/env bash
# lint.environment: common/ENVIRONMENT.md tells every environment variable that programs and packages read, and no other.
set -euo pipefail
cd "$(dirname "$0")/.."
page=common/ENVIRONMENT.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sources=$(find common engine_adapter sync trainer -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.py')

# Read by a call that says so, or a name alone in quotes that begins as such names do.
{
    # shellcheck disable=SC2086
    grep -hoE '(getenv|environment|from_environment|variable|integer|library_file|environ\.get)\("[A-Z][A-Z0-9_]+"' $sources |
        sed 's/.*"\(.*\)"/\1/'
    # shellcheck disable=SC2086
    grep -hoE '"(TANDEM|HF|HUGGINGFACE|XDG|NCCL|GLOO|TORCHELASTIC|MASTER)_[A-Z_]+[="]' $sources | tr -d '"='
} | LC_ALL=C sort -u >"$work/read"
grep -oE '^\| `[A-Z0-9_`, ]+` \|' "$page" | grep -oE '[A-Z][A-Z0-9_]+' | LC_ALL=C sort -u >"$work/told"

broken=0
while read -r name; do
    echo "$page does not tell $name, which is read by: $(grep -l "\"$name[=\"]" $sources | head -1)" >&2
    broken=1
done < <(LC_ALL=C comm -23 "$work/read" "$work/told")
while read -r name; do
    # shellcheck disable=SC2086
    grep -q "\"$name\"" $sources && continue
    echo "$page tells $name, which nothing reads" >&2
    broken=1
done < <(LC_ALL=C comm -13 "$work/read" "$work/told")
exit $broken
