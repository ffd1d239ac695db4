#!/usr/bin/env bash
# Installs the wheel into an empty virtual environment and tries it: the time of the import, the programs, a push to
# tandem-engine; then beside PyPI's `tandem`, which is another project's, whichever came first. In a fresh root:
#   scripts/fresh_root.sh --include python3,python3-venv --bind DIR:/wheel bookworm scripts/wheel_check.sh /wheel
#   scripts/wheel_check.sh DIR [PYTHON]      DIR: where scripts/wheel.sh wrote; needs the network for numpy and tandem
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] && [ "${1#-}" = "$1" ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
new_environment() {
    rm -rf "$work/venv"
    "$python" -m venv "$work/venv"
}
install() { "$work/venv/bin/pip" install -q --disable-pip-version-check "$@"; }
python=${2:-python3}
wheel=$(realpath "$1"/tandem_sync-*.whl)
new_environment
install "$wheel" numpy
cp tests/clients/python/{import_time,without_torch}.py "$work/"
cd "$work"
for program in tandem-train tandem-sync tandem-engine; do "venv/bin/$program" --help >/dev/null; done
"$work/venv/bin/python" import_time.py
"$work/venv/bin/python" without_torch.py

# As wheels list their files: neither has one of the other's, and both import.
for order in "tandem $wheel" "$wheel tandem"; do
    new_environment
    for package in $order; do install --no-deps "$package"; done
    install numpy
    "$work/venv/bin/python" - <<'BOTH'
import importlib.metadata
import tandem_sync
theirs, ours = ({str(f) for f in importlib.metadata.files(name)} for name in ("tandem", "tandem-sync"))
assert not theirs & ours, theirs & ours
assert theirs and not any(f.startswith("tandem/") for f in ours) and tandem_sync.abi_version() == 1
BOTH
    "$work/venv/bin/python" without_torch.py
done
