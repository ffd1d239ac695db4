#!/usr/bin/env bash
# TRL's trainers against a real vLLM on the CPU, synced by tandem_sync.trl.
#   trl_trainers.sh VENV LIBRARY [options of trl_trainers.py]
# VENV: a virtual environment with vLLM's CPU build and, beside it, `pip install trl==1.16.0 accelerate datasets peft`;
# LIBRARY: libtandem_sync.so. Not in CTest: the environment takes 6 GB. Examples:
#   trl_trainers.sh ~/vllm build/cpu/lib/libtandem_sync.so --kills 5
#   trl_trainers.sh ~/vllm build/cpu/lib/libtandem_sync.so --plugin build/cpu/lib/libtandem_sync.so
set -euo pipefail
venv=$1 library=$2
shift 2
export HF_HUB_OFFLINE=1 VLLM_TARGET_DEVICE=cpu VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1
export CUDA_VISIBLE_DEVICES= PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "$venv/bin/python" "$(dirname "$0")/trl_trainers.py" --venv "$venv" --library "$library" "$@"
