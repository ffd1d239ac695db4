#!/usr/bin/env bash
# What the data plane over TCP carries between two network namespaces, beside iperf3 there, alternately in one run.
#
#   tests/bench/network/tcp_plane.sh [--gbit 8] [--rtt-ms 20] [--rounds 3] [--connections 8] [--shapes Qwen3-0.6B]
#                                    [--modes "gather direct"] [--build build/release]
#
# The link is netem's where the kernel has it, else long_link's (beside this script), in user space: that takes a good part of a
# core itself. --rtt-ms 0: a veth pair shaped by tbf alone. Needs root, iproute2, iperf3, and tandem-sync and long_link built.
set -euo pipefail
cd "$(dirname "$0")/../../.."
gbit=8 rtt=20 rounds=3 connections=8 shapes=Qwen3-0.6B modes="gather direct" build=build/release
while (($#)); do
    case $1 in
    --gbit) gbit=$2 ;; --rtt-ms) rtt=$2 ;; --rounds) rounds=$2 ;; --connections) connections=$2 ;;
    --shapes) shapes=$2 ;; --modes) modes=$2 ;; --build) build=$2 ;;
    *) sed -n '2,8p' "$0" >&2; exit 2 ;;
    esac
    shift 2
done
for program in iperf3 ip tc python3; do
    command -v "$program" >/dev/null || { echo "$program is missing (apt-get install iperf3 iproute2)" >&2; exit 2; }
done
[ -x "$build/bin/tandem-sync" ] || { echo "build tandem-sync in $build first, or say --build" >&2; exit 2; }

a=tandem-a-$$ b=tandem-b-$$ work=$(mktemp -d) pids=()
clean_up() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    ip netns delete $a 2>/dev/null || true
    ip netns delete $b 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
ip netns add $a
ip netns add $b
in_a=(ip netns exec $a) in_b=(ip netns exec $b)

# A device DEV in each, shaped.
shaped_by=
if [ "$rtt" = 0 ] || "${in_a[@]}" tc qdisc add dev lo root netem delay 1ms 2>/dev/null; then
    dev=veth0
    ip link add veth0 netns $a type veth peer name veth0 netns $b
    for space in $a $b; do
        if [ "$rtt" = 0 ]; then
            ip netns exec $space tc qdisc add dev veth0 root tbf rate "${gbit}gbit" burst 1mb latency 20ms
            shaped_by="tbf"
        else
            half=$(python3 -c "print($rtt / 2)")
            ip netns exec $space tc qdisc add dev veth0 root netem rate "${gbit}gbit" delay "${half}ms" limit 100000
            shaped_by="netem"
        fi
    done
else
    dev=long0 shaped_by="long_link in user space (this kernel has no netem)"
    nice -n -10 "$build/bin/long_link" $a $b "$gbit" "$rtt" >"$work/link" &
    pids+=($!)
    until grep -q ready "$work/link"; do kill -0 ${pids[-1]}; sleep 0.1; done
fi
for side in 1 2; do
    space=$([ $side = 1 ] && echo $a || echo $b)
    ip netns exec $space ip address add 10.78.0.$side/24 dev $dev
    ip netns exec $space ip link set $dev txqueuelen 20000 up
    ip netns exec $space ip link set lo up
done

export TANDEM_API_KEY=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n') TANDEM_LOG=error
export TANDEM_CACHE_DIR=$work
iperf3_gbps() {
    "${in_b[@]}" iperf3 -s -1 >/dev/null &
    sleep 0.5
    "${in_a[@]}" iperf3 -c 10.78.0.2 -P "$connections" -t 5 -O 1 -J >"$work/iperf"
    wait $!
    python3 -c "import json; print(json.load(open('$work/iperf'))['end']['sum_received']['bits_per_second'] / 8e9)"
}
push_gbps() {
    local options=(--shapes "$shapes" --mesh 1,1 --mode "$1" --transport tcp --changed 1)
    mkfifo "$work/stdin"
    "${in_b[@]}" "$build/bin/tandem-sync" bench-engine "${options[@]}" --engine-rank 0 --data-listen 10.78.0.2:5301 \
        0<>"$work/stdin" >"$work/engine" &
    local engine=$!
    until grep -q tcp: "$work/engine"; do kill -0 $engine; sleep 0.1; done
    "${in_a[@]}" "$build/bin/tandem-sync" bench "${options[@]}" --iterations 5 --json \
        --engine "tcp://10.78.0.2:5301?connections=$connections" >"$work/push"
    kill $engine
    wait $engine 2>/dev/null || true
    rm "$work/stdin"
    python3 -c "
import json
r = json.load(open('$work/push'))
assert r['verified']
print(r['bytes'] / r['median_ms'] * 1e-6)"
}

echo "$(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1); $gbit Gbit/s, round trip $rtt ms by $shaped_by;" \
    "$connections connections; $shapes, pause to resume, median of 5, verified"
printf '%-6s %-8s %14s %14s %8s\n' round mode "iperf3, GB/s" "push, GB/s" ratio
for round in $(seq "$rounds"); do
    for mode in $modes; do
        carried=$(iperf3_gbps)
        pushed=$(push_gbps "$mode")
        printf '%-6s %-8s %14.3f %14.3f %8.2f\n' "$round" "$mode" "$carried" "$pushed" \
            "$(python3 -c "print($pushed / $carried)")"
    done
done
