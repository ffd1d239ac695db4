#!/usr/bin/env bash
# Builds the fuzz targets of tests/fuzz with clang++ under the address and undefined-behaviour sanitizers, and runs
# each for a while from its seeds and from what earlier runs found (build/fuzz/corpus). A crash stops the script and
# leaves the input; put a copy into tests/fuzz/corpus/NAME once it is fixed: CI replays it.
#   scripts/fuzz.sh [--seconds N] [NAME…]      --seconds: for each target, 60 when not given; NAME: safetensors, plan, …
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=60
names=()
while [ $# -gt 0 ]; do
    case "$1" in
    --seconds)
        seconds=${2:?--seconds needs a number}
        shift ;;
    -h | --help)
        sed -n '2,5s/^# \{0,1\}//p' "$0"
        exit 0 ;;
    -*)
        echo "scripts/fuzz.sh: unknown option '$1'; known: --seconds N" >&2
        exit 2 ;;
    *) names+=("$1") ;;
    esac
    shift
done
command -v clang++ >/dev/null || {
    echo "scripts/fuzz.sh: clang++ is missing; on Debian: apt-get install clang" >&2
    exit 2
}

cmake -S . -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTANDEM_FUZZ=ON \
    -DTANDEM_TESTS=OFF >/dev/null
if [ ${#names[@]} -eq 0 ]; then
    for file in tests/fuzz/*_fuzz.cpp; do names+=("$(basename "$file" _fuzz.cpp)"); done
fi
cmake --build build/fuzz --target "${names[@]/%/_fuzz}" "${names[@]/%/_seeds}"
for name in "${names[@]}"; do
    printf '\n== %s, %s s\n' "$name" "$seconds"
    mkdir -p "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" build/fuzz/crashes
    "build/fuzz/bin/${name}_seeds" --write "build/fuzz/seeds/$name"
    "build/fuzz/bin/${name}_fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -max_len=16384 \
        -print_final_stats=1 -artifact_prefix="build/fuzz/crashes/$name-" \
        "build/fuzz/corpus/$name" "build/fuzz/seeds/$name" "tests/fuzz/corpus/$name" 2>&1 | grep -vE 'NEW|REDUCE|pulse'
done
echo "no crash"
