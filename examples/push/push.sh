#!/usr/bin/env bash
# Two inference servers that run without weights are given those of one Hugging Face directory by one command.
#   push.sh MODEL                       two tandem-engines
#   VLLM=VENV push.sh MODEL             the second is a vLLM, of a virtual environment (its CPU build: see README.md),
#                                       at port VLLM_PORT (8000)
# TANDEM_BIN: the folder of the programs; default build/release/bin, then build/cpu/bin, then build/cuda/bin.
set -euo pipefail
case "${1:-}" in
"" | -*)
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
here=$(cd "$(dirname "$0")/../.." && pwd)
model=$1
bin=${TANDEM_BIN:-$here/build/release/bin}
for other in cpu cuda; do [[ -x $bin/tandem-engine ]] || bin=$here/build/$other/bin; done
[[ -x $bin/tandem-engine ]] || { echo "no programs are built: run scripts/quickstart.sh, or set TANDEM_BIN" >&2; exit 2; }
[[ -f $model/config.json ]] || { echo "$model has no config.json: not a Hugging Face directory" >&2; exit 2; }
work=$(mktemp -d)
servers=()
trap 'kill "${servers[@]}" 2>/dev/null; wait; rm -rf "$work"' EXIT

wait_for() {  # seconds, what, a command that succeeds once it is there
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        kill -0 "${servers[-1]}" 2>/dev/null && ((SECONDS < end)) || { echo "$what did not start" >&2; cat "$work"/*.log >&2; exit 1; }
        sleep 0.2
    done
}

serve_tandem() {  # name; sets url
    "$bin/tandem-engine" serve --model "$model" --load-format dummy --listen 127.0.0.1:0 --ready-file "$work/$1" >"$work/$1.log" 2>&1 &
    servers+=($!)
    wait_for 60 "tandem-engine $1" test -s "$work/$1"
    url=$(sed 's#^http://#tandem://#' "$work/$1")
}

serve_vllm() {  # sets url
    local port=${VLLM_PORT:-8000}
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
        echo "port $port is in use: another server would get these weights; VLLM_PORT chooses one" >&2
        exit 2
    fi
    VLLM_SERVER_DEV_MODE=1 "$VLLM/bin/vllm" serve "$model" --load-format dummy --host 127.0.0.1 --port "$port" \
        --enforce-eager --max-model-len 512 ${VLLM_OPTIONS:-} >"$work/vllm.log" 2>&1 &
    servers+=($!)
    wait_for 600 vLLM bash -c "exec 3<>/dev/tcp/127.0.0.1/$port" 2>/dev/null
    url=vllm://127.0.0.1:$port
}

serve_tandem one
first=$url
if [[ -n ${VLLM:-} ]]; then serve_vllm; else serve_tandem two; fi

"$bin/tandem-sync" push --model "$model" --to "$first" --to "$url" --verify
