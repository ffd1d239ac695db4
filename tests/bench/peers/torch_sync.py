#!/usr/bin/env python3
"""The peer of `tandem-sync bench`: a weight sync as systems on PyTorch do it, on this machine's CPU.

    python3 tests/bench/peers/torch_sync.py --shapes SmolLM2-135M --mesh 2,1 [--bucket-mib 64] [--iterations 5] [--json]

Every trainer rank is a process of a gloo group on a mesh dp, cp; parameters are DTensors, Shard(0) over dp and Replicate
over cp. A sync redistributes parameter by parameter with async_op=True and collects the results into buckets. A full
bucket waits for its gathers; rank 0 then flattens it into shared memory and hands it to the engine, a second process,
which copies each tensor into its own weights and answers; then comes the next bucket.

In the peer's favour: the shared buffer is allocated and touched once (no segment per bucket), only rank 0 flattens, the
hand-over is a short list over a pipe, nothing is hashed, and the first sync of each run is not timed.
The engine's weights are compared byte for byte with the source on the first and on the last sync.
Times are rank 0's, from its first gather to the engine's last answer.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

DTYPE = torch.bfloat16
DEADLINE_S = 120

# vocab, hidden, ffn, layers, heads, kv_heads, head_dim, tied, qk_norm: as in sync/bench/shapes.cpp
MODELS = {
    "tiny": (512, 64, 256, 2, 4, 2, 16, True, True),
    "SmolLM2-135M": (49152, 576, 1536, 30, 9, 3, 64, True, False),
    "Qwen3-0.6B": (151936, 1024, 3072, 28, 16, 8, 128, True, True),
    "Qwen3-4B": (151936, 2560, 9728, 36, 32, 8, 128, True, True),
    "Llama-3.1-8B": (128256, 4096, 14336, 32, 32, 8, 128, False, False),
}


def parameters(name):
    """[(name, shape)] in the order of common/model/parameters.cpp."""
    vocab, hidden, ffn, layers, heads, kv_heads, head_dim, tied, qk_norm = MODELS[name]
    result = [("model.embed_tokens.weight", (vocab, hidden))]
    for layer in range(layers):
        rows = [
            ("input_layernorm", (hidden,)),
            ("self_attn.q_proj", (heads * head_dim, hidden)),
            ("self_attn.k_proj", (kv_heads * head_dim, hidden)),
            ("self_attn.v_proj", (kv_heads * head_dim, hidden)),
            ("self_attn.q_norm", (head_dim,)),
            ("self_attn.k_norm", (head_dim,)),
            ("self_attn.o_proj", (hidden, heads * head_dim)),
            ("post_attention_layernorm", (hidden,)),
            ("mlp.gate_proj", (ffn, hidden)),
            ("mlp.up_proj", (ffn, hidden)),
            ("mlp.down_proj", (hidden, ffn)),
        ]
        kept = [row for row in rows if qk_norm or row[0] not in ("self_attn.q_norm", "self_attn.k_norm")]
        result += [(f"model.layers.{layer}.{part}.weight", shape) for part, shape in kept]
    result.append(("model.norm.weight", (hidden,)))
    if not tied:
        result.append(("lm_head.weight", (vocab, hidden)))
    return result


def full_tensor(index, shape, step):
    """The parameter's values at a step, equal in every process: random bits, one seed for each parameter and step."""
    bits = torch.empty(shape, dtype=torch.int16)
    bits.random_(-32768, 32768, generator=torch.Generator().manual_seed(1_000_003 * step + index))
    return bits.view(DTYPE)


def bits(tensor):
    return tensor.contiguous().view(torch.int16)


# ---- the engine's process -----------------------------------------------------------------------------------------


