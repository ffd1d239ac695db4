#!/usr/bin/env bash
# Loads weights into a real SGLang on the CPU by checkpoint-engine's protocol, from our sender.
#   sglang_ipc.sh VENV PROGRAM [FOLDER] [options of sglang_ipc.py]
# VENV: made by sglang_cpu.sh; PROGRAM: build/cpu/bin/checkpoint_engine; FOLDER: with unpacked wheels, as
# checkpoint_engine.sh leaves it. Not in CTest: SGLang.
set -euo pipefail
venv=$1 program=$2 folder=${3:-${TMPDIR:-/tmp}/checkpoint_engine_wheels}
shift $(($# < 3 ? $# : 3))
here=$(cd "$(dirname "$0")" && pwd)
export HF_HUB_OFFLINE=1 SGLANG_USE_CPU_ENGINE=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
export PYTHONPATH="$here/checkpoint_engine_stub:$here/sglang_cpu${PYTHONPATH:+:$PYTHONPATH}"
exec "$venv/bin/python" "$here/sglang_ipc.py" --python "$venv/bin/python" --program "$program" --wheels "$folder" "$@"
