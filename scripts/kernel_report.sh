#!/usr/bin/env bash
# What the compiler makes of our CUDA kernels, without a GPU: a line each with registers, spilled bytes, stack, static
# shared memory, the threads of an SM that registers and static shared memory leave room for, and, where
# scripts/machine_code/tools.sh finds cuobjdump, how many 16-byte loads and stores of global memory it holds.
#   scripts/kernel_report.sh [--arch 90a] [FILE.cu…]      (default: all of common/ops/cuda and common/comm/cuda)
# Bytes on their way a SM = threads × loads before the first use × 16. An H200 wants some 30 KB (4.8 TB/s, 132 SMs,
# 800 ns), half of that from a kernel that writes as much as it reads. Exit code 1: something spills; 2: bad usage.
set -euo pipefail
cd "$(dirname "$0")/.."
arch=90a files=()
while [ $# -gt 0 ]; do
    case "$1" in
    --arch)
        [ $# -ge 2 ] || { echo "scripts/kernel_report.sh: --arch needs a value, for example 90a or 80" >&2 && exit 2; }
        arch=$2 && shift 2
        ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 0 ;;
    -*) echo "scripts/kernel_report.sh: unknown option '$1'; known: --arch" >&2 && exit 2 ;;
    *) files+=("$1") && shift ;;
    esac
done
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
[ -n "$nvcc" ] || { echo "scripts/kernel_report.sh: no nvcc on PATH or in /usr/local/cuda/bin" >&2 && exit 2; }
[ ${#files[@]} -gt 0 ] || files=(common/ops/cuda/*.cu common/ops/cuda/*/*.cu $(ls common/comm/cuda/*.cu 2>/dev/null || true))
tools=$(scripts/machine_code/tools.sh 2>/dev/null || true)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The compiler's lines to: mangled name, threads a block are not known to it, registers, spills, stack, shared.
rows() {
    awk '/Compiling entry function/ { split($0, part, "\047"); name = part[2] }
         /bytes stack frame/ { stack = $1; spills = $5 + $9 }
         /Used [0-9]+ registers/ {
             shared = 0
             if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART, RLENGTH) + 0
             match($0, /Used [0-9]+/)
             print name, substr($0, RSTART + 5, RLENGTH - 5), spills, stack, shared
         }' "$1"
}
printf '%-58s %9s %6s %6s %7s %10s %8s %8s\n' kernel registers spills stack shared threads/SM LDG.128 STG.128
bad=0
for file in "${files[@]}"; do
    out=$folder/$(basename "$file" .cu)
    "$nvcc" -I. -isystem=/usr/local/cuda/include -O3 --expt-relaxed-constexpr -DTANDEM_WITH_CUDA=1 -DFMT_USE_CONSTEXPR=1 \
        -DFMT_SHARED -std=c++20 -gencode "arch=compute_$arch,code=sm_$arch" -cubin -Xptxas -v -o "$out.cubin" "$file" \
        >"$out.log" 2>&1 || { cat "$out.log" >&2 && exit 1; }
    [ -z "$tools" ] || PATH=$tools:$PATH cuobjdump -sass "$out.cubin" >"$out.sass"
    while read -r name registers spills stack shared; do
        short=$(c++filt "$name" | sed 's/^void //; s/(anonymous namespace):://g; s/tandem::[a-z]*::cuda:://g; s/(.*//')
        wide=$(((registers + 7) / 8 * 8))
        threads=$((65536 / wide / 32 * 32))
        [ "$threads" -gt 2048 ] && threads=2048
        loads=- stores=-
        if [ -f "$out.sass" ]; then
            body=$(awk -v name="$name" '$1 == "Function" { on = $3 == name } on' "$out.sass")
            loads=$(grep -c 'LDG\.E\.128' <<<"$body" || true)
            stores=$(grep -c 'STG\.E\.128' <<<"$body" || true)
        fi
        printf '%-58s %9s %6s %6s %7s %10s %8s %8s\n' "$short" "$registers" "$spills" "$stack" "$shared" "$threads" "$loads" "$stores"
        [ "$spills" -eq 0 ] || bad=1
    done < <(rows "$out.log")
done
exit $bad
