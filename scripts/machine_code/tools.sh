#!/usr/bin/env bash
# Prints the folder of cuobjdump and nvdisasm, which read machine code: that of the PATH or of the CUDA toolkit; else what
# is in the cache; with --fetch the cache is filled by pip, with versions that read CUDA 13.0's code.
#   scripts/machine_code/tools.sh [--fetch]       exit code 1: they are not here
#   TANDEM_MACHINE_CODE_TOOLS=DIR                 the cache (default ${XDG_CACHE_HOME:-~/.cache}/tandem/machine_code)
set -euo pipefail
case "${1:-}" in
"" | --fetch) ;;
-h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0" && exit 0 ;;
*) echo "scripts/machine_code/tools.sh: unknown option '$1'; known: --fetch" >&2 && exit 2 ;;
esac
version=13.5.37
cache=${TANDEM_MACHINE_CODE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/tandem/machine_code}/$version
found() { [ -x "$1/cuobjdump" ] && [ -x "$1/nvdisasm" ] && echo "$1"; }

on_path=$(command -v cuobjdump || true)
found "${on_path%/*}" || found /usr/local/cuda/bin || found "$cache" && exit 0
if [ "${1:-}" != --fetch ]; then
    echo "no cuobjdump and nvdisasm on PATH, in /usr/local/cuda/bin or in $cache; scripts/machine_code/tools.sh --fetch asks pip for them" >&2
    exit 1
fi
mkdir -p "${cache%/*}"
work=$(mktemp -d "${cache%/*}/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -m pip download -q --disable-pip-version-check --timeout 30 --retries 2 --no-deps --only-binary :all: -d "$work" \
    "nvidia-cuda-cuobjdump==$version" "nvidia-cuda-nvdisasm==$version" >&2
mkdir "$work/bin"
for wheel in "$work"/*.whl; do python3 -m zipfile -e "$wheel" "$work/wheel"; done
find "$work/wheel" -path '*/bin/*' -type f -exec mv -t "$work/bin" {} +
chmod +x "$work"/bin/*
# Whoever else fetched them meanwhile has the same ones.
mv -T "$work/bin" "$cache" 2>/dev/null || true
found "$cache"
