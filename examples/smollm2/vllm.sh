#!/usr/bin/env bash
# SmolLM2 learns with vLLM as its engine: starts a server of models/smollm2, runs vllm.toml, stops the server.
#   examples/smollm2/vllm.sh VENV BIN [options of tandem-train]
# VENV: a virtual environment with vLLM's CPU build (0.32); BIN: the folder of tandem-train. From the repository's root.
# An earlier run of that name is kept as NAME.1, .2, …. PORT (8000) of the environment is the server's; its log is runs/vllm.log.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
venv=$1 bin=$2
shift 2
port=${PORT:-8000}
if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    echo "port $port is in use: another server would be trained with; PORT chooses one" >&2
    exit 2
fi
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_TARGET_DEVICE=cpu VLLM_CPU_KVCACHE_SPACE=1
export VLLM_CPU_OMP_THREADS_BIND=nobind  # it computes while the trainer waits, and has all cores then
export VLLM_SERVER_DEV_MODE=1           # the routes that update weights
mkdir -p runs

# processed_logprobs: those of the temperature that is sampled at. enable-scale-out: /inference/v1/generate. Chunked prefill
# and seeds end a server of 0.32 on the CPU ("CPU Generator does not use offset").
OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}" "$venv/bin/vllm" serve "$PWD/models/smollm2" --host 127.0.0.1 --port "$port" --dtype bfloat16 \
    --max-model-len 512 --gpu-memory-utilization 0.1 --enforce-eager --enable-scale-out \
    --logprobs-mode processed_logprobs --no-enable-chunked-prefill > runs/vllm.log 2>&1 &
server=$!
trap 'kill "$server" 2> /dev/null; wait "$server" || true' EXIT
echo "waiting for vLLM (a minute or more; runs/vllm.log) …"
until curl -sf "http://127.0.0.1:$port/health" > /dev/null; do
    kill -0 "$server" 2> /dev/null || { tail -5 runs/vllm.log >&2; exit 1; }
    sleep 1
done
"$bin/tandem-train" examples/smollm2/vllm.toml --set "engine.url=vllm://127.0.0.1:$port" --set run.if_exists=keep "$@"
