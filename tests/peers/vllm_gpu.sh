#!/usr/bin/env bash
# Pushes into a real vLLM on a GPU by CUDA IPC (its backend "ipc") and by our plug-in, kills pushers, and lets it sleep.
#   vllm_gpu.sh VLLM BUILD TOKENIZER CHECK…        from the repository's root
# VLLM: the command, of 0.32 or later (scripts/gpu_vllm.sh); BUILD: bin/ with our programs and lib/ with the plug-in's
# library, built for that GPU; TOKENIZER: a directory with one and a config.json, of whose shapes what `kills` pushes is.
#   push          100 pushes by "ipc": answers, and both sides' memory since the tenth
#   kills         of 30 pushers, at random moments; shapes of more than 1 GiB come in several chunks
#   plugin        20 pushes by our plug-in, and failures of its worker
#   sleep         levels 1 and 2, the cache alone; then 100 steps that let the server sleep
#   sleep_plugin  the same by our plug-in
# TANDEM_VLLM_ARGUMENTS: more of the server's ("--attention-backend TRITON_ATTN"). TANDEM_VLLM_KILLS, TANDEM_VLLM_STEPS:
# fewer. Exit code 1 where anything is wrong.
set -euo pipefail
[ $# -ge 4 ] || { sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2; }
vllm=$1 build=$2 tokenizer=$3
shift 3
export HF_HUB_OFFLINE=1 VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1 VLLM_ALLOW_INSECURE_SERIALIZATION=1

check() { # SCRIPT [its options]
    local script=$1 server=() word
    shift
    for word in ${TANDEM_VLLM_ARGUMENTS:-}; do server+=("--serve-option=$word"); done
    "${TORCH_PYTHON:-python3}" "$(dirname "$0")/$script.py" --vllm "$vllm" --program "$build/bin/tandem-sync" \
        --tokenizer "$tokenizer" "${server[@]}" "$@"
}
by_ipc=(--serve-option=--weight-transfer-config '--serve-option={"backend":"ipc"}')
by_plugin=(--plugin "$build/lib/libtandem_sync.so")
two=(--dtype bfloat16 --models 2)
trains=(--gpu --train "$build/bin/tandem-train" --steps "${TANDEM_VLLM_STEPS:-100}")
for one in "$@"; do
    echo "$one:"
    case "$one" in
    push) check vllm_push "${by_ipc[@]}" "${two[@]}" --tied --pushes 100 ;;
    kills) check vllm_push "${by_ipc[@]}" "${two[@]}" --shapes "$tokenizer" --pushes 0 --kills "${TANDEM_VLLM_KILLS:-30}" ;;
    plugin) check vllm_push "${by_plugin[@]}" "${two[@]}" --tied --pushes 20 ;;
    sleep) check vllm_sleep "${by_ipc[@]}" "${trains[@]}" ;;
    sleep_plugin) check vllm_sleep "${by_plugin[@]}" "${trains[@]}" ;;
    *) echo "unknown check $one" >&2 && exit 2 ;;
    esac
done
