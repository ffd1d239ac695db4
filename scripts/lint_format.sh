#!/usr/bin/env bash
# lint.format: clang-format 14 agrees with every source file. scripts/lint_format.sh --fix rewrites them.
# Other versions have other opinions: where 14 is not, nothing is compared, and the exit code is 77 (CTest: skipped).
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(--dry-run -Werror)
[ "${1:-}" = "--fix" ] && mode=(-i)
if ! command -v clang-format-14 >/dev/null; then
    echo "lint.format speaks for clang-format 14, which is not here: nothing was compared"
    exit 77
fi
find common engine_adapter sync trainer tests examples \( -name '*.h' -o -name '*.cpp' -o -name '*.inl' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
    xargs -0 clang-format-14 "${mode[@]}"
