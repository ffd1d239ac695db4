#!/usr/bin/env bash
# Everything that needs a GPU, in one command, on a machine with one and without a network, inside 9 minutes: builds,
# runs the tests with the label gpu, compute-sanitizer over the small ones, and the runs of tests/gpu/checks.txt.
#   scripts/gpu_check.sh [--out FOLDER] [--minutes N] [--only build,tests,sanitize,checks] [--match TEXT]
#                        [--pack FILE.tgz] [--dry]
#
# Leaves logs, JSON and summary.json in FOLDER (default runs/gpu_check); --pack puts them into one archive at the end.
# --match takes the tests and checks whose names hold TEXT; --dry only says what would run. Exit code 0: all passed,
# 1: something failed, 2: bad usage, or no GPU.
# TANDEM_DEPS=FOLDER: the libraries, as .deb files (scripts/gpu_deps.sh collects them) or as an unpacked prefix, where
# the system does not have them. TANDEM_BUILD=FOLDER: the build folder (default build/gpu), kept between calls.
# TANDEM_COMMIT: the commit's name, where there is no git.
set -uo pipefail
cd "$(dirname "$0")/.."

out=runs/gpu_check minutes=9 only=build,tests,sanitize,checks match="" pack="" dry=0
usage() {
    sed -n '2,13s/^# \{0,1\}//p' "$0"
    exit "$1"
}
while [ $# -gt 0 ]; do
    case "$1" in
    --out | --minutes | --only | --match | --pack)
        [ $# -ge 2 ] || { echo "scripts/gpu_check.sh: $1 needs a value" >&2 && exit 2; }
        printf -v "${1#--}" '%s' "$2"
        shift 2
        ;;
    --dry) dry=1 && shift ;;
    -h | --help) usage 0 ;;
    *)
        echo "scripts/gpu_check.sh: unknown option '$1'; known: --out, --minutes, --only, --match, --pack, --dry" >&2
        exit 2
        ;;
    esac
done
[[ "$minutes" =~ ^[0-9]+$ ]] || { echo "scripts/gpu_check.sh: --minutes: '$minutes' is not a number" >&2 && exit 2; }
for part in ${only//,/ }; do
    case "$part" in build | tests | sanitize | checks) ;; *)
        echo "scripts/gpu_check.sh: --only: unknown part '$part'; known: build, tests, sanitize, checks" >&2
        exit 2
        ;;
    esac
done
part() { [[ ",$only," == *",$1,"* ]]; }

