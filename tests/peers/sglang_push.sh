#!/usr/bin/env bash
# Pushes weights into a real SGLang on the CPU and compares what it then says with transformers.
#   sglang_push.sh VENV PROGRAM [options of sglang_push.py]
# VENV: made by sglang_cpu.sh; PROGRAM: tandem-sync. Not in CTest: the environment takes 6 GB. Examples:
#   sglang_push.sh ~/sglang build/cpu/bin/tandem-sync --family qwen3 --tied --pushes 30
#   sglang_push.sh ~/sglang build/cpu/bin/tandem-sync --scheme sglang+tensor --family llama --kills 10 --failures
#   sglang_push.sh ~/sglang build/cpu/bin/tandem-sync --model models/smollm2 --dtype bfloat16
#   sglang_push.sh ~/sglang build/cpu/bin/tandem-sync --scheme sglang+ipc --checkpoint-engine /tmp/checkpoint_engine_wheels/0.4.2
#   sglang_push.sh ~/sglang build/cpu/bin/tandem-sync --plugin build/cpu/lib/libtandem_sync.so --tcp --kills 10 --failures
# With a GPU and SGLang as it is installed for one: --server "--skip-tokenizer-init --device cuda"
set -euo pipefail
venv=$1 program=$2
here=$(cd "$(dirname "$0")" && pwd)
shift 2
export HF_HUB_OFFLINE=1 SGLANG_USE_CPU_ENGINE="${SGLANG_USE_CPU_ENGINE:-1}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
[[ $SGLANG_USE_CPU_ENGINE == 0 ]] || export PYTHONPATH="$here/sglang_cpu${PYTHONPATH:+:$PYTHONPATH}"
exec "$venv/bin/python" "$here/sglang_push.py" --python "$venv/bin/python" --program "$program" "$@"
