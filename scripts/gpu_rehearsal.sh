#!/usr/bin/env bash
# gpu_check.sh from beginning to end without a GPU: in a fresh minimal root (fresh_root.sh; g++, CMake, Ninja, Python and
# nothing of ours), with this machine's CUDA toolkit and no network, the package of gpu_deps.sh goes in, everything is
# built and linked there for sm_90a, every program prints its help, and each line of checks.txt runs on the emulated GPU,
# with stand-ins for nvidia-smi, compute-sanitizer and MPS (tests/scripts/stand_ins) and small sizes. At the end what was
# built is packed by gpu_pack.sh and attention's lines run from the package alone, as in the first ten minutes with a GPU.
# Needs root.
#   scripts/gpu_rehearsal.sh [--suite NAME] [--deps FOLDER] [--results FOLDER] [OPTION OF fresh_root.sh]…
#
# --suite: bookworm unless told. --deps: the package, where it has been collected. --results: where the logs go (default
# runs/gpu_rehearsal). Options with a value that fresh_root.sh has (--ccache, --keep, --cache, --mirror) are passed on.
# Exit code 0: all that can be rehearsed passed; what cannot is named. tests/gpu/README.md keeps the last result.
set -uo pipefail
cd "$(dirname "$0")/.."

suite=bookworm deps="" results=runs/gpu_rehearsal passed_on=() inside=0
while [ $# -gt 0 ]; do
    case "$1" in
    --inside) inside=1 && shift ;;
    -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0" && exit 0 ;;
    --suite | --deps | --results | --ccache | --keep | --cache | --mirror)
        [ $# -ge 2 ] || { echo "scripts/gpu_rehearsal.sh: $1 needs a value" >&2 && exit 2; }
        case "$1" in
        --suite | --deps | --results) printf -v "${1#--}" '%s' "$2" ;;
        *) passed_on+=("$1" "$2") ;;
        esac
        shift 2
        ;;
    *) echo "scripts/gpu_rehearsal.sh: unknown option '$1'; see --help" >&2 && exit 2 ;;
    esac
done
part() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }
fail() { echo "scripts/gpu_rehearsal.sh: $1" >&2 && exit 1; }

if [ $inside -eq 0 ]; then
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc) || fail "no nvcc here: the rehearsal compiles for GPUs"
    toolkit=$(dirname "$(dirname "$(realpath "$nvcc")")")
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    if [ -z "$deps" ]; then
        deps=$work/deps
        scripts/gpu_deps.sh "$deps" || fail "the package is not whole"
    fi
    rm -rf "$results" && mkdir -p "$results"
    TANDEM_COMMIT=${TANDEM_COMMIT:-$(git describe --always --dirty)}
    scripts/fresh_root.sh --no-network --include g++,cmake,ninja-build,python3-minimal,xz-utils --bind "$toolkit:/usr/local/cuda" \
        --bind "$(realpath "$deps"):/mnt/deps" "${passed_on[@]}" "$suite" \
        env "TANDEM_COMMIT=$TANDEM_COMMIT" scripts/gpu_rehearsal.sh --inside > >(tee "$results/log.txt") &
    child=$!
    trap 'kill $child; wait $child; exit 143' INT TERM HUP
    wait $child
    exit
fi

export PATH=$PWD/tests/scripts/stand_ins:$PATH TANDEM_DEPS=/mnt/deps TANDEM_EMULATED_GPUS=1 TANDEM_CHECK_PATIENCE=20
export TANDEM_CHECK_SHAPES=SmolLM2-135M TANDEM_CHECK_SMALL=--small
export TANDEM_CHECK_SETTINGS="--set sft.steps=6 --set grpo.steps=2"
out=runs/rehearsal

part "a package without libOpenCL is refused"
mkdir -p build/lacking runs
cp /mnt/deps/*.deb build/lacking/ && rm build/lacking/ocl-icd-libopencl1_*
TANDEM_DEPS=$PWD/build/lacking TANDEM_BUILD=build/lacking_build scripts/gpu_check.sh --out runs/lacking --only preflight >runs/lacking.txt 2>&1
[ $? -eq 2 ] || fail "the preflight accepts a package without libOpenCL"
grep MISSING runs/lacking.txt && grep -q '^  libOpenCL.so.1 *MISSING' runs/lacking.txt || fail "the preflight does not name libOpenCL.so.1"
if scripts/gpu_deps.sh --prove build/lacking 2>runs/lacking.txt; then fail "gpu_deps.sh accepts a package without libOpenCL"; fi
grep 'libOpenCL.so.1: needed by libdnnl' runs/lacking.txt || fail "gpu_deps.sh does not name libOpenCL.so.1"
rm -rf build/lacking*

part "build"
scripts/gpu_check.sh --out $out --only build --minutes 600 || fail "the build failed"
scripts/gpu_deps.sh --prove /mnt/deps build/gpu/bin/* || fail "the programs need more than the package holds"

part "every program prints its help"
libraries=$(scripts/gpu_deps.sh --folders "$PWD/build/gpu.deps")
for program in build/gpu/bin/*; do
    lines=$(LD_LIBRARY_PATH=$libraries timeout 60 "$program" --help | wc -l) && [ "$lines" -gt 0 ] || fail "$program --help"
    printf '%s ' "${program##*/} ($lines lines)"
done

part "every line of checks.txt"
scripts/gpu_check.sh --out $out --continue --minutes 600 --pack runs/rehearsal.tgz
code=$?
if grep -alz '^1000$' /proc/[0-9]*/cmdline 2>/dev/null; then fail "the stand-in of MPS is left"; fi
# What takes several GPUs.
TANDEM_EMULATED_GPUS=3 scripts/gpu_check.sh --out runs/rehearsal_gpus --only run --match nccl --minutes 600 || code=1
ls /tmp/tandem_mps.* 2>/dev/null && fail "MPS's folder is left"

part "the first ten minutes: packed, carried, nothing compiled"
scripts/gpu_pack.sh runs/prebuilt.txz || fail "what was built cannot be packed"
mv build/gpu build/packed_from
mv build/gpu.deps build/unpacked_deps
env -u TANDEM_DEPS scripts/gpu_check.sh --prebuilt runs/prebuilt.txz --only attention --minutes 600 --out runs/ten_minutes || code=1
part "done: exit code $code"
exit $code
