#!/usr/bin/env bash
# Trains with a real vLLM on the CPU that is sent its weights by its backends "sparse_nccl" and "nccl", from an emulated GPU.
#   vllm_nccl.sh VENV TRAIN --tokenizer DIRECTORY [options of vllm_nccl.py]
# VENV: as of vllm_push.sh; TRAIN: tandem-train of a build with tests, which has emulated GPUs; from the repository's root.
# Not in CTest: vLLM.
set -euo pipefail
venv=$1 train=$2
shift 2
export HF_HUB_OFFLINE=1 VLLM_TARGET_DEVICE=cpu VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1
export CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
exec "$venv/bin/python" "$(dirname "$0")/vllm_nccl.py" --vllm "$venv/bin/vllm" --train "$train" "$@"
