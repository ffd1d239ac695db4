#!/usr/bin/env bash
# What holds attention's machine code sees a loop that is not unrolled: the forward by tensor cores is compiled with its
# scores' loop rolled; then its prediction falls, and its products are not where the tile's arithmetic wants them.
#   tests/scripts/attention_rolled.sh NVCC FORWARD.O        FORWARD.O: as it was built; exit code 77: no cuobjdump and nvdisasm here
set -euo pipefail
cd "$(dirname "$0")/../.."
nvcc=$1 built=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scripts/machine_code/tools.sh >/dev/null || exit 77

kernel=common/ops/cuda/attention/forward_mma.cuh
mkdir -p "$work/${kernel%/*}"
awk '/for \(int d = 0; d < Shape::kDim \/ 16; \+\+d\)/ && before ~ /#pragma unroll$/ { before = before " 1"; ++rolled }
     NR > 1 { print before }
     { before = $0 }
     END { print before; exit rolled != 1 }' "$kernel" >"$work/$kernel" || { echo "$kernel: not one loop over d to roll" >&2 && exit 1; }
"$nvcc" -I"$work" -I. -isystem=scripts/cmake/include -O3 -lineinfo --expt-relaxed-constexpr -DTANDEM_WITH_CUDA=1 \
    -DFMT_USE_CONSTEXPR=1 -DFMT_SHARED -std=c++20 --generate-code=arch=compute_90a,code=[compute_90a,sm_90a] -c \
    -o "$work/rolled.o" common/ops/cuda/attention/forward.cu >"$work/log" 2>&1 || { cat "$work/log" >&2 && exit 1; }
predicted() {
    scripts/machine_code/predict.py --json "$1" | python3 -c '
import json, sys
print(*(round(p["predicted"]) for p in json.load(sys.stdin) if (p["pass"], p["by"], p["d"]) == ("forward", "mma", 128)))'
}
before=$(predicted "$built") after=$(predicted "$work/rolled.o")
echo "forward by mma.sync, hd 128: $before TFLOP/s predicted, $after with a rolled loop"
[ "$after" -lt "$before" ] || { echo "the prediction did not fall" >&2 && exit 1; }
if scripts/machine_code/check.py --ptxas "${nvcc%/*}/ptxas" "$work/rolled.o" 2>"$work/faults" >/dev/null; then
    echo "the check passed" >&2 && exit 1
fi
grep 'forward_mma_kernel<ForwardShapeOf<128.*HMMA in the main loop' "$work/faults" ||
    { echo "the check did not see it" >&2 && cat "$work/faults" >&2 && exit 1; }
echo passed
