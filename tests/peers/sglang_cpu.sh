#!/usr/bin/env bash
# Installs SGLang for trials on a CPU: the published package and the packages that it names, without those of GPUs.
#   sglang_cpu.sh install VENV [VERSION]           6 GB, 3 minutes; Python 3.11+; VERSION: 0.5.15.post1, 0.5.23
#   sglang_cpu.sh serve VENV MODEL_DIR PORT [flag…]   in the foreground; no network
# Nothing of SGLang is changed. On CPUs without AMX it computes with PyTorch; its own kernels for CPUs have no wheel, and
# sglang_cpu/sgl_kernel.py stands in for what newer versions import of them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
gpu_packages='cuda-python|decord2|flash-attn|flashinfer|humming-kernels|nvidia-(cutlass|mathdx)|nvshmem|quack-kernels|sgl-|sglang-kernel|tilelang|tokenspeed|torch.memory.saver|torchaudio|torchcodec'
unused='build|py-spy|smg-grpc-servicer|timm'
case "${1:-}" in
install)
    venv=$2 version=${3:-0.5.15.post1}
    python3 -m venv "$venv"
    pip=("$venv/bin/python" -m pip)
    "${pip[@]}" install -q --upgrade pip
    wheel=$(mktemp -d)
    trap 'rm -rf "$wheel"' EXIT
    "${pip[@]}" download -q --no-deps -d "$wheel" "sglang==$version"
    unzip -p "$wheel"/*.whl '*.dist-info/METADATA' | sed -n 's/^Requires-Dist: //p' | grep -v 'extra ==' |
        grep -viE "^($gpu_packages|($unused)([^a-z]|\$))" >"$wheel/requirements.txt"
    "${pip[@]}" install -q -r "$wheel/requirements.txt"
    "${pip[@]}" install -q --no-deps "$wheel"/*.whl
    ;;
serve)
    venv=$2 model=$3 port=$4
    shift 4
    export HF_HUB_OFFLINE=1 SGLANG_USE_CPU_ENGINE=1 PYTHONPATH="$here/sglang_cpu${PYTHONPATH:+:$PYTHONPATH}"
    exec "$venv/bin/python" -m sglang.launch_server --model-path "$model" --host 127.0.0.1 --port "$port" --device cpu \
        --attention-backend torch_native --disable-overlap-schedule --disable-cuda-graph --mem-fraction-static 0.2 \
        --sleep-on-idle "$@"
    ;;
*)
    sed -n '2,6s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
