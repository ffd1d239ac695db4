#!/usr/bin/env bash
# Opens what a push to sglang+tensor:// sends with the code of real SGLang wheels: the oldest that is known here and the
# newest, or those that are named.
#   sglang_payload.sh PYTHON PROGRAM [FOLDER] [VERSION…]
# PYTHON: one with PyTorch, transformers and pip; PROGRAM: build/cpu/bin/sglang_payload; FOLDER: where wheels are kept
# (60 MB packed). Not in CTest: PyTorch and the wheels.
set -euo pipefail
python=$1 program=$2 folder=${3:-${TMPDIR:-/tmp}/sglang_wheels}
shift $(($# < 3 ? $# : 3))
versions=("$@")
((${#versions[@]})) || versions=(0.5.15.post1 0.5.23)
mkdir -p "$folder"
[[ -d $folder/dependencies ]] || "$python" -m pip install -q --no-deps --target "$folder/dependencies" \
    orjson msgspec pybase64 pyzmq psutil pillow requests starlette fastapi
for version in "${versions[@]}"; do
    if [[ ! -d $folder/$version ]]; then
        "$python" -m pip download -q --no-deps -d "$folder" "sglang==$version"
        "$python" -m zipfile -e "$folder/sglang-$version"-*.whl "$folder/$version"
    fi
    echo "SGLang $version:"
    "$python" "$(dirname "$0")/sglang_payload.py" --wheel "$folder/$version" --dependencies "$folder/dependencies" --program "$program"
done
