#!/usr/bin/env bash
# Tests the Python package against a real tandem-engine: examples of the documentation, and models of many layouts
# (FSDP2, HSDP, TP, uneven rows, tied), whose bytes in the engine, and in the ranks of a tensor-parallel one, are compared
# with full_tensor()'s. Not part of ctest: needs PyTorch.
#   scripts/python_check.sh PYTHON [CASE]…     PYTHON: an interpreter with torch, numpy and xxhash
#   scripts/python_check.sh PYTHON --bench …    times instead: tests/clients/python/bench.py
#   scripts/python_check.sh PYTHON --vllm …     into a real vLLM instead: tests/clients/python/real_vllm.py
#   TANDEM_BUILD=DIR                           where libtandem_sync.so and tandem-engine are (default build/cpu)
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] && [ -x "$1" ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
python=$1
shift
build=${TANDEM_BUILD:-build/cpu}
export TANDEM_SYNC_LIBRARY="$PWD/$build/lib/libtandem_sync.so" TANDEM_ENGINE="$PWD/$build/bin/tandem-engine"
export TANDEM_SYNC="$PWD/$build/bin/tandem-sync"
export PYTHONPATH="$PWD/sync/python:$PWD/tests/clients/python${PYTHONPATH:+:$PYTHONPATH}" PYTHONPYCACHEPREFIX="$PWD/$build/pycache" OMP_NUM_THREADS=1
unset PYTHONDONTWRITEBYTECODE
if [ "${1:-}" = --bench ]; then
    shift
    unset OMP_NUM_THREADS
    exec "$python" tests/clients/python/bench.py "$@"
elif [ "${1:-}" = --vllm ]; then
    shift
    export HF_HUB_OFFLINE=1 VLLM_TARGET_DEVICE=cpu VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1
    export CUDA_VISIBLE_DEVICES=
    exec "$python" tests/clients/python/real_vllm.py "$@"
fi
before=$(ls -A /dev/shm)
"$python" tests/clients/python/import_time.py
[ $# -gt 0 ] || "$python" tests/clients/python/doctests.py
[ $# -gt 0 ] || "$python" tests/clients/python/staging.py
[ $# -gt 0 ] || "$python" tests/clients/python/agreement.py
[ $# -gt 0 ] || "$python" tests/clients/python/board.py
[ $# -gt 0 ] || "$python" tests/clients/python/hooks.py
[ $# -gt 0 ] || "$python" tests/clients/python/misuse.py
[ $# -gt 0 ] || "$python" tests/clients/python/meshes.py
"$python" tests/clients/python/layouts.py "$@"
[ "$(ls -A /dev/shm)" = "$before" ] || { echo "left in /dev/shm: $(ls -A /dev/shm)" >&2; exit 1; }
