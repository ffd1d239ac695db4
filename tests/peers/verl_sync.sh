#!/usr/bin/env bash
# verl's checkpoint engine by tandem_sync.verl, on the CPU.
#   verl_sync.sh VENV LIBRARY [--serve VLLM_VENV]
# VENV: `pip install verl==0.9.1 torch==2.13.0 ray uvicorn fastapi peft`, apart from TRL's, beside which verl does not import;
# LIBRARY: libtandem_sync.so; VLLM_VENV: with vLLM's CPU build, into whose server the actors then push, too. Not in CTest: the
# environments take 8 GB. Example:
#   verl_sync.sh ~/verl build/cpu/lib/libtandem_sync.so --serve ~/vllm
set -euo pipefail
venv=$1 library=$2
shift 2
export HF_HUB_OFFLINE=1 VLLM_TARGET_DEVICE=cpu VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1
export CUDA_VISIBLE_DEVICES= PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "$venv/bin/python" "$(dirname "$0")/verl_sync.py" --library "$library" "$@"
