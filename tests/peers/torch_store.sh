#!/usr/bin/env bash
# Lets the clients of real PyTorches use our store, and form a process group by it.
#   torch_store.sh PROGRAM PYTHON…
# PROGRAM: build/cpu/bin/torch_store; PYTHON: each one with PyTorch. Not in CTest: PyTorch.
set -euo pipefail
program=$1
shift
for python in "$@"; do
    "$python" "$(dirname "$0")/torch_store.py" --program "$program"
done