def run_engine(pipe, shared, shapes, threads):
    torch.set_num_threads(threads)
    weights = [torch.zeros(shape, dtype=DTYPE) for _, shape in shapes]
    shared.view(torch.uint8).sum()  # mapped and touched before the first sync
    pipe.send("ready")
    while True:
        kind, what = pipe.recv()
        if kind == "load":
            for index, offset in what:
                weight = weights[index]
                weight.view(-1).copy_(shared[offset : offset + weight.numel()])
            pipe.send("loaded")
        elif kind == "verify":
            wrong = [
                name
                for index, (name, shape) in enumerate(shapes)
                if not torch.equal(bits(weights[index]), bits(full_tensor(index, shape, what)))
            ]
            pipe.send(wrong)
        else:
            return


def answer(pipe):
    if not pipe.poll(DEADLINE_S):
        raise TimeoutError(f"the engine's process did not answer within {DEADLINE_S} s")
    return pipe.recv()


# ---- a trainer rank's process -------------------------------------------------------------------------------------


class Source:
    """This rank's shards of every parameter."""

    def __init__(self, mesh, shapes):
        self.shapes = shapes
        dp = mesh.size(0)
        self.first = mesh.get_local_rank("dp")
        self.pieces = dp
        self.dtensors = []
        for _, shape in shapes:
            local = torch.zeros((self._rows(shape)[1], *shape[1:]), dtype=DTYPE)
            self.dtensors.append(
                DTensor.from_local(local, mesh, [Shard(0), Replicate()], run_check=False, shape=torch.Size(shape),
                                   stride=torch.empty(shape, device="meta").stride())
            )

    def _rows(self, shape):
        chunk = -(-shape[0] // self.pieces)
        begin = min(chunk * self.first, shape[0])
        return begin, min(chunk, shape[0] - begin)

    def set_step(self, step):
        for index, (_, shape) in enumerate(self.shapes):
            begin, rows = self._rows(shape)
            self.dtensors[index].to_local().copy_(full_tensor(index, shape, step)[begin : begin + rows])


class Sync:
    def __init__(self, source, shared, bucket_bytes, pipe):
        self.source, self.shared, self.bucket_bytes, self.pipe = source, shared, bucket_bytes, pipe
        self.buckets = 0

    @torch.no_grad()
    def push(self):
        """Returns its time in ms."""
        self.buckets = 0
        pending, pending_bytes = [], 0
        start = time.perf_counter()
        for index, parameter in enumerate(self.source.dtensors):
            size = parameter.numel() * parameter.element_size()
            if pending and pending_bytes + size > self.bucket_bytes:
                self.flush(pending)
                pending, pending_bytes = [], 0
            whole = parameter.redistribute(placements=[Replicate()] * parameter.device_mesh.ndim, async_op=True).to_local()
            pending.append((index, whole))
            pending_bytes += size
        self.flush(pending)
        return (time.perf_counter() - start) * 1e3

    def flush(self, pending):
        tensors = [t.wait() if isinstance(t, AsyncCollectiveTensor) else t for _, t in pending]
        self.buckets += 1
        if self.pipe is None:
            return
        offset, places = 0, []
        for (index, _), tensor in zip(pending, tensors):
            places.append((index, offset))
            offset += tensor.numel()
        torch.cat([tensor.view(-1) for tensor in tensors], out=self.shared[:offset])
        self.pipe.send(("load", places))
        answer(self.pipe)


def run_rank(rank, options, rendezvous, pipe, shared, results):
    torch.set_num_threads(options.threads)
    world = math.prod(options.mesh)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world,
                            timeout=timedelta(seconds=DEADLINE_S))
    shapes = parameters(options.shapes)
    mesh = init_device_mesh("cpu", options.mesh, mesh_dim_names=("dp", "cp"))
    source = Source(mesh, shapes)
    pipe = pipe if rank == 0 else None
    sync = Sync(source, shared, options.bucket_mib * 1048576, pipe)

    def verify(step):
        if pipe is None:
            return []
        pipe.send(("verify", step))
        return answer(pipe)

    if pipe is not None:
        answer(pipe)  # ready
    times, wrong = [], []
    with torch.no_grad():
        source.set_step(0)
        for iteration in range(options.iterations + 1):  # the first touches everything for the first time
            if iteration == options.iterations:
                source.set_step(1)
            dist.barrier()
            times.append(sync.push())
            if iteration == 0:
                wrong += verify(0)
    wrong += verify(1)
    if pipe is not None:
        pipe.send(("end", None))
        results.put((times[1:], sync.buckets, wrong))
    dist.barrier()
    dist.destroy_process_group()


