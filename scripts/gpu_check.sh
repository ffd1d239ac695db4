#!/usr/bin/env bash
# Everything that needs a GPU, in one command, on a machine with one and without a network: looks at what is there,
# builds, and runs the lines of tests/gpu/checks.txt in their order: what matters most first.
#   scripts/gpu_check.sh [--out FOLDER] [--minutes N] [--only PARTS] [--match TEXT] [--continue] [--pack FILE.tgz] [--dry]
#                        [--prebuilt FILE.txz]
#
# PARTS: preflight, build, test, run, sanitize, with commas between them; the preflight is always made. attention: of all
# parts the lines whose names hold that word, for the first ten minutes with new kernels. --match takes the lines whose names
# hold TEXT. --minutes (default 9) bounds the whole call: a line starts only where its limit fits into
# what is left, and what does not fit is said; --continue then goes on there: what passed on the same commit is not
# repeated, and what failed comes last. --dry ends after the preflight and what would run.
# Leaves logs, JSON and summary.json in FOLDER (default runs/gpu_check); --pack puts them into one archive at the end.
# --prebuilt: what gpu_pack.sh packed on another machine is unpacked and run; nothing is compiled here, and TANDEM_DEPS is
# not needed. The place where it was built becomes a link to this checkout, where nothing else is there.
# Exit code 0: all passed, 1: something failed, 2: bad usage, or something is missing without which nothing runs,
# 3: nothing failed, and some lines did not fit.
# TANDEM_DEPS=FOLDER: the libraries, as .deb files (scripts/gpu_deps.sh collects them) or as an unpacked prefix, where
# the system does not have them. TANDEM_CUBLASLT, TANDEM_NCCL: the files of these libraries, where the loader does not
# find them. TANDEM_BUILD=FOLDER: the build folder (default build/gpu), kept between calls. TANDEM_COMMIT: the commit's
# name, where there is no git. TANDEM_PLAN=FILE: other lines than those of checks.txt. TANDEM_CHECK_PATIENCE=N: every
# limit times N (gpu_rehearsal.sh).
set -uo pipefail
from=$PWD
cd "$(dirname "$0")/.."
scripts=$PWD/scripts

out=runs/gpu_check minutes=9 only=build,test,run,sanitize match="" pack="" prebuilt="" dry=0 again=0
plan_file=${TANDEM_PLAN:-tests/gpu/checks.txt}
usage() {
    sed -n '2,24s/^# \{0,1\}//p' "$0"
    exit "$1"
}
bad() { echo "scripts/gpu_check.sh: $1" >&2 && exit 2; }
while [ $# -gt 0 ]; do
    case "$1" in
    --out | --minutes | --only | --match | --pack | --prebuilt)
        [ $# -ge 2 ] || bad "$1 needs a value"
        printf -v "${1#--}" '%s' "$2"
        shift 2
        ;;
    --dry) dry=1 && shift ;;
    --continue) again=1 && shift ;;
    -h | --help) usage 0 ;;
    *) bad "unknown option '$1'; known: --out, --minutes, --only, --match, --continue, --pack, --prebuilt, --dry" ;;
    esac
done
[[ "$minutes" =~ ^[0-9]+$ ]] || bad "--minutes: '$minutes' is not a number"
if [ "$only" = attention ]; then only=build,test,run,sanitize match=${match:-attention}; fi
for part in ${only//,/ }; do
    case "$part" in preflight | build | test | run | sanitize) ;; *)
        bad "--only: unknown part '$part'; known: preflight, build, test, run, sanitize; attention alone" ;;
    esac
done
part() { [[ ",$only," == *",$1,"* ]]; }

build=$(realpath -m "${TANDEM_BUILD:-build/gpu}")
commit=${TANDEM_COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}
mkdir -p "$out" && out=$(cd "$out" && pwd) || bad "--out: '$out' is no folder that can be written to"

