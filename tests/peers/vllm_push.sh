#!/usr/bin/env bash
# Pushes weights into a real vLLM on the CPU and compares what it then says with transformers.
#   vllm_push.sh VENV PROGRAM [options of vllm_push.py]
# VENV: a virtual environment with vLLM's CPU build and transformers (scripts/vllm_environment.sh, or vllm_overlay.sh for a
# version that has none yet); PROGRAM: tandem-sync. Not in CTest: the environment takes 6 GB. Examples:
#   vllm_push.sh ~/vllm build/cpu/bin/tandem-sync --family qwen3 --tied --tokenizer models/smollm2 --pushes 100
#   vllm_push.sh ~/vllm build/cpu/bin/tandem-sync --family llama --tokenizer models/smollm2 --kills 30 --traffic
#   vllm_push.sh ~/vllm build/cpu/bin/tandem-sync --model models/smollm2 --dtype bfloat16
#   VLLM_CPU_OMP_THREADS_BIND='0|1' vllm_push.sh … --serve-option=--tensor-parallel-size=2      two workers on one NUMA node
#   vllm_push.sh ~/vllm build/cpu/bin/tandem-sync --plugin build/cpu/lib/libtandem_sync.so --family llama --tied --tokenizer models/smollm2
set -euo pipefail
venv=$1 program=$2
shift 2
export HF_HUB_OFFLINE=1 VLLM_TARGET_DEVICE=cpu VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1
export CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
exec "$venv/bin/python" "$(dirname "$0")/vllm_push.py" --vllm "$venv/bin/vllm" --program "$program" "$@"
