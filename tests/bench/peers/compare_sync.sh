#!/usr/bin/env bash
# Tandem's weight sync against PyTorch's way of doing it, alternately in one run, so that both meet the same machine.
#
#   tests/bench/peers/compare_sync.sh [--bin PATH/tandem-sync] [--shapes NAME] [--mesh dp,cp]... [--bucket-mib N]
#                                     [--mode MODE] [--iterations N] [--rounds N]
#
# TORCH_PYTHON is a Python with PyTorch (default python3; README.md beside says how to make one). Prints a table: the
# median of the rounds' medians on both sides and their ratio, then the same of the least times, which other load on the
# machine disturbs less. Exits with 1 when either side's bytes were not verified.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$here/../../../build/release/bin/tandem-sync
shapes=SmolLM2-135M meshes=() bucket_mib=64 mode=gather iterations=5 rounds=2
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || { echo "$1 needs a value; usage: see the head of $0" >&2; exit 2; }
    case "$1" in
    --bin) bin=$2 ;;
    --shapes) shapes=$2 ;;
    --mesh) meshes+=("$2") ;;
    --bucket-mib) bucket_mib=$2 ;;
    --mode) mode=$2 ;;
    --iterations) iterations=$2 ;;
    --rounds) rounds=$2 ;;
    *) echo "unknown option $1; usage: see the head of $0" >&2; exit 2 ;;
    esac
    shift 2
done
[ ${#meshes[@]} -gt 0 ] || meshes=(2,1 2,2)
python=${TORCH_PYTHON:-python3}
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

# A side whose bytes differ prints its JSON and fails: it is the table that says so.
for mesh in "${meshes[@]}"; do
    for round in $(seq "$rounds"); do
        common=(--shapes "$shapes" --mesh "$mesh" --bucket-mib "$bucket_mib" --iterations "$iterations" --json)
        "$bin" bench "${common[@]}" --mode "$mode" >"$results/$mesh.$round.ours" || true
        "$python" "$here/torch_sync.py" "${common[@]}" >"$results/$mesh.$round.peer" || true
    done
done

"$python" - "$results" "$rounds" "${meshes[@]}" <<'PYTHON'
import json
import pathlib
import statistics
import sys

folder, rounds, meshes = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]


def load(mesh, side):
    texts = [(folder / f"{mesh}.{round}.{side}").read_text() for round in range(1, rounds + 1)]
    if not all(text.strip() for text in texts):
        sys.exit(f"compare_sync: {side} failed at mesh {mesh}; its message is above")
    return [json.loads(text) for text in texts]


good = True
for number, mesh in enumerate(meshes):
    ours, peer = load(mesh, "ours"), load(mesh, "peer")
    if number == 0:
        first = ours[0]
        print(f"{first['shapes']}, {first['bytes'] / 1e6:.0f} MB, {first['mode']}, buckets of "
              f"{first['bucket_bytes'] / 1048576:g} MiB; PyTorch {peer[0]['version']}\n{first['hardware']}\n")
        print(f"  {'mesh':<8}{'tandem':>12}{'PyTorch':>12}{'times':>10}{'least':>12}{'least':>12}{'times':>10}   verified")
    if any(one["bytes"] != ours[0]["bytes"] for one in ours + peer):
        sys.exit("compare_sync: the two sides pushed different amounts of bytes")
    verified = all(one["verified"] for one in ours + peer)
    good = good and verified
    a, b = (statistics.median(one["median_ms"] for one in side) for side in (ours, peer))
    c, d = (min(one["min_ms"] for one in side) for side in (ours, peer))
    print(f"  {mesh:<8}{a:>9.1f} ms{b:>9.1f} ms{b / a:>9.1f}x{c:>9.1f} ms{d:>9.1f} ms{d / c:>9.1f}x"
          f"   {'yes' if verified else 'NO'}")
sys.exit(0 if good else 1)
PYTHON
