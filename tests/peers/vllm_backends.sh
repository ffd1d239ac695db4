#!/usr/bin/env bash
# Pushes into a real vLLM on the CPU by the weight-transfer backends that come with it, from an emulated GPU.
#   vllm_backends.sh VENV PROGRAM --tokenizer DIRECTORY [options of vllm_backends.py]
# VENV: as of vllm_push.sh; PROGRAM: tandem-sync of a build with tests, which has emulated GPUs. Not in CTest: vLLM.
set -euo pipefail
venv=$1 program=$2
shift 2
export HF_HUB_OFFLINE=1 VLLM_TARGET_DEVICE=cpu VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1
export VLLM_ALLOW_INSECURE_SERIALIZATION=1 CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
exec "$venv/bin/python" "$(dirname "$0")/vllm_backends.py" --vllm "$venv/bin/vllm" --program "$program" "$@"
