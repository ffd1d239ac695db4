#!/usr/bin/env bash
# What a push says of itself, into real vLLM servers on the CPU that were started with each kind of loader.
#   truth.sh VENV PROGRAM [options of truth.py]
# VENV: scripts/vllm_environment.sh VENV runai-model-streamer runai-model-streamer-s3 boto3; PROGRAM: tandem-sync. Not in CTest: the environment takes 6 GB. Example:
#   truth.sh ~/vllm build/cpu/bin/tandem-sync --tokenizer models/smollm2
set -euo pipefail
venv=$1 program=$2
shift 2
export HF_HUB_OFFLINE=1 VLLM_TARGET_DEVICE=cpu VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1
export CUDA_VISIBLE_DEVICES= PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
exec "$venv/bin/python" "$(dirname "$0")/truth.py" --vllm "$venv/bin/vllm" --program "$program" "$@"
