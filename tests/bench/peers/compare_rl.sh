#!/usr/bin/env bash
# The same GRPO steps of SmolLM2-135M by tandem-train with its engine, by TRL with its own generation, and by TRL with a vLLM server
# that Tandem keeps in step: seconds a step, and generated tokens/s. Some 20 minutes on two cores.
#
#   tests/bench/peers/compare_rl.sh VENV [--bin DIR] [--model DIR] [--steps N] [--batch N] [--only SIDE]… [--json]
#
# VENV: scripts/vllm_environment.sh VENV trl==1.16.0 accelerate datasets jinja2; DIR of --bin: a release build's programs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] && [ -x "$1/bin/python" ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
venv=$1
shift
exec "$venv/bin/python" "$here/compare_rl.py" --venv "$venv" --bin "$here/../../../build/release/bin" \
    --model "$here/../../../models/smollm2" "$@"
