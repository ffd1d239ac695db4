"""For how long a push by our plug-in pauses a real vLLM, beside vLLM's own reload of the same weights from /dev/shm.

Both alternate in one server. `reload_weights` is the call alone, from memory to loaded; "paused" is from the pause to the
answer of resume. What the workers spend in vLLM's reload stands apart from the rest of a push's pause.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import tempfile
import time
import urllib.request

import torch
import transformers

import plugin
import tandem_push
from vllm_server import Server

PAUSED = re.compile(r"paused for ([\d.]+) ms: ([\d.]+) to pause it, ([\d.]+) until its workers had loaded "
                    r"\(vLLM's reload: ([\d.]+)\), ([\d.]+) to finish, ([\d.]+) to resume it")
QWEN3_06B = dict(vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
                 num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=1024,
                 tie_word_embeddings=True)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--plugin", required=True, metavar="LIBRARY")
    parser.add_argument("--model", help="directory; without, random weights of Qwen3-0.6B's shapes")
    parser.add_argument("--tokenizer", help="directory; for random weights")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--port", type=int, default=8124)
    return parser.parse_args()


def make_directories(options, folder):
    """Two of one architecture, in memory."""
    dtype = getattr(torch, options.dtype)
    directories = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        if options.model:
            model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype)
        else:
            config = transformers.Qwen3Config(**QWEN3_06B)
            config.dtype = dtype
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
        with torch.no_grad():
            next(model.parameters()).mul_(1 + seed / 64)
        directories.append(folder / f"weights{seed}")
        model.save_pretrained(directories[-1])
    return directories


def post(server, target, body=None, timeout=300):
    request = urllib.request.Request(server.url + target, json.dumps(body or {}).encode(),
                                     {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=timeout) as reply:
        return reply.read()


def reload_stock(server, directory, round_number):
    """As our push by a stock server does it; returns ms of the call, and from pause to resume."""
    paused = time.perf_counter()
    post(server, "/pause?mode=wait")
    start = time.perf_counter()
    post(server, "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(directory)}})
    loaded = time.perf_counter()
    post(server, "/update_weight_version", {"new_version": f"stock {round_number}"})
    post(server, "/reset_prefix_cache")
    post(server, "/resume")
    return (loaded - start) * 1000, (time.perf_counter() - paused) * 1000


def push(options, server, directory):
    """ms: paused, to pause, loading, of that vLLM's reload, to finish, to resume, and to stage before the pause."""
    done = tandem_push.succeed(options.program, directory, server.target, TANDEM_LOG="debug")
    found = PAUSED.search(done.stderr)
    if not found:
        raise SystemExit(f"a push does not say how long it paused:\n{done.stdout}{done.stderr}")
    report = tandem_push.report(done.stdout)
    return [*map(float, found.groups()), report["prepared_ms"]], report["bytes"]


def main():
    options = parsed()
    options.tokenizer = options.tokenizer or options.model
    shm = pathlib.Path(tempfile.mkdtemp(prefix="vllm_bench.", dir="/dev/shm"))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="vllm_bench."))
    try:
        directories = make_directories(options, shm)
        plugin.install(folder, options.plugin)
        with open(folder / "server.log", "w") as log:
            server = Server(options, directories[0], log)
            try:
                stock, ours = [], []
                for number in range(options.rounds + 2):
                    stock.append(reload_stock(server, directories[number % 2], number))
                    times, size = push(options, server, directories[(number + 1) % 2])
                    ours.append(times)
            finally:
                server.stop()
        stock, ours = stock[2:], ours[2:]
        middle = [statistics.median(column) for column in zip(*ours)]
        call, stock_paused = (statistics.median(column) for column in zip(*stock))
        cpu = next(line for line in open("/proc/cpuinfo") if line.startswith("model name")).split(":")[1].strip()
        print(f"{cpu}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {size / 1e6:.0f} MB {options.dtype}; "
              f"medians of {options.rounds} alternating rounds, ms (least)")
        print(f"vLLM's reload_weights: {call:.0f} ({min(a for a, _ in stock):.0f}); paused for it: {stock_paused:.0f} "
              f"({min(b for _, b in stock):.0f})")
        print(f"plug-in, paused: {middle[0]:.0f} ({min(row[0] for row in ours):.0f}), of it vLLM's reload {middle[3]:.0f}, "
              f"ours {middle[0] - middle[3]:.0f}: to pause {middle[1]:.1f}, to reach the workers "
              f"{middle[2] - middle[3]:.1f}, to finish {middle[4]:.1f}, to resume {middle[5]:.1f}; staged before the "
              f"pause in {middle[6]:.0f}")
        ratios = sorted(row[0] / one[0] for row, one in zip(ours, stock))
        print(f"paused / reload_weights of the same round: median {statistics.median(ratios):.3f}, "
              f"{ratios[0]:.3f} to {ratios[-1]:.3f}")
    finally:
        shutil.rmtree(shm)
        shutil.rmtree(folder)


main()
