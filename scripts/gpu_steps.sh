# The steps of gpu_check.sh, which sources this: each inside its limit and the call's, logged, and noted in
# $out/state.tsv, from where a later call goes on; and MPS, which lets processes on one GPU run side by side, for the
# lines that ask for it.

declare -A result=() seconds=()
names=() child="" mps_folder=""
room_s=15 # kept free at the end: the summary and the archive
left() { echo $((minutes * 60 - room_s - SECONDS)); }

# Goes on from an earlier call, where --continue says so and the commit and the GPU are the same.
load_state() {
    local name how took
    if [ "$again" -eq 1 ]; then
        read -r name <"$out/state.tsv" 2>/dev/null || bad "--continue: there is no state in $out"
        [ "$name" = "$commit on $gpu" ] || bad "--continue: $out holds the state of '$name', and this is '$commit on $gpu'"
        [ "$commit" != unknown ] || bad "--continue: nothing says which commit this is: name it in TANDEM_COMMIT"
        [ -d "$build/bin" ] || bad "--continue: the build folder $build is gone: begin anew, without --continue"
        while IFS=$'\t' read -r name took how; do note "$name" "$how" "$took"; done < <(tail -n +2 "$out/state.tsv")
    fi
    # Rewritten, not appended to: the last word on each line.
    echo "$commit on $gpu" >"$out/state.tsv"
    for name in "${names[@]}"; do keep "$name"; done
}
keep() { printf '%s\t%s\t%s\n' "$1" "${seconds[$1]}" "${result[$1]}" >>"$out/state.tsv"; }
note() { # NAME RESULT SECONDS
    [ -n "${result[$1]:-}" ] || names+=("$1")
    result[$1]=$2 seconds[$1]=$3
}
say() { # NAME RESULT SECONDS
    note "$@" && keep "$1"
    printf '%-40s %-18s %4s s\n' "$@"
}
left_out() { say "$1" "left out: $2" 0; }

# step NAME LIMIT_S COMMAND…
step() {
    local name=$1 limit=$(($2 * ${TANDEM_CHECK_PATIENCE:-1})) began=$SECONDS code how=passed
    shift 2
    case "${result[$name]:-}" in passed | skipped*) return 0 ;; esac # in an earlier call
    if [ "$limit" -gt "$(left)" ]; then
        say "$name" "no time left: it may take $limit s" 0
        return 1
    fi
    timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1 </dev/null &
    child=$!
    wait $child
    code=$?
    child=""
    case $code in
    0) ;;
    77) how=$(tail -1 "$out/$name.log" | tr -d '"\\') ;; # "skipped: " and why
    124 | 137) how="ran past $limit s" ;;
    *) how="failed ($code)" ;;
    esac
    say "$name" "$how" $((SECONDS - began))
    case "$how" in failed* | ran*) tail -25 "$out/$name.log" && return 1 ;; esac
    return 0
}

start_mps() {
    [ -n "$mps_control" ] && [ -z "$mps_folder" ] || return 0
    mps_folder=$(mktemp -d /tmp/tandem_mps.XXXXXX) # a socket's path is short
    export CUDA_MPS_PIPE_DIRECTORY=$mps_folder CUDA_MPS_LOG_DIRECTORY=$mps_folder
    timeout 10 "$mps_control" -d >"$out/mps.log" 2>&1 && takes_clients && return 0
    echo "MPS does not run (mps.log): ranks that share the GPU take turns"
    stop_mps
    mps_control=""
}
# A daemon that starts and then refuses its clients would fail every line: the smallest program of ours is asked first.
takes_clients() {
    local program=$TANDEM_BIN/device_gpu_bench
    [ ! -x "$program" ] || timeout 30 "$program" --benchmark_filter=event --benchmark_min_time=0.01 >>"$out/mps.log" 2>&1
}
stop_mps() {
    [ -n "$mps_folder" ] || return 0
    echo "quit -t 5" | timeout 10 "$mps_control" >>"$out/mps.log" 2>&1
    local pid
    pid=$(cat "$mps_folder/nvidia-cuda-mps-control.pid" 2>/dev/null) && kill "$pid" 2>/dev/null # did not quit
    cat "$mps_folder"/*.log >>"$out/mps.log" 2>/dev/null
    rm -rf "$mps_folder"
    mps_folder=""
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}
# However the script ends: nothing that it started goes on. (Nothing can be done about SIGKILL.)
cut_off() {
    if [ -n "$child" ]; then kill "$child" 2>/dev/null && wait "$child"; fi
    echo "scripts/gpu_check.sh: cut off" >&2
    exit $((128 + $1))
}
trap stop_mps EXIT
trap 'cut_off 1' HUP
trap 'cut_off 2' INT
trap 'cut_off 15' TERM

finish() {
    local name list="" code=0
    for name in "${names[@]}"; do
        list+=$(printf ',\n  {"name": "%s", "result": "%s", "seconds": %s}' "$name" "${result[$name]}" "${seconds[$name]}")
        case "${result[$name]}" in
        failed* | ran*) code=1 ;;
        no*) [ $code -eq 1 ] || code=3 ;;
        esac
    done
    printf '{"gpu": "%s", "driver": "%s", "cuda": "%s", "date": "%s", "commit": "%s", "seconds": %s, "steps": [%s\n]}\n' \
        "$gpu" "$driver" "$toolkit" "$(date -u +%FT%TZ)" "$commit" "$SECONDS" "${list:1}" >"$out/summary.json"
    echo "summary: $out/summary.json ($SECONDS s)"
    [ $code -ne 3 ] || echo "some lines did not fit: the same command with --continue goes on there"
    if [ -n "$pack" ]; then tar -czf "$pack" -C "$out" . || code=1; fi
    exit $code
}
