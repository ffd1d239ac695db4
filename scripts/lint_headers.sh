#!/usr/bin/env bash
# lint.headers: every header compiles alone. One that its own source includes first has done so in the build; the others
# are compiled here.
#   scripts/lint_headers.sh COMPILER
set -euo pipefail
cd "$(dirname "$0")/.."
export compiler=${1:-g++}
# Headers of the cuda folders may need the toolkit's: where it is not, they are left to those who have it.
cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")")
export include="-isystem scripts/cmake/include -isystem $cuda/include" without=()
[ -e "$cuda/include/cuda.h" ] || without=(-not -path '*/cuda/*' -not -path '*/nccl/*')
find common engine_adapter sync trainer -name '*.h' "${without[@]}" | while read -r header; do
    source=${header%.h}.cpp
    [ -e "$source" ] && [ "$(grep -m1 '^#include' "$source")" = "#include \"$header\"" ] || echo "$header"
done | xargs -P "$(nproc)" -I{} bash -c '
    echo "#include \"{}\"" | "$compiler" -std=c++20 -fsyntax-only -Wall -Wextra -I. $include -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL -x c++ - ||
        { echo "{} does not compile alone" >&2; exit 255; }'