build=${TANDEM_BUILD:-build/gpu}
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1)
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
commit=${TANDEM_COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
architecture=$capability
[ "$capability" = 90 ] && architecture=90a

if [ "$dry" -eq 1 ]; then
    echo "would build in $build for sm_${architecture:-?}, with ${nvcc:-no nvcc}, libraries: ${TANDEM_DEPS:-those of the system}"
    echo "would run: ctest -L '^gpu\$'; ${sanitizer:-no compute-sanitizer} over the label sanitize; and"
    grep -vE '^(#|$)' tests/gpu/checks.txt | sed 's/^/  /'
fi
if [ -z "$gpu" ]; then
    echo "scripts/gpu_check.sh: there is no GPU here (nvidia-smi names none): nothing was run" >&2
    exit 2
fi
[ "$dry" -eq 1 ] && exit 0
if [ -z "$nvcc" ] && part build; then
    echo "scripts/gpu_check.sh: no nvcc on PATH or in /usr/local/cuda/bin: install the CUDA toolkit 13.0" >&2
    exit 2
fi

mkdir -p "$out"
out=$(cd "$out" && pwd)
rows=() failed=0
left() { echo $((minutes * 60 - SECONDS)); }
# step NAME LIMIT_S COMMAND…: runs it inside what is left of the time, logs it, and notes how it ended.
step() {
    local name=$1 limit=$2 began=$SECONDS code
    shift 2
    [ "$limit" -gt "$(left)" ] && limit=$(left)
    if [ "$limit" -le 5 ]; then
        printf '%-40s no time left\n' "$name"
        rows+=("{\"name\": \"$name\", \"result\": \"no time left\"}") failed=1
        return 1
    fi
    timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1
    code=$?
    local result=passed
    if [ $code -eq 77 ]; then # its last line says why; what needs a library that is not here
        result=$(tail -1 "$out/$name.log" | tr -d '"\\')
        code=0
    fi
    [ $code -ne 0 ] && result="failed ($code)" && failed=1
    [ $code -eq 124 ] && result="ran past ${limit} s"
    printf '%-40s %-18s %4s s\n' "$name" "$result" $((SECONDS - began))
    rows+=("{\"name\": \"$name\", \"result\": \"$result\", \"seconds\": $((SECONDS - began))}")
    [ $code -ne 0 ] && tail -25 "$out/$name.log"
    return $code
}
finish() {
    local list
    list=$(printf ',\n  %s' "${rows[@]}")
    printf '{"gpu": "%s", "driver": "%s", "cuda": "%s", "date": "%s", "commit": "%s", "steps": [%s\n]}\n' "$gpu" "$driver" \
        "$("${nvcc:-true}" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')" "$(date -u +%FT%TZ)" "$commit" \
        "${list:1}" >"$out/summary.json"
    echo "summary: $out/summary.json"
    if [ -n "$pack" ]; then tar -czf "$pack" -C "$out" . || failed=1; fi
    exit $failed
}
nvidia-smi >"$out/nvidia-smi.txt" 2>&1

deps=${TANDEM_DEPS:-}
if [ -n "$deps" ] && ls "$deps"/*.deb >/dev/null 2>&1; then
    prefix=$PWD/$build.deps
    mkdir -p "$prefix"
    for package in "$deps"/*.deb; do dpkg-deb -x "$package" "$prefix" || exit 2; done
    deps=$prefix
fi
configure=(-DCMAKE_BUILD_TYPE=Release -DTANDEM_CUDA=ON "-DCMAKE_CUDA_COMPILER=$nvcc" "-DCMAKE_CUDA_ARCHITECTURES=$architecture")
if [ -n "$deps" ]; then
    deps=$(cd "$deps" && pwd)
    libraries=$deps/usr/lib/x86_64-linux-gnu:$deps/usr/lib
    export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    configure+=("-DCMAKE_PREFIX_PATH=$deps/usr" "-DCMAKE_EXE_LINKER_FLAGS=-Wl,-rpath-link,${libraries/:/ -Wl,-rpath-link,}")
fi

if part build; then
    step configure 60 cmake -S . -B "$build" -G Ninja "${configure[@]}" || finish
    step build 360 cmake --build "$build" --target tandem_gpu_tests tandem_gpu_checks || finish
fi
export TANDEM_BIN=$PWD/$build/bin TANDEM_OUT=$out
tests() { # LABEL
    ctest --test-dir "$build" -N -L "^$1\$" | sed -n 's/.*Test *#[0-9]*: //p' | grep -F -- "$match"
}
if part tests; then
    for name in $(tests gpu); do
        step "$name" 180 env "GTEST_OUTPUT=json:$out/$name.json" \
            ctest --test-dir "$build" -R "^$name\$" --output-on-failure --timeout 170
    done
fi
if part sanitize; then
    [ -n "$sanitizer" ] || { echo "no compute-sanitizer: it comes with the CUDA toolkit" >&2 && failed=1; }
    for name in $([ -n "$sanitizer" ] && tests sanitize); do
        for tool in memcheck racecheck initcheck; do
            step "$name.$tool" 120 "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 "$TANDEM_BIN/$name"
        done
    done
fi
if part checks; then
    while read -r name limit command; do
        [[ -z "$name" || "$name" == \#* || "$name" != *"$match"* ]] && continue
        step "$name" "$limit" bash -c "$command"
    done <tests/gpu/checks.txt
fi
finish
