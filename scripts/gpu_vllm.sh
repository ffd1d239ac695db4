#!/usr/bin/env bash
# Collects vLLM's CUDA build for a machine with a GPU, PyTorch and no network, in parts that travel one by one.
#   scripts/gpu_vllm.sh FOLDER PIP_LIST [PATH…]        PIP_LIST: what `python3 -m pip list` says over there, in a file
#   scripts/gpu_vllm.sh --unpack PREFIX PART…          over there, from all parts in their order: PREFIX/vllm is the command
#
# Left out: FlashAttention's kernels (300 MB; serve with --attention-backend TRITON_ATTN), those for mixtures and for quantised
# weights, FlashInfer (VLLM_USE_FLASHINFER_SAMPLER=0). What is left is built against PyTorch's stable ABI: 0.32, which asks for
# PyTorch 2.13, runs with 2.11. PATHs, programs and libraries of ours say, travel along and lie in PREFIX/with.
# GPU_VLLM_PYTHON: the Python over there (3.12). Exit code 0: done, 1: not, 2: bad usage.
set -euo pipefail
version=0.32.0 python=${GPU_VLLM_PYTHON:-3.12} part_bytes=$((34 << 20))
usage() { sed -n '2,10s/^# \{0,1\}//p' "$0"; }
case "${1:-}" in
-h | --help) usage && exit 0 ;;
--unpack)
    [ $# -ge 3 ] || { usage >&2 && exit 2; }
    prefix=$(realpath -m "$2")
    shift 2
    mkdir -p "$prefix"
    cat "$@" | tar -x -C "$prefix"
    unpacking=()
    for file in "$prefix"/*.txz; do tar -xJf "$file" -C "$prefix" && rm "$file" & unpacking+=($!); done
    for one in "${unpacking[@]}"; do wait "$one"; done
    cat >"$prefix/vllm" <<COMMAND
#!/bin/sh
export PYTHONPATH=$prefix/site\${PYTHONPATH:+:\$PYTHONPATH}
exec python3 -m vllm.entrypoints.cli.main "\$@"
COMMAND
    chmod +x "$prefix/vllm"
    exit
    ;;
esac
[ $# -ge 2 ] && [ -f "$2" ] || { usage >&2 && exit 2; }
folder=$(realpath -m "$1") there=$(realpath "$2")
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv" # a pip that resolves as here and there do
platforms=$(for i in $(seq 5 39); do echo "--platform manylinux_2_${i}_x86_64"; done)
pip() { "$work/venv/bin/pip" --disable-pip-version-check -q "$@"; }
for_there="--python-version $python --implementation cp --abi cp${python//./} --abi abi3 --abi none --only-binary=:all:
    --platform manylinux1_x86_64 --platform manylinux2010_x86_64 --platform manylinux2014_x86_64 $platforms"
pip download --no-deps -d "$work" $for_there "vllm==$version"
mkdir "$work/site"
(cd "$work/site" && python3 -m zipfile -e "$work"/vllm-*.whl .)
"$work/venv/bin/python" - "$work" "$there" <<'NEEDS'
import pathlib
import re
import sys

work, there = map(pathlib.Path, sys.argv[1:])
# Asked for, and imported by nothing that serves a model of ours.
NOT = ["torch", "nvidia", "cuda", "flashinfer", "tilelang", "quack", "tokenspeed", "humming", "fastsafetensors", "instanttensor",
       "pynvvideocodec", "opencv", "numba"]
metadata = next(work.glob("site/vllm-*.dist-info/METADATA")).read_text()
needs = [need for need in re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
         if "extra ==" not in need and not any(need.lower().startswith(name) for name in NOT)]
(work / "needs.txt").write_text("\n".join(need.replace("[image]", "") for need in needs))
have = dict(line.split()[:2] for line in there.read_text().splitlines() if len(line.split()) >= 2)
pins = ["transformers", "tokenizers", "safetensors", "huggingface_hub", "pillow", "protobuf", "pydantic"]
(work / "pins.txt").write_text("\n".join(f"{name}=={have[name]}" for name in pins if name in have))
NEEDS
pip install --dry-run --ignore-installed --target "$work/none" --report "$work/report.json" $for_there \
    -r "$work/needs.txt" -c "$work/pins.txt"
"$work/venv/bin/python" - "$work/report.json" "$there" >"$work/missing.txt" <<'MISSING'
import json
import re
import sys

have = {re.sub(r"[-_.]+", "-", line.split()[0]).lower() for line in open(sys.argv[2]) if line.split()}
for one in json.load(open(sys.argv[1]))["install"]:
    name = re.sub(r"[-_.]+", "-", one["metadata"]["name"]).lower()
    if name not in have and not name.startswith(("nvidia-", "cuda-", "torch")):
        print(f"{name}=={one['metadata']['version']}")
MISSING
pip install --no-deps --target "$work/site" $for_there -r "$work/missing.txt"

cd "$work/site"
rm -rf bin pycountry*/locales mistral_common/data/*tekken* vllm/vllm-rs vllm/third_party/{deep_gemm/include,fmha_sm100}
find vllm -name '*.so' ! -name '_C_stable_libtorch*' ! -name 'cumem_allocator*' ! -name 'spinloop*' -delete
find . \( -name __pycache__ -o -name '*.hpp' -o -name '*.cuh' -o -name '*.js' -o -name '*.jpg' \) -prune -exec rm -rf {} +
# It refuses to be imported without its kernels, also where another attention is asked for.
init=vllm/vllm_flash_attn/__init__.py
grep -q '^if not (FA2_AVAILABLE or FA3_AVAILABLE):' $init || { echo "scripts/gpu_vllm.sh: $init refuses in other words" >&2 && exit 1; }
sed -i '/^if not (FA2_AVAILABLE or FA3_AVAILABLE):/,/^    )/d' $init
cd "$work"
mkdir with
for path in "$@"; do cp -RL "$path" with/; done
mkdir parts
tar -c site/vllm/*.so | xz -T0 -6 --x86 --lzma2=preset=6 >parts/kernels.txz
tar -c --exclude='site/vllm/*.so' site | xz -T0 -6 >parts/site.txz
tar -c with | xz -6 --x86 --lzma2=preset=6,dict=256MiB >parts/with.txz
mkdir -p "$folder"
rm -f "$folder"/part.*
tar -c -C parts . | split -b "$part_bytes" -d - "$folder/part."
parts=("$folder"/part.*)
echo "vLLM $version, $(wc -l <missing.txt) packages, in ${#parts[@]} parts of at most $((part_bytes >> 20)) MiB: $folder"