# The package, or the programs themselves, unpacked once.
deps=${TANDEM_DEPS:-}
if [ -n "$prebuilt" ]; then
    [[ "$prebuilt" == /* ]] || prebuilt=$from/$prebuilt
    . scripts/gpu_prebuilt.sh
    unpack_prebuilt
fi
if [ -n "$deps" ] && ls "$deps"/*.deb >/dev/null 2>&1; then
    prefix=$build.deps
    if ! ls "$deps"/*.deb | cmp -s - "$prefix/packages"; then
        rm -rf "$prefix" && mkdir -p "$prefix"
        printf '%s\0' "$deps"/*.deb | xargs -0 -P "$(nproc)" -I{} dpkg-deb -x {} "$prefix" || bad "TANDEM_DEPS: dpkg-deb failed"
        ls "$deps"/*.deb >"$prefix/packages"
    fi
    deps=$prefix
fi
if [ -n "$deps" ]; then
    deps=$(cd "$deps" && pwd) || bad "TANDEM_DEPS: no folder '$deps'"
    libraries=$(scripts/gpu_deps.sh --folders "$deps")
    export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

. scripts/gpu_preflight.sh
preflight >"$out/preflight.txt"
whole=$?
cat "$out/preflight.txt"
if [ "$dry" -eq 1 ]; then
    echo "would build in $build for sm_${capability:-?}, libraries: ${TANDEM_DEPS:-those of the system}; would then run"
    grep -vE '^(#|$)' "$plan_file" | sed 's/^/  /'
fi
[ $whole -eq 0 ] || bad "what is MISSING above is needed before anything can be built or run: nothing was run"
[ "$dry" -eq 1 ] || [ "$only" = preflight ] && exit 0
nvidia-smi >"$out/nvidia-smi.txt" 2>&1

. scripts/gpu_steps.sh
load_state
architecture=$capability
[ "$capability" = 90 ] && architecture=90a
# Sources joined into one for each target: half the work.
configure=(-DCMAKE_BUILD_TYPE=Release -DTANDEM_CUDA=ON -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=0 "-DCMAKE_CUDA_COMPILER=$nvcc"
    "-DCMAKE_CUDA_ARCHITECTURES=$architecture")
[ -n "$deps" ] && configure+=("-DCMAKE_PREFIX_PATH=$deps/usr" "-DCMAKE_EXE_LINKER_FLAGS=-Wl,-rpath-link,$libraries")
if part build && [ -z "$prebuilt" ]; then
    step configure 60 cmake -S . -B "$build" -G Ninja "${configure[@]}" || finish
    step build 360 cmake --build "$build" --target tandem_gpu_tests tandem_gpu_checks || finish
fi
export TANDEM_BIN=$build/bin TANDEM_OUT=$out TANDEM_CHECK_SHAPES=${TANDEM_CHECK_SHAPES:-Qwen3-4B}

# One line of the plan: NAME LIMIT_S KIND[,NEED…] [COMMAND]
line() {
    local name=$1 limit=$2 kind=${3%%,*} needs=${3#"${3%%,*}"} need
    for need in ${needs//,/ } $kind; do
        [ -n "${lacks[$need]:-}" ] && left_out "$name" "${lacks[$need]}" && return
    done
    if [[ "$needs," == *,mps,* ]]; then start_mps; else stop_mps; fi
    case "$kind" in
    test) step "$name" "$limit" env "GTEST_OUTPUT=json:$out/$name.json" ctest --test-dir "$build" -R "^${name//./\\.}\$" --output-on-failure --no-tests=error ;;
    run) step "$name" "$limit" bash -c "$4" ;;
    sanitize) # NAME is TEST.TOOL, COMMAND the test's arguments. Errors that calls return are the test's to judge: it provokes some on purpose.
        step "$name" "$limit" "$sanitizer" --tool "${name##*.}" --report-api-errors no --error-exitcode 9 \
            --print-limit 20 "$TANDEM_BIN/${name%.*}" $4
        ;;
    *) note "$name" "failed (no kind '$kind')" 0 ;;
    esac
}
first=() later=() # what failed in an earlier call comes after what has not run yet
while read -r name limit kind command; do
    [[ -z "$name" || "$name" == \#* || "$name" != *"$match"* ]] && continue
    part "${kind%%,*}" || continue
    case "${result[$name]:-}" in
    failed* | ran*) later+=("$name $limit $kind $command") ;;
    *) first+=("$name $limit $kind $command") ;;
    esac
done <"$plan_file"
for entry in "${first[@]}" "${later[@]}"; do
    read -r name limit kind command <<<"$entry"
    line "$name" "$limit" "$kind" "$command"
done
finish
