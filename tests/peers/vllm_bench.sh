#!/usr/bin/env bash
# For how long a push by our plug-in pauses a real vLLM on the CPU, beside vLLM's own reload of the same weights.
#   vllm_bench.sh VENV BUILD [options of vllm_bench.py]
# VENV: a virtual environment with vLLM's CPU build and transformers; BUILD: a build folder. Not in CTest. Examples:
#   vllm_bench.sh ~/vllm build/cpu --model models/smollm2
#   vllm_bench.sh ~/vllm build/cpu --tokenizer models/smollm2          random weights of Qwen3-0.6B's shapes
set -euo pipefail
venv=$1 build=$2
shift 2
export HF_HUB_OFFLINE=1 VLLM_TARGET_DEVICE=cpu VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1
export CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
exec "$venv/bin/python" "$(dirname "$0")/vllm_bench.py" --vllm "$venv/bin/vllm" --program "$build/bin/tandem-sync" \
    --plugin "$build/lib/libtandem_sync.so" "$@"
