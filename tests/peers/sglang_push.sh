#!/usr/bin/env bash
# Pushes weights into a real SGLang on the CPU and compares what it then says with transformers. NOT YET RUN: SGLang has
# no wheel of its CPU kernels, so that its environment must be built by hand.
#   sglang_push.sh VENV PROGRAM [options of sglang_push.py]
# VENV: a virtual environment with SGLang and transformers; PROGRAM: tandem-sync. Examples:
#   sglang_push.sh ~/sglang build/cpu/bin/tandem-sync
#   sglang_push.sh ~/sglang build/cpu/bin/tandem-sync --scheme sglang+tensor
# With a GPU: --server "--device cuda"
set -euo pipefail
venv=$1 program=$2
shift 2
export HF_HUB_OFFLINE=1 SGLANG_USE_CPU_ENGINE="${SGLANG_USE_CPU_ENGINE:-1}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
exec "$venv/bin/python" "$(dirname "$0")/sglang_push.py" --python "$venv/bin/python" --program "$program" "$@"
