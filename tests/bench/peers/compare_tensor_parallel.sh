#!/usr/bin/env bash
# Tandem's tensor parallelism against PyTorch's on two ranks, Qwen2.5-0.5B shapes, beside what data parallelism (PyTorch's
# FSDP2) gives for the same step: four runs a round, one after the other, from the same weights on the same tokens. A step has
# ROWS sequences for each rank: with tp 2 both ranks see all of them.
#
#   tests/bench/peers/compare_tensor_parallel.sh [--bin PATH/train_curve] [--layers N] [--rows N] [--length TOKENS]
#                                                [--steps N] [--rounds N] [--dtype fp32|bf16] [--sequence-parallel 0|1]
#
# TORCH_PYTHON is a Python with PyTorch and transformers (README.md beside says how to make one). Prints tokens/s (medians
# over the rounds) and the ratios of each round; the same of the processor time of a step, which waits are not part of, and
# other programs on the machine hardly change. Exits with 1 when the losses of the four part by more than 2e-3 in fp32.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$here/../../../build/cpu/bin/train_curve
layers=24 rows=1 length=512 steps=2 rounds=3 dtype=fp32 sequence=1
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || { echo "$1 needs a value; usage: see the head of $0" >&2; exit 2; }
    case "$1" in
    --bin) bin=$2 ;;
    --layers) layers=$2 ;;
    --rows) rows=$2 ;;
    --length) length=$2 ;;
    --steps) steps=$2 ;;
    --rounds) rounds=$2 ;;
    --dtype) dtype=$2 ;;
    --sequence-parallel) sequence=$2 ;;
    *) echo "unknown option $1; usage: see the head of $0" >&2; exit 2 ;;
    esac
    shift 2
done
python=${TORCH_PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" "$here/torch_fsdp2.py" --make "$work/model" --model qwen2.5 --layers "$layers" --curve $((steps + 1)) --ranks 2 \
    --rows "$rows" --length "$length"
common=(--init "$work/model" --data "$work/model/data.json" --dtype "$dtype" --ranks 2 --sequence-parallel "$sequence")
for round in $(seq "$rounds"); do
    for tp in 1 2; do
        "$bin" "${common[@]}" --tp "$tp" >"$work/$round.$tp.ours"
        "$python" "$here/torch_fsdp2.py" "${common[@]}" --tp "$tp" --json >"$work/$round.$tp.peer"
    done
done

"$python" - "$work" "$rounds" "$dtype" <<'PYTHON'
import json
import pathlib
import statistics
import sys

work, rounds, dtype = pathlib.Path(sys.argv[1]), range(1, int(sys.argv[2]) + 1), sys.argv[3]
found = {(side, tp): [json.loads((work / f"{i}.{tp}.{side}").read_text()) for i in rounds]
         for side in ("ours", "peer") for tp in (1, 2)}
names = {("ours", 1): "Tandem dp 2", ("ours", 2): "Tandem tp 2", ("peer", 1): "PyTorch dp 2", ("peer", 2): "PyTorch tp 2"}


def show(text, each):
    print(f"  {text}: {statistics.median(each):.2f} ({', '.join(f'{one:.2f}' for one in each)})")


for unit, speed in (("tokens/s", lambda one: one["tokens_per_s"]),
                    ("tokens per processor second of a rank", lambda one: one["tokens_per_step"] / one["cpu_s"] / 2)):
    print(f"{dtype}, {unit}: median of the rounds (each round)")
    rates = {key: [speed(one) for one in each] for key, each in found.items()}
    for key, name in names.items():
        show(name, rates[key])
    for above, below in ((("ours", 1), ("peer", 1)), (("ours", 2), ("peer", 2)), (("ours", 2), ("ours", 1)),
                         (("peer", 2), ("peer", 1))):
        show(f"{names[above]} over {names[below]}", [a / b for a, b in zip(rates[above], rates[below])])
losses = [one["losses"] for each in found.values() for one in each]
apart = max(abs(a - b) for one in losses for a, b in zip(one, losses[0], strict=True))
print(f"losses {losses[0][0]:.4f} -> {losses[0][-1]:.4f}; the runs differ by at most {apart:.1e}")
sys.exit(1 if dtype == "fp32" and apart > 2e-3 else 0)
PYTHON
