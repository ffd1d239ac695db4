#!/usr/bin/env bash
# What gpu_check.sh decides, over stand-ins for the GPU, its tools and the toolkit: what the preflight finds and names,
# which lines run, what is left for a second call, what is passed to compute-sanitizer, when MPS runs and that it ends.
#   tests/scripts/gpu_check.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
check=$here/../../scripts/gpu_check.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# A toolkit, as far as the preflight looks; and a GPU.
mkdir -p cuda/bin cuda/include cuda/lib64 build/bin
printf '#!/bin/sh\necho "Cuda compilation tools, release 13.0, V13.0.0"\n' >cuda/bin/nvcc
chmod +x cuda/bin/nvcc
touch cuda/include/{cuda_runtime.h,cublasLt.h,nccl.h} cuda/lib64/{libcudart_static.a,libcublasLt.so.13,libnccl.so.2}
mkdir bin && printf '#!/bin/sh\n/sbin/ldconfig -p | grep -vE "cublas|nccl"\n' >bin/ldconfig && chmod +x bin/ldconfig
export PATH=$work/bin:$here/stand_ins:$work/cuda/bin:$PATH TANDEM_PLAN=$work/plan TANDEM_BUILD=$work/build TANDEM_COMMIT=one
unset TANDEM_DEPS TANDEM_CUBLASLT TANDEM_NCCL TANDEM_EMULATED_GPUS LD_LIBRARY_PATH PYTHONPATH
printf '#!/bin/sh\nexit 1\n' >no-python && chmod +x no-python
export TORCH_PYTHON=$work/no-python

fail() { echo "FAILED: $1; the output was:" && cat out && exit 1; }
run() { # EXIT_CODE ARGUMENT…
    local wanted=$1 code=0
    shift
    "$check" --out "$work/results" --only test,run,sanitize "$@" >out 2>&1 || code=$?
    [ "$code" -eq "$wanted" ] || fail "exit code $code, not $wanted, of $*"
}
says() { grep -qE -- "$1" out || fail "nothing says '$1'"; }
silent() { if grep -qE -- "$1" out; then fail "it says '$1'"; fi; }

# Order, limits, what is left; what passed is not run again, what failed comes last.
cat >plan <<'PLAN'
# a comment
works 20 run echo works >> ran
fails 20 run echo fails >> ran; test -e mended
slow 1 run sleep 20
needs_torch 5 run,torch echo torch >> ran
needs_two 5 run,two echo two >> ran
long 50 run echo long >> ran
absent 20 run echo "skipped: for a reason"; exit 77
PLAN
sed -i "s#>> ran#>> $work/ran#; s#mended#$work/mended#" plan
run 1 --minutes 1
says 'works +passed' && says 'fails +failed \(1\)' && says 'slow +ran past 1 s' && says 'absent +skipped: for a reason'
says 'needs_torch +left out: no PyTorch' && says 'needs_two +left out: fewer than 2 GPUs' && says 'long +no time left'
touch mended && sed -i 's/^slow 1 run sleep 20/slow 20 run true/' plan
run 0 --continue
[ "$(tr '\n' ' ' <ran)" = "works fails long fails " ] || fail "ran: $(cat ran)"
TANDEM_COMMIT=two run 2 --continue
says "holds the state of 'one on"
TANDEM_COMMIT=unknown run 0 --match works && TANDEM_COMMIT=unknown run 2 --continue

# Time alone: nothing failed.
echo 'long 50 run true' >plan
run 3 --minutes 1
says 'with --continue'

# compute-sanitizer does not count the errors that calls return.
printf '#!/bin/sh\necho ran\n' >build/bin/small_test && chmod +x build/bin/small_test
echo 'small_test.memcheck 20 sanitize' >plan
run 0

# Every thing without which nothing runs is named; so is what leaves lines out.
for file in include/cublasLt.h lib64/libcudart_static.a lib64/libcublasLt.so.13; do
    mv cuda/$file hidden
    run 2
    name=$(basename $file) && says "${name%%.*}.* MISSING" && says "nothing was run"
    mv hidden cuda/$file
done
echo 'with_nccl 20 run,nccl true' >plan
TANDEM_NCCL=/no/such/libnccl.so.2 run 0
says 'libnccl +none; left out: with_nccl' && says 'with_nccl +left out: no libnccl'

