#!/usr/bin/env bash
# Lets the workers of real checkpoint-engine wheels take weights from our sender: the version that SGLang asks for and the
# newest, or those that are named; where the Python has SGLang, by SGLang's own extension of them as well.
#   checkpoint_engine.sh PYTHON PROGRAM [FOLDER] [VERSION…]
# PYTHON: one with PyTorch, safetensors, pyzmq and pip; PROGRAM: build/cpu/bin/checkpoint_engine; FOLDER: where wheels are
# kept. Not in CTest: PyTorch and the wheels.
set -euo pipefail
python=$1 program=$2 folder=${3:-${TMPDIR:-/tmp}/checkpoint_engine_wheels}
shift $(($# < 3 ? $# : 3))
versions=("$@")
((${#versions[@]})) || versions=(0.1.2 0.4.2)
mkdir -p "$folder"
for version in "${versions[@]}"; do
    if [[ ! -d $folder/$version ]]; then
        "$python" -m pip download -q --no-deps -d "$folder" "checkpoint-engine==$version"
        "$python" -m zipfile -e "$folder/checkpoint_engine-$version"-*.whl "$folder/$version"
    fi
    echo "checkpoint-engine $version:"
    "$python" "$(dirname "$0")/checkpoint_engine.py" --wheel "$folder/$version" --program "$program"
done
