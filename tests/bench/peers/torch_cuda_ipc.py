#!/usr/bin/env python3
"""The peer of `tandem-sync bench --device cuda`: a colocated weight sync as systems on PyTorch do it, on one GPU.

    python3 tests/bench/peers/torch_cuda_ipc.py --shapes Qwen3-4B [--bucket-mib 512] [--iterations 10] [--json]

The trainer's process holds whole parameters on the GPU. A sync flattens them bucket by bucket into one of two buffers
(torch.cat); the engine, a second process, has the buffers open through CUDA IPC and copies each tensor out of them into
its own weights. While the engine copies a bucket the trainer flattens the next.

In the peer's favour: both buffers are allocated, shared and opened once, nothing is hashed, nothing is gathered, the
hand-over is a short list over a pipe, and the first sync is not timed. The speed of light is the GPU's own copy of the
same bytes, measured in the same run. The engine's weights are compared byte for byte on the first and last sync.
"""

import argparse
import json
import math
import statistics
import sys
import time

import torch
import torch.multiprocessing as mp
from torch_sync import DTYPE, MODELS, answer, bits, parameters


def full_tensor(index, shape, step, device):
    """The parameter's values at a step, equal in both processes: random bits, one seed for each parameter and step."""
    values = torch.empty(shape, dtype=torch.int16, device=device)
    generator = torch.Generator(device=device).manual_seed(1_000_003 * step + index)
    return values.random_(-32768, 32768, generator=generator).view(DTYPE)


def run_engine(pipe, shapes, device):
    torch.cuda.set_device(device)
    weights = [torch.zeros(shape, dtype=DTYPE, device=device) for _, shape in shapes]
    buffers = pipe.recv()  # opened here, through their handles
    pipe.send("ready")
    while True:
        kind, what = pipe.recv()
        if kind == "load":
            slot, places = what
            for index, offset in places:
                weights[index].view(-1).copy_(buffers[slot][offset : offset + weights[index].numel()])
            torch.cuda.synchronize()
            pipe.send("loaded")
        elif kind == "verify":
            wrong = [
                name
                for index, (name, shape) in enumerate(shapes)
                if not torch.equal(bits(weights[index]), bits(full_tensor(index, shape, what, device)))
            ]
            pipe.send(wrong)
        else:
            del buffers  # before the process that owns them frees them
            pipe.send("released")
            return


def buckets_of(shapes, bucket_elements):
    """[[(parameter, offset in the buffer)]], each at most the buffer's size."""
    buckets, current, used = [], [], 0
    for index, (_, shape) in enumerate(shapes):
        elements = math.prod(shape)
        if current and used + elements > bucket_elements:
            buckets.append(current)
            current, used = [], 0
        current.append((index, used))
        used += elements
    return buckets + [current]


def push(weights, buckets, buffers, pipe):
    """Returns its time in ms: from the first flatten to the engine's last answer."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for number, bucket in enumerate(buckets):
        slot = number % len(buffers)
        if number >= len(buffers):
            answer(pipe)  # the engine is done with what this buffer held
        elements = sum(weights[index].numel() for index, _ in bucket)
        torch.cat([weights[index].view(-1) for index, _ in bucket], out=buffers[slot][:elements])
        torch.cuda.synchronize()
        pipe.send(("load", (slot, bucket)))
    for _ in range(min(len(buckets), len(buffers))):
        answer(pipe)
    return (time.perf_counter() - start) * 1e3


def speed_of_light(total_bytes, iterations, device):
    """Medians of copying as many bytes from one half of a buffer to the other, in ms."""
    piece = min(total_bytes, 512 << 20)
    source, target = (torch.zeros(piece, dtype=torch.uint8, device=device) for _ in range(2))
    times = []
    for _ in range(iterations + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for done in range(0, total_bytes, piece):
            part = min(piece, total_bytes - done)
            target[:part].copy_(source[:part])
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[1:])


def measure(options):
    device = torch.device(f"cuda:{options.gpu}")
    torch.cuda.set_device(device)
    shapes = parameters(options.shapes)
    elements = max(int(options.bucket_mib * 1048576) // DTYPE.itemsize, max(math.prod(shape) for _, shape in shapes))
    buckets = buckets_of(shapes, elements)
    total_bytes = sum(math.prod(shape) for _, shape in shapes) * DTYPE.itemsize
    context = mp.get_context("spawn")
    pipe, engine_end = context.Pipe()
    engine = context.Process(target=run_engine, args=(engine_end, shapes, device), daemon=True)
    engine.start()
    try:
        buffers = [torch.zeros(elements, dtype=DTYPE, device=device) for _ in range(2)]
        pipe.send(buffers)
        answer(pipe)  # ready
        weights = [full_tensor(index, shape, 0, device) for index, (_, shape) in enumerate(shapes)]
        times, wrong = [], []
        for iteration in range(options.iterations + 1):
            if iteration == options.iterations:
                for index, (_, shape) in enumerate(shapes):
                    weights[index].copy_(full_tensor(index, shape, 1, device))
            times.append(push(weights, buckets, buffers, pipe))
            if iteration == 0:
                pipe.send(("verify", 0))
                wrong += answer(pipe)
        pipe.send(("verify", 1))
        wrong += answer(pipe)
        light = speed_of_light(total_bytes, options.iterations, device)
        pipe.send(("end", None))
        answer(pipe)
    finally:
        engine.join(5)
        engine.kill()
    median = statistics.median(times[1:])
    return {
        "shapes": options.shapes, "bytes": total_bytes, "buckets": len(buckets), "bucket_mib": options.bucket_mib,
        "iterations": options.iterations, "median_ms": median, "totals_ms": times[1:], "speed_of_light_ms": light,
        "speed_of_light_ratio": median / light, "gbps": total_bytes / median * 1e-6, "verified": not wrong,
        "first_mismatch": wrong[0] if wrong else "", "torch": torch.__version__,
        "hardware": torch.cuda.get_device_name(device),
    }


def arguments():
    parser = argparse.ArgumentParser(description="Colocated weight sync through PyTorch and CUDA IPC, for comparison.")
    parser.add_argument("--shapes", choices=list(MODELS), default="Qwen3-4B")
    parser.add_argument("--bucket-mib", type=float, default=512)
    parser.add_argument("--iterations", type=int, default=10, help="timed syncs")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args()
    if options.iterations < 1 or options.bucket_mib <= 0 or options.gpu < 0:
        parser.error("expects at least one iteration, a positive bucket and a GPU's number")
    return options


def main():
    options = arguments()
    if options.gpu >= torch.cuda.device_count():
        print(f"torch_cuda_ipc.py: torch {torch.__version__} sees {torch.cuda.device_count()} GPUs; --gpu "
              f"{options.gpu} needs a GPU and a torch built for CUDA", file=sys.stderr)
        return 2
    result = measure(options)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print(f"{result['shapes']} · {result['bytes'] / 1048576:.1f} MiB in {result['buckets']} buckets · "
              f"{result['hardware']}\n  sync            {result['median_ms']:.2f} ms, {result['gbps']:.1f} GB/s\n"
              f"  speed of light  {result['speed_of_light_ms']:.2f} ms, ratio {result['speed_of_light_ratio']:.2f} x\n"
              f"  verified        {'yes' if result['verified'] else 'NO: ' + result['first_mismatch']}")
    return 0 if result["verified"] else 1


if __name__ == "__main__":
    sys.exit(main())
