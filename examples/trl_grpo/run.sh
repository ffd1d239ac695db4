#!/usr/bin/env bash
# SmolLM2 learns with TRL and vLLM on CPU cores: starts a server, runs train.py, stops the server.
#   examples/trl_grpo/run.sh VENV MODEL [STEPS]
# VENV: scripts/vllm_environment.sh VENV trl==1.16.0 accelerate datasets, and our wheel (scripts/wheel.sh); MODEL: scripts/models/smollm2.py.
# From any folder. PORT (8000) of the environment is the server's; its log is vllm.log here.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
venv=$1 model=$2 steps=${3:-12} port=${PORT:-8000}
if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    echo "port $port is in use: another server would be trained with; PORT chooses one" >&2
    exit 2
fi
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_TARGET_DEVICE=cpu VLLM_CPU_KVCACHE_SPACE=1 CUDA_VISIBLE_DEVICES=
export VLLM_CPU_OMP_THREADS_BIND=nobind  # it computes while the trainer waits, and has all cores then
export VLLM_SERVER_DEV_MODE=1            # the routes that update weights
"$venv/bin/vllm" serve "$model" --served-model-name model --host 127.0.0.1 --port "$port" --dtype bfloat16 --max-model-len 512 \
    --gpu-memory-utilization 0.1 --enforce-eager --logprobs-mode processed_logprobs --max-logprobs -1 >vllm.log 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" || true' EXIT
echo "waiting for vLLM (a minute or more; vllm.log) …"
until curl -sf "http://127.0.0.1:$port/health" >/dev/null; do
    kill -0 "$server" 2>/dev/null || { tail -5 vllm.log >&2; exit 1; }
    sleep 1
done
"$venv/bin/python" "$(dirname "$0")/train.py" "$model" "http://127.0.0.1:$port" "$steps" --cpu
