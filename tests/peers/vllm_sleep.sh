#!/usr/bin/env bash
# Pushes into a real vLLM on the CPU that sleeps, and trains with one (memory.engine_sleep); no memory is freed there.
#   vllm_sleep.sh VENV PROGRAM --tokenizer DIRECTORY [options of vllm_sleep.py]
# VENV: as of vllm_push.sh; PROGRAM: tandem-sync. Not in CTest: vLLM. Examples:
#   vllm_sleep.sh ~/vllm build/cpu/bin/tandem-sync --tokenizer models/smollm2 --train build/cpu/bin/tandem-train
#   vllm_sleep.sh ~/vllm build/cpu/bin/tandem-sync --tokenizer models/smollm2 --tied --plugin build/cpu/lib/libtandem_sync.so
set -euo pipefail
venv=$1 program=$2
shift 2
export HF_HUB_OFFLINE=1 VLLM_TARGET_DEVICE=cpu VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1
export CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
exec "$venv/bin/python" "$(dirname "$0")/vllm_sleep.py" --vllm "$venv/bin/vllm" --program "$program" "$@"
