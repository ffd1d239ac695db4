#!/usr/bin/env bash
# Tandem's pipeline parallelism against PyTorch's on two ranks, 1F1B, Qwen2.5-0.5B or SmolLM2-135M shapes, fp32, beside what
# data parallelism (PyTorch's FSDP2) gives for the same step: four runs a round, one after the other, from the same weights on
# the same tokens. A step has MICROBATCHES sequences, and a micro-batch one of them: pp 2 has all, a rank of dp 2 half as many,
# whose gradients are reduced once.
#
#   tests/bench/peers/compare_pipeline.sh [--bin PATH/train_curve] [--model qwen2.5|smollm2] [--layers N] [--last-less N]
#                                         [--microbatches N] [--length TOKENS] [--steps N] [--rounds N]
#
# TORCH_PYTHON is a Python with PyTorch 2.13 and transformers (README.md beside says how to make one). --last-less: layers that
# the head weighs where layers are cut into stages; Qwen2.5's takes the time of 11 at 512 tokens, so that --layers 12
# --last-less 11 are two equal stages, SmolLM2's that of 6 at 2048: --layers 12 --last-less 6.
# Prints tokens/s (medians over the rounds) and the ratios of each round; the same of processor time, which waits are not part
# of, and other programs on the machine hardly change; and pp 2 over dp 2 beside its limit, 10% above 1F1B's bubble.
# Exits with 1 when the losses of the four part by more than 2e-3, or the two sides cut the layers differently.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$here/../../../build/cpu/bin/train_curve
model=qwen2.5 layers=4 last_less=1 microbatches=8 length=512 steps=2 rounds=3
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || { echo "$1 needs a value; usage: see the head of $0" >&2; exit 2; }
    case "$1" in
    --bin) bin=$2 ;;
    --model) model=$2 ;;
    --layers) layers=$2 ;;
    --last-less) last_less=$2 ;;
    --microbatches) microbatches=$2 ;;
    --length) length=$2 ;;
    --steps) steps=$2 ;;
    --rounds) rounds=$2 ;;
    *) echo "unknown option $1; usage: see the head of $0" >&2; exit 2 ;;
    esac
    shift 2
done
[ $((microbatches % 2)) = 0 ] || { echo "--microbatches $microbatches: two ranks of dp have half each" >&2; exit 2; }
python=${TORCH_PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" "$here/torch_fsdp2.py" --make "$work/model" --model "$model" --layers "$layers" --curve $((steps + 1)) --ranks 2 \
    --rows $((microbatches / 2)) --length "$length"
common=(--init "$work/model" --data "$work/model/data.json" --ranks 2)
dp=("${common[@]}" --microbatches $((microbatches / 2)))
pp=("${common[@]}" --microbatches "$microbatches" --last-less "$last_less")
for round in $(seq "$rounds"); do
    "$bin" "${dp[@]}" >"$work/$round.dp.ours"
    "$python" "$here/torch_fsdp2.py" "${dp[@]}" --json >"$work/$round.dp.peer"
    "$bin" "${pp[@]}" --pp 2 --schedule 1F1B >"$work/$round.pp.ours"
    "$python" "$here/torch_pipeline.py" "${pp[@]}" --json >"$work/$round.pp.peer"
done

"$python" - "$work" "$rounds" "$microbatches" <<'PYTHON'
import json
import pathlib
import statistics
import sys

work, rounds, microbatches = pathlib.Path(sys.argv[1]), range(1, int(sys.argv[2]) + 1), int(sys.argv[3])
found = {(side, axis): [json.loads((work / f"{i}.{axis}.{side}").read_text()) for i in rounds]
         for side in ("ours", "peer") for axis in ("dp", "pp")}
names = {(side, axis): f"{name} {axis} 2" for side, name in (("ours", "Tandem"), ("peer", "PyTorch")) for axis in ("dp", "pp")}


def show(text, each):
    print(f"  {text}: {statistics.median(each):.2f} ({', '.join(f'{one:.2f}' for one in each)})")


def alone(one):
    """The time of a step on a machine without other programs, from processor time: of a pipeline the busier stage's, with one
    micro-batch of the other, which comes before it and behind it; and the optimizer."""
    busy = one["busy_s"]
    optimizer = one["cpu_s"] - statistics.mean(busy)
    return max(busy) + (min(busy) / microbatches if one.get("pp", 1) > 1 else 0) + optimizer


def imbalance(one):
    """1F1B's time over what two equal stages would take without a bubble."""
    busy = one["busy_s"]
    return (max(busy) + min(busy) / microbatches) / statistics.mean(busy)


stages = found["ours", "pp"][0]["stages"]
cut = [f"{'E+' * (not i)}{end - first}{'+H' * (i + 1 == len(stages))}" for i, (first, end) in enumerate(stages)]
print(f"stages {' | '.join(cut)} (E: embedding, H: head); {microbatches} micro-batches of one sequence a step")
for unit, speed in (("tokens/s", lambda one: one["tokens_per_s"]),
                    ("tokens per processor second of a rank", lambda one: one["tokens_per_step"] / one["cpu_s"] / 2)):
    print(f"fp32, {unit}: median of the rounds (each round)")
    rates = {key: [speed(one) for one in each] for key, each in found.items()}
    ratio = {}
    for key, name in names.items():
        show(name, rates[key])
    for above, below in ((("ours", "dp"), ("peer", "dp")), (("ours", "pp"), ("peer", "pp")), (("ours", "pp"), ("ours", "dp")),
                         (("peer", "pp"), ("peer", "dp"))):
        ratio[above, below] = [a / b for a, b in zip(rates[above], rates[below])]
        show(f"{names[above]} over {names[below]}", ratio[above, below])
    show("Tandem over PyTorch, pp 2's over dp 2's (at least 0.9)",
         [a / b for a, b in zip(ratio[("ours", "pp"), ("peer", "pp")], ratio[("ours", "dp"), ("peer", "dp")])])

print("seconds of a step: forward, backward and sums of gradients by processor time, then pp 2 over dp 2")
for side, axis in names:
    for rank in range(2):
        show(f"{names[side, axis]}, rank {rank} busy", [one["busy_s"][rank] for one in found[side, axis]])
for side in ("ours", "peer"):
    pairs = list(zip(found[side, "pp"], found[side, "dp"]))
    show(f"{names[side, 'pp']} over dp 2, as timed", [pp["median_s"] / dp["median_s"] for pp, dp in pairs])
    show(f"{names[side, 'pp']} over dp 2, by processor time and the bubble", [alone(pp) / alone(dp) for pp, dp in pairs])
    show("  limit for these stages, 10% above bubble and imbalance", [1.1 * imbalance(pp) for pp, _ in pairs])
print(f"  limit for equal stages, 10% above the bubble: {1.1 * (microbatches + 1) / microbatches:.2f}")

losses = [one["losses"] for each in found.values() for one in each]
apart = max(abs(a - b) for one in losses for a, b in zip(one, losses[0], strict=True))
print(f"losses {losses[0][0]:.4f} -> {losses[0][-1]:.4f}; the runs differ by at most {apart:.1e}")
same_cut = all(one["stages"] == stages for side in ("ours", "peer") for one in found[side, "pp"])
if not same_cut:
    print("the two sides cut the layers differently", file=sys.stderr)
sys.exit(0 if same_cut and apart <= 2e-3 else 1)
PYTHON
