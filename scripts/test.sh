#!/usr/bin/env bash
# Every test that this machine can run: unit, contract, multi-process, cases and lint. Installs what is missing. Builds for
# GPUs as well where nvcc is. With --sanitizers, as CI runs it, the parts with threads or with input of strangers run again
# under the address and the thread sanitizer. tests/README.md says what lives where.
#   scripts/test.sh [--sanitizers [--begun-within MINUTES]]        --quick: as without
# A sanitizer whose tests could not begin within so many minutes is left out, and named at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizers=0 begun_within=
while [ $# -gt 0 ]; do
    case "$1" in
    --quick) ;;
    --sanitizers) sanitizers=1 ;;
    --begun-within)
        shift
        [[ ${1:-} =~ ^[1-9][0-9]{0,3}$ ]] || { echo "scripts/test.sh: --begun-within takes a number of minutes" >&2; exit 2; }
        begun_within=$((60 * $1))
        ;;
    -h | --help)
        sed -n '2,6s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *)
        echo "scripts/test.sh: unknown option '$1'; known: --quick, --sanitizers, --begun-within" >&2
        exit 2
        ;;
    esac
    shift
done
scripts/install.sh --tests

# With a CUDA toolkit, for GPUs too: everything is compiled, and the tests are the same ones.
build=cpu
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then build=cuda; fi

# Tests mostly wait, for other processes and for deadlines: with one a core the cores are idle for half of the time.
tests_at_once=$((2 * $(nproc)))
step() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }
# A sanitizer's build begins behind the tests before it, in what they leave of the machine: they have deadlines.
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
start_build() {
    cmake --preset "$1" >/dev/null
    nice -n 19 ninja -j "$(nproc)" -C "build/$1" "tandem_$1_tests" >"build/$1.log" 2>&1 &
    build_process=$!
}
too_late() { [ -n "$begun_within" ] && [ "$SECONDS" -gt "$begun_within" ]; }
finish_build() {
    step "build with $1, what is left of it"
    while kill -0 "$build_process" 2>/dev/null; do
        if too_late; then return; fi
        sleep 1
    done
    wait "$build_process" || { cat "build/$1.log"; exit 1; }
}
test_with() {
    if too_late; then
        not_run+=("tests with $1: $((SECONDS / 60)) minutes had passed, and they had to begin within $((begun_within / 60)); run scripts/test.sh --sanitizers")
        return
    fi
    step "tests with $1"
    ctest --test-dir "build/$1" --output-on-failure -j "$tests_at_once" -L "$1" --no-tests=error
}

step "build ($build)"
cmake --preset "$build" -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=0 >/dev/null
cmake --build --preset "$build" -j "$(nproc)" # Ninja's two more take a fourteenth longer, on two cores
[ "$sanitizers" -eq 0 ] || start_build asan
step "tests"
# Without a GPU the label gpu leaves the list, without the right to make network namespaces the label netns, and without
# that to become another user the label root: what could not run is said again at the end. Nothing else is left out.
left_out=()
not_run=()
[ -e /dev/nvidia0 ] || left_out+=(gpu)
if ! unshare --net true 2>/dev/null; then
    left_out+=(netns)
    not_run+=("tests between hosts and on full disks (label netns): no right to make namespaces; run as root, in a container with --privileged")
fi
if [ "$(id -u)" -ne 0 ]; then
    left_out+=(root)
    not_run+=("tests of what other users can do (label root): no right to become one; run as root")
fi
if [ "$build" = cuda ] && ! scripts/machine_code/tools.sh --fetch >/dev/null; then
    not_run+=("scripts.attention_*: they read machine code, and cuobjdump and nvdisasm are not here and could not be fetched")
fi
command -v clang-format-14 >/dev/null || not_run+=("lint.format: it speaks for clang-format 14, which is not here")
labels=$(IFS='|' && echo "${left_out[*]}")
ctest --test-dir "build/$build" --output-on-failure -j "$tests_at_once" ${labels:+-LE "$labels"}

if [ "$sanitizers" -eq 1 ]; then
    finish_build asan
    start_build tsan
    test_with asan
    finish_build tsan
    test_with tsan
fi
step "all tests that were run passed"
for what in "${not_run[@]}"; do echo "NOT RUN: $what" >&2; done
