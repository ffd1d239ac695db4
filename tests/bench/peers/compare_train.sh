#!/usr/bin/env bash
# Tandem's training against PyTorch FSDP2's, SmolLM2-135M shapes: first the loss of each of N supervised steps from the
# same weights on the same tokens, then tokens/s, both sides alternately in one run.
#
#   tests/bench/peers/compare_train.sh [--bin PATH/train_curve] [--ranks N] [--curve STEPS] [--rows N] [--length TOKENS]
#                                      [--rounds N] [--dtypes fp32,bf16]
#
# --curve 0 leaves the curve out, --rounds 0 the throughput, --dtypes fp32 PyTorch's bf16, which takes minutes a step where
# there is no AVX-512. TORCH_PYTHON is a Python with PyTorch and transformers (README.md beside says how to make one). Exits
# with 1 when the curves part by more than 2e-3 in fp32.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$here/../../../build/cpu/bin/train_curve
ranks=2 curve=50 rows=1 length=512 rounds=2 dtypes=fp32,bf16
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || { echo "$1 needs a value; usage: see the head of $0" >&2; exit 2; }
    case "$1" in
    --bin) bin=$2 ;;
    --ranks) ranks=$2 ;;
    --curve) curve=$2 ;;
    --rows) rows=$2 ;;
    --length) length=$2 ;;
    --rounds) rounds=$2 ;;
    --dtypes) dtypes=$2 ;;
    *) echo "unknown option $1; usage: see the head of $0" >&2; exit 2 ;;
    esac
    shift 2
done
python=${TORCH_PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# both NAME DTYPE DATA LR: the two sides, one after the other, their JSON in $work
both() {
    local common=(--init "$work/model" --data "$3" --dtype "$2" --ranks "$ranks" --lr "$4" --weight-decay 0.1)
    "$bin" "${common[@]}" >"$work/$1.ours"
    "$python" "$here/torch_fsdp2.py" "${common[@]}" --json >"$work/$1.peer"
}

names=()
if [ "$curve" -gt 0 ]; then
    "$python" "$here/torch_fsdp2.py" --make "$work/model" --curve "$curve" --ranks "$ranks" --rows 2 --length 64
    for dtype in ${dtypes//,/ }; do
        both "curve.$dtype" "$dtype" "$work/model/data.json" 3e-4
        names+=("curve.$dtype")
    done
fi
if [ "$rounds" -gt 0 ]; then
    "$python" "$here/torch_fsdp2.py" --make "$work/model" --curve 3 --ranks "$ranks" --rows "$rows" --length "$length"
    for round in $(seq "$rounds"); do
        for dtype in ${dtypes//,/ }; do
            both "rate.$dtype.$round" "$dtype" "$work/model/data.json" 1e-4
            names+=("rate.$dtype.$round")
        done
    done
fi

"$python" - "$work" "${names[@]}" <<'PYTHON'
import json
import pathlib
import statistics
import sys

work, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
sides = {name: [json.loads((work / f"{name}.{side}").read_text()) for side in ("ours", "peer")] for name in names}
good = True
for name, (ours, peer) in sides.items():
    if not name.startswith("curve"):
        continue
    apart = [abs(a - b) for a, b in zip(ours["losses"], peer["losses"], strict=True)]
    step = max(range(len(apart)), key=apart.__getitem__)
    print(f"{ours['dtype']}: {len(apart)} steps, loss {ours['losses'][0]:.3f} -> {ours['losses'][-1]:.3f}; "
          f"PyTorch's differs by at most {apart[step]:.1e} (step {step + 1})")
    good = good and (ours["dtype"] != "fp32" or apart[step] <= 2e-3)
if {"curve.fp32", "curve.bf16"} <= sides.keys():  # bf16 parts from fp32 by itself: how far on either side
    truth = sides["curve.fp32"][1]["losses"]
    for side, who in zip(sides["curve.bf16"], ("Tandem", "PyTorch"), strict=True):
        print(f"{who}'s bf16 differs from PyTorch's fp32 by at most {max(abs(a - b) for a, b in zip(side['losses'], truth, strict=True)):.1e}")
rates = {}
for name, pair in sides.items():
    if name.startswith("rate"):
        rates.setdefault(pair[0]["dtype"], []).append([side["tokens_per_s"] for side in pair])
for dtype, rounds in rates.items():
    ours, peer = (statistics.median(side) for side in zip(*rounds))
    print(f"{dtype}: {ours:.0f} tokens/s, PyTorch {peer:.0f}: {ours / peer:.2f}x")
if rates:
    best = max(statistics.median(p for _, p in rounds) for rounds in rates.values())
    print("against PyTorch's better precision: " + ", ".join(
        f"{dtype} {statistics.median(o for o, _ in rounds) / best:.2f}x" for dtype, rounds in rates.items()))
sys.exit(0 if good else 1)
PYTHON
