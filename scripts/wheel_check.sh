#!/usr/bin/env bash
# Installs the wheel into an empty virtual environment and tries it: the time of the import, the programs, a push to
# tandem-engine. In a fresh root:   scripts/fresh_root.sh --include python3,python3-venv --bind DIR:/wheel bookworm scripts/wheel_check.sh /wheel
#   scripts/wheel_check.sh DIR [PYTHON]      DIR: where scripts/wheel.sh wrote; needs the network for numpy
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${2:-python3}" -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check "$1"/tandem_sync-*.whl numpy
cp tests/clients/python/{import_time,without_torch}.py "$work/"
cd "$work"
for program in tandem-train tandem-sync tandem-engine; do "venv/bin/$program" --help >/dev/null; done
"$work/venv/bin/python" import_time.py
"$work/venv/bin/python" without_torch.py
