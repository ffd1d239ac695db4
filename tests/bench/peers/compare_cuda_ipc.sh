#!/usr/bin/env bash
# A colocated weight sync on one GPU by Tandem (direct, gather, alias) and by PyTorch (torch_cuda_ipc.py), alternately in
# one run, so that both meet the same machine.
#
#   tests/bench/peers/compare_cuda_ipc.sh [--bin PATH/tandem-sync] [--shapes NAME] [--bucket-mib N] [--iterations N]
#                                         [--measured FOLDER] [--out FILE.json]
#
# With --measured Tandem's side is not run again: FOLDER holds its JSON (sync_bench_direct.json, …_gather, …_alias) from
# the same machine, and PyTorch runs once.
# TORCH_PYTHON is a Python whose PyTorch sees the GPU (default python3). Writes one JSON object with both sides' medians,
# each side's ratio to its own speed of light, and how many times faster Tandem is (pause to resume; and with what it
# prepares before the pause). Exit code 0: done, 1: a side failed or its bytes were not verified, 2: bad usage,
# 77: skipped for want of PyTorch, and the JSON says why.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${TANDEM_BIN:-$here/../../../build/cuda/bin}/tandem-sync
shapes=Qwen3-4B bucket_mib=512 iterations=10 out="" measured=""
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || { echo "$1 needs a value; usage: see the head of $0" >&2; exit 2; }
    case "$1" in
    --bin) bin=$2 ;;
    --shapes) shapes=$2 ;;
    --bucket-mib) bucket_mib=$2 ;;
    --iterations) iterations=$2 ;;
    --out) out=$2 ;;
    --measured) measured=$2 ;;
    *) echo "unknown option $1; usage: see the head of $0" >&2; exit 2 ;;
    esac
    shift 2
done
python=${TORCH_PYTHON:-python3}

leave() { # the JSON on the input
    if [ -n "$out" ]; then cat >"$out"; else cat; fi
}
skip() {
    printf '{"shapes": "%s", "skipped": "%s"}\n' "$shapes" "$1" | leave
    echo "skipped: $1" >&2
    exit 77
}
command -v "$python" >/dev/null || skip "there is no Python named '$python' (TORCH_PYTHON)"
"$python" -c 'import torch' 2>/dev/null || skip "'$python' has no PyTorch (TORCH_PYTHON names one that has)"
"$python" -c 'import sys, torch; sys.exit(0 if torch.cuda.device_count() > 0 else 1)' 2>/dev/null ||
    skip "the PyTorch of '$python' sees no GPU"

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
common=(--shapes "$shapes" --iterations "$iterations" --json)
peer() { "$python" "$here/torch_cuda_ipc.py" "${common[@]}" --bucket-mib "$bucket_mib" >"$results/torch.$1.json" || failed=1; }
failed=0
# The peer first and last: a machine that slows down meanwhile is then no one's advantage.
peer 1
for mode in direct gather alias; do
    if [ -n "$measured" ]; then
        cp "$measured/sync_bench_$mode.json" "$results/$mode.json" || failed=1
    else
        "$bin" bench "${common[@]}" --mesh 1 --mode "$mode" --device cuda >"$results/$mode.json" || failed=1
    fi
done
[ -n "$measured" ] || peer 2

"$python" - "$results" >"$results/all.json" <<'PYTHON' || failed=1
import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])


def load(name):
    file = folder / f"{name}.json"
    text = file.read_text() if file.exists() else ""
    if not text.strip():
        sys.exit(f"compare_cuda_ipc: {name} failed; its message is above")
    return json.loads(text)


peers = [load(file.stem) for file in sorted(folder.glob("torch.*.json"))]
peer = min(peers, key=lambda one: one["median_ms"])
result = {
    "shapes": peer["shapes"], "bytes": peer["bytes"], "hardware": peer["hardware"], "torch": peer["torch"],
    "peer_medians_ms": [one["median_ms"] for one in peers], "peer_ratio": peer["speed_of_light_ratio"],
    "verified": all(one["verified"] for one in peers), "tandem": {},
}
for mode in ("direct", "gather", "alias"):
    ours = load(mode)
    if ours["shapes"] != peer["shapes"] or ours["bytes"] != peer["bytes"]:
        sys.exit(f"compare_cuda_ipc: Tandem's {mode} pushed {ours['bytes']} bytes of {ours['shapes']}, "
                 f"PyTorch {peer['bytes']} of {peer['shapes']}")
    whole = ours["median_ms"] + ours["phase_ms"]["prepare"]
    result["verified"] = result["verified"] and ours["verified"]
    result["tandem"][mode] = {
        "median_ms": ours["median_ms"], "prepare_ms": ours["phase_ms"]["prepare"],
        "speed_of_light_ratio": ours["speed_of_light_ratio"], "times_faster": peer["median_ms"] / ours["median_ms"],
        "times_faster_with_prepare": peer["median_ms"] / whole, "emulated": ours.get("emulated", False),
    }
print(json.dumps(result, indent=2))
sys.exit(0 if result["verified"] else 1)
PYTHON
leave <"$results/all.json"
exit $failed
