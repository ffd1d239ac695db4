#!/usr/bin/env bash
# Opens what a push sends to the weight-transfer backends "ipc", "nccl" and "sparse_nccl" with vLLM's own code. No GPU, no server.
#   vllm_payload.sh PYTHON PROGRAM
# PYTHON: one with vLLM 0.32 or 0.33 (tests/peers/vllm_push.sh says how it is installed); PROGRAM: build/cpu/bin/vllm_payload. Not
# in CTest: vLLM.
set -euo pipefail
python=$1 program=$2
echo "vLLM $("$python" -c 'import importlib.metadata as m; print(m.version("vllm"))' 2>/dev/null || echo '?'):"
"$python" "$(dirname "$0")/vllm_payload.py" --program "$program"
