#!/usr/bin/env bash
# lint.headers: every header compiles alone.
#   scripts/lint_headers.sh COMPILER
set -euo pipefail
cd "$(dirname "$0")/.."
export compiler=${1:-g++}
find common engine_adapter sync trainer -name '*.h' -print0 | xargs -0 -P "$(nproc)" -I{} bash -c '
    echo "#include \"{}\"" | "$compiler" -std=c++20 -fsyntax-only -Wall -Wextra -I. -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL -x c++ - ||
        { echo "{} does not compile alone" >&2; exit 255; }'