# ---- the parent ---------------------------------------------------------------------------------------------------


def arguments():
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(description="Weight sync with PyTorch's DTensor and gloo, for comparison.")
    parser.add_argument("--shapes", choices=list(MODELS), default="SmolLM2-135M")
    parser.add_argument("--mesh", default="2,1", help="trainer ranks as dp,cp")
    parser.add_argument("--bucket-mib", type=float, default=64)
    parser.add_argument("--iterations", type=int, default=5, help="timed syncs")
    parser.add_argument("--threads", type=int, default=0, help="of each rank; 0: the cores divided among the ranks")
    parser.add_argument("--engine-threads", type=int, default=min(cores, 4), help="that copy a bucket")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args()
    sizes = [int(size) for size in options.mesh.split(",")]
    options.mesh = tuple(sizes + [1] * (2 - len(sizes)))
    if len(options.mesh) != 2 or min(options.mesh) < 1 or options.iterations < 1 or options.bucket_mib <= 0:
        parser.error("expects --mesh dp,cp, at least one iteration and a positive bucket")
    options.threads = options.threads or max(1, cores // math.prod(options.mesh))
    return options


def measure(options):
    shapes = parameters(options.shapes)
    sizes = [math.prod(shape) * DTYPE.itemsize for _, shape in shapes]
    # A tensor larger than a bucket makes a bucket of its own, as these systems do it.
    shared = torch.zeros(max([int(options.bucket_mib * 1048576), *sizes]) // DTYPE.itemsize, dtype=DTYPE)
    shared.share_memory_()
    context = mp.get_context("spawn")
    trainer_end, engine_end = context.Pipe()
    results = context.SimpleQueue()
    engine = context.Process(target=run_engine, args=(engine_end, shared, shapes, options.engine_threads), daemon=True)
    engine.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            mp.start_processes(run_rank, nprocs=math.prod(options.mesh), start_method="spawn",
                               args=(options, f"{folder}/rendezvous", trainer_end, shared, results))
        times, buckets, wrong = results.get()
    finally:
        engine.join(5)
        engine.kill()
    median = statistics.median(times)
    ordered = sorted(times)
    return wrong, {
        "peer": "torch",
        "version": torch.__version__,
        "shapes": options.shapes,
        "mesh": list(options.mesh),
        "bytes": sum(sizes),
        "bucket_mib": options.bucket_mib,
        "buckets": buckets,
        "iterations": options.iterations,
        "median_ms": median,
        "min_ms": ordered[0],
        "p95_ms": ordered[round(0.95 * (len(ordered) - 1))],
        "gbps": sum(sizes) / median * 1e-6,
        "threads": {"rank": options.threads, "engine": options.engine_threads},
        "verified": not wrong,
    }


def table(r):
    mesh = ",".join(map(str, r["mesh"]))
    return (
        f"PyTorch {r['version']} · {r['shapes']} · bfloat16 · mesh {mesh} · {r['buckets']} buckets of "
        f"{r['bucket_mib']:g} MiB · threads {r['threads']['rank']} a rank, {r['threads']['engine']} engine\n\n"
        f"  {'sync':<18}{r['median_ms']:>9.1f} ms   median of {r['iterations']}; p95 {r['p95_ms']:.1f} ms, "
        f"least {r['min_ms']:.1f} ms\n"
        f"  {'':<18}{r['gbps']:>9.2f} GB/s {r['bytes'] / 1048576:.1f} MiB\n"
        f"  {'verified':<18}{'yes' if r['verified'] else 'NO':>9}      first and last sync, every byte"
    )


def main():
    options = arguments()
    wrong, result = measure(options)
    print(json.dumps(result) if options.json else table(result))
    if wrong:
        print(f"torch_sync: the engine does not hold what the trainer holds: {', '.join(wrong[:5])}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