# A library that only a Python environment's wheel has is found there and named to Tandem.
mkdir -p site/nvidia/cu13/lib && mv cuda/lib64/libnccl.so.2 site/nvidia/cu13/lib/
echo "where 20 run test \$TANDEM_NCCL -ef $work/site/nvidia/cu13/lib/libnccl.so.2" >plan
TORCH_PYTHON=python3 PYTHONPATH=$work/site run 0
mv site/nvidia/cu13/lib/libnccl.so.2 cuda/lib64/

# MPS runs for the lines that ask for it and for no other, and ends with them, also when the call is cut off.
cat >plan <<'PLAN'
alone 20 run test -z "${CUDA_MPS_PIPE_DIRECTORY:-}"
together 20 run,mps echo $CUDA_MPS_PIPE_DIRECTORY > FOLDER; kill -0 $(cat $CUDA_MPS_PIPE_DIRECTORY/*.pid)
alone_again 20 run test -z "${CUDA_MPS_PIPE_DIRECTORY:-}"
hangs 50 run,mps cat $CUDA_MPS_PIPE_DIRECTORY/*.pid > PIDS; echo $$ >> PIDS; sleep 40
PLAN
sed -i "s#FOLDER#$work/folder#; s#PIDS#$work/pids#g" plan
"$check" --out "$work/results" --only run --minutes 2 >out 2>&1 &
for ((i = 0; i < 600; ++i)); do [ "$(cat pids 2>/dev/null | wc -l)" = 2 ] && break || sleep 0.1; done
kill -TERM $! && code=0 && wait $! || code=$?
[ "$code" -eq 143 ] || fail "exit code $code of the call that was cut off"
says 'alone +passed' && says 'together +passed' && says 'alone_again +passed'
[ ! -e "$(cat folder)" ] || fail "MPS's folder is left"
alive() { grep -qsv '^[^ ]* ([^)]*) Z' "/proc/$1/stat"; }
for pid in $(cat pids); do
    for ((i = 0; i < 100; ++i)); do alive "$pid" && sleep 0.1 || break; done
    if alive "$pid"; then fail "process $pid is left: $(tr '\0' ' ' <"/proc/$pid/cmdline")"; fi
done
# A daemon that refuses its clients is not used.
printf '#!/bin/sh\ntest -z "$CUDA_MPS_PIPE_DIRECTORY"\n' >build/bin/device_gpu_bench && chmod +x build/bin/device_gpu_bench
echo 'together 20 run,mps test -z "${CUDA_MPS_PIPE_DIRECTORY:-}"' >plan
run 0 && says 'MPS does not run'
# What was built elsewhere is unpacked once and run, and stands where it was built; a build folder is not overwritten.
mkdir -p packed/bin packed/lib && printf '#!/bin/sh\n' >packed/bin/program && chmod +x packed/bin/program
printf '%s\n%s\n13.0\n' "$(cd "$here/../.." && pwd)" "$work/elsewhere/build" >packed/built_at
tar -cJf packed.txz -C packed .
echo "prebuilt 20 run test -x \$TANDEM_BIN/program && test $work/elsewhere/build/bin -ef \$TANDEM_BIN" >plan
mv cuda/bin/nvcc hidden
TANDEM_BUILD=$work/unpacked run 0 --prebuilt packed.txz
says 'built by nvcc +13.0' && says 'prebuilt +passed'
# Attention alone, of all parts.
printf 'some_attention 20 run true\nothers 20 run true\n' >plan
TANDEM_BUILD=$work/unpacked "$check" --out "$work/results" --only attention --prebuilt packed.txz >out 2>&1 || fail "--only attention"
says 'some_attention +passed' && silent '^others'
rm elsewhere/build && mkdir elsewhere/build
TANDEM_BUILD=$work/unpacked run 2 --prebuilt packed.txz
says 'which is something else here'
touch build/CMakeCache.txt && run 2 --prebuilt packed.txz && says 'is a build folder'
run 2 --prebuilt nothing.txz && says "no file '.*/nothing.txz'"
mv hidden cuda/bin/nvcc && rm build/CMakeCache.txt
echo passed
