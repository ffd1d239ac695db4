#!/usr/bin/env bash
# compare_cuda_ipc.sh --measured: what was measured before is read, not run again, and is of the same shapes.
#   tests/scripts/compare_cuda_ipc.sh
set -euo pipefail
compare=$(cd "$(dirname "$0")/.." && pwd)/bench/peers/compare_cuda_ipc.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir bin measured
printf '#!/bin/sh\ntouch %s/ran\nexit 1\n' "$work" >bin/tandem-sync
cat >python <<'STAND_IN'
#!/usr/bin/env bash
# A Python with PyTorch and a GPU, as far as the comparison asks.
case "$1" in
-c) exit 0 ;;
*torch_cuda_ipc.py) echo '{"median_ms": 30, "shapes": "Qwen3-4B", "bytes": 8, "hardware": "x", "torch": "2", "speed_of_light_ratio": 3, "verified": true}' ;;
*) exec python3 "$@" ;;
esac
STAND_IN
chmod +x bin/tandem-sync python
export TANDEM_BIN=$work/bin TORCH_PYTHON=$work/python
for mode in direct gather alias; do
    echo '{"median_ms": 10, "phase_ms": {"prepare": 5}, "shapes": "Qwen3-4B", "bytes": 8, "speed_of_light_ratio": 1, "verified": true}' \
        >measured/sync_bench_$mode.json
done
"$compare" --measured measured --out all.json
[ ! -e ran ] || { echo "Tandem's side was run again" && exit 1; }
python3 - <<'PYTHON'
import json
result = json.load(open("all.json"))
assert result["verified"] and result["peer_medians_ms"] == [30], result
for mode in ("direct", "gather", "alias"):
    assert result["tandem"][mode]["times_faster"] == 3 and result["tandem"][mode]["times_faster_with_prepare"] == 2, result
PYTHON
sed -i 's/Qwen3-4B/Qwen3-0.6B/' measured/sync_bench_gather.json
if "$compare" --measured measured >out 2>&1; then echo "other shapes were accepted" && exit 1; fi
grep -q "gather pushed 8 bytes of Qwen3-0.6B, PyTorch 8 of Qwen3-4B" out || { cat out && exit 1; }
rm measured/sync_bench_alias.json
if "$compare" --measured measured >out 2>&1; then echo "a missing measurement was accepted" && exit 1; fi
echo passed
