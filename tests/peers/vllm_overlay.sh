#!/usr/bin/env bash
# Makes a virtual environment with a vLLM whose CPU build is not out yet: the published Python of that version, unchanged, over
# the extension for CPUs and the packages of an older one, which stay where they are and as they are.
#   vllm_overlay.sh VENV BASE VERSION [PACKAGE…]   e.g. ~/vllm33 ~/vllm 0.33.0 orjson
# BASE: scripts/vllm_environment.sh; PACKAGE: what that version wants and BASE lacks. 700 MB, a minute. What vLLM's Python does
# can be tried with it (routes, scheduler, workers, reload, weight transfer); its kernels are the older version's.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
venv=$(realpath -m "$1") base=$(realpath "$2") version=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packages_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

"$("$base/bin/python" -c 'import sys; print(sys._base_executable)')" -m venv "$venv"
packages=$(packages_of "$venv") older=$(packages_of "$base")
echo "$older" >"$packages/older_vllm.pth" # behind what is in this one
pip=("$venv/bin/pip" --disable-pip-version-check -q)
"${pip[@]}" download --no-deps -d "$work" "vllm==$version"
unzip -q "$work"/vllm-*.whl -x '*.so' 'vllm/vllm-rs' '*/RECORD' -d "$packages"
(cd "$older" && find vllm -name '*.so' -exec cp -p --parents -t "$packages" {} +)
info=$packages/vllm-$version+cpu.dist-info
mv "$packages/vllm-$version.dist-info" "$info"
sed -i "s/^Version: .*/Version: $version+cpu/" "$info/METADATA"
[ $# = 0 ] || "${pip[@]}" install --no-warn-conflicts "$@"
cat >"$venv/bin/vllm" <<COMMAND
#!$venv/bin/python
import sys

from vllm.entrypoints.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
COMMAND
chmod +x "$venv/bin/vllm"
"$venv/bin/vllm" --version
