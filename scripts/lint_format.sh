#!/usr/bin/env bash
# lint.format: clang-format agrees with every source file. scripts/lint_format.sh --fix rewrites them.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(--dry-run -Werror)
[ "${1:-}" = "--fix" ] && mode=(-i)
find common engine_adapter sync trainer tests examples \( -name '*.h' -o -name '*.cpp' -o -name '*.inl' -o -name '*.cu' \) -print0 |
    xargs -0 clang-format "${mode[@]}"
