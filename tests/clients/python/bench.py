"""Time of a push from a PyTorch FSDP2 model, beside DTensor's redistribute with torch's shared memory and the speed of light.

    scripts/python_check.sh PYTHON --bench [--shapes SmolLM2-135M Qwen3-0.6B] [--ranks 2] [--pushes 7]

All in one run: each Tandem push is followed by one of the peer (tests/bench/peers/torch_sync.py: redistributed parameter by
parameter, asynchronously within buckets of 64 MiB, flattened into shared memory, copied out by a second process; nothing
hashed) and by a measurement of the speed of light. A push is timed around the Python call, with its preparation. What both
engines hold is compared with the trainer's bytes on the first and the last push.

PyTorch 2.13's gloo now and then frees a string twice where two of its threads finish collectives at once, as the peer's
asynchronous ones do (seen with an address sanitizer, and nothing of Tandem loaded): that ends a rank by a signal, and the run
begins anew.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import tandem_sync
import tiny

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "peers"))
import torch_sync  # noqa: E402

WAYS = (("gather", False), ("direct", True), ("alias", True))
BUCKET_BYTES = 64 << 20
ATTEMPTS = 4


def module_of(shapes):
    """Parameters by these names, on no device yet."""
    root = nn.Module()
    for name, shape in shapes:
        at = root
        *path, last = name.split(".")
        for part in path:
            if not hasattr(at, part):
                at.add_module(part, nn.Module())
            at = getattr(at, part)
        at.register_parameter(last, nn.Parameter(torch.empty(shape, dtype=torch_sync.DTYPE, device="meta")))
    return root


def sharded(name):
    shapes = torch_sync.parameters(name)
    model = module_of(shapes)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.model.layers.children():
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for index, (parameter, shape) in enumerate(shapes):
            whole = torch_sync.full_tensor(index, shape, 0)
            local = parameters[parameter].to_local()
            rows = -(-shape[0] // mesh.size())
            local.copy_(whole[mesh.get_local_rank() * rows:][:len(local)])
    return model, [parameters[parameter] for parameter, _ in shapes]


def timed(what):
    start = time.perf_counter()
    result = what()
    return (time.perf_counter() - start) * 1e3, result


def measure(sync, peer, pushes):
    """Medians, ms."""
    version, rows = 0, []
    for turn in range(pushes + 1):  # the first touches everything for the first time
        version += 1
        dist.barrier()
        push_ms, report = timed(lambda: sync.push(version=version))
        dist.barrier()
        peer_ms = peer.push()
        light_ms = sync.speed_of_light()
        if turn in (0, pushes) and not sync.check():
            raise AssertionError(f"{report.mode}: '{sync.first_mismatch()}' differs")
        rows.append((push_ms, report.prepare_ms, report.paused_ms, peer_ms, light_ms))
    return [statistics.median(column) for column in zip(*rows[1:])], report.bytes


def run_rank(rank, options, name, rendezvous, pipe, shared, results):
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=options.ranks,
                            timeout=timedelta(seconds=torch_sync.DEADLINE_S))
    model, parameters = sharded(name)
    pipe = pipe if rank == 0 else None
    peer = torch_sync.Sync(SimpleNamespace(dtensors=parameters), shared, BUCKET_BYTES, pipe)
    if pipe is not None:
        torch_sync.answer(pipe)  # ready
    for mode, adopt in WAYS:
        engine = tiny.EngineRanks(name, dtype="bfloat16") if rank == 0 else None
        with tandem_sync.Session(engines=engine.addresses if rank == 0 else [], mode=mode, deadline=60) as sync:
            if adopt:
                sync.adopt(model)
            sync.publish(model)
            medians, size = measure(sync, peer, options.pushes)
        if rank == 0:
            engine.__exit__()
            pipe.send(("verify", 0))
            results.put((mode, adopt, size, medians, torch_sync.answer(pipe)))
    if pipe is not None:
        pipe.send(("end", None))
    dist.barrier()
    dist.destroy_process_group()


def processor():
    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else 'unknown'}, {os.cpu_count()} cores"


def bench(options, name):
    """Whether every byte arrived, both ways."""
    for attempt in range(ATTEMPTS):
        try:
            return bench_once(options, name)
        except mp.ProcessExitedException as error:
            if error.signal_name is None or attempt + 1 == ATTEMPTS:
                raise
            print(f"{name}: {error} (PyTorch's gloo, see this program's head); once more", file=sys.stderr)


def bench_once(options, name):
    shapes = torch_sync.parameters(name)
    largest = max(torch.Size(shape).numel() for _, shape in shapes)
    shared = torch.zeros(max(BUCKET_BYTES // torch_sync.DTYPE.itemsize, largest), dtype=torch_sync.DTYPE).share_memory_()
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe()
    results = context.SimpleQueue()
    engine = context.Process(target=torch_sync.run_engine, args=(theirs, shared, shapes, options.engine_threads), daemon=True)
    engine.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            mp.start_processes(run_rank, nprocs=options.ranks, start_method="spawn",
                               args=(options, name, f"{folder}/rendezvous", ours, shared, results))
    finally:
        engine.join(5)
        engine.kill()
    good = True
    for number, (mode, adopt, size, (push, prepare, paused, peer, light), wrong) in enumerate(results.get() for _ in WAYS):
        if number == 0:
            print(f"{name}, {size / 1e6:.0f} MB bf16, FSDP2 on {options.ranks} ranks, medians of {options.pushes}")
            print(f"  {'mode':<16}{'push ms':>9}{'prepare':>9}{'paused':>9}{'light':>9}{'paused/light':>14}"
                  f"{'DTensor ms':>12}{'times':>8}")
        print(f"  {mode + (', adopted' if adopt else ''):<16}{push:>9.1f}{prepare:>9.1f}{paused:>9.1f}{light:>9.1f}"
              f"{paused / light:>14.2f}{peer:>12.1f}{peer / push:>8.1f}")
        if wrong:
            print(f"the peer's engine does not hold what the trainer holds: {wrong[:5]}", file=sys.stderr)
            good = False
    return good


def main():
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(description="a push from FSDP2, beside DTensor and torch's shared memory")
    parser.add_argument("--shapes", nargs="+", choices=list(torch_sync.MODELS), default=["SmolLM2-135M", "Qwen3-0.6B"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pushes", type=int, default=7, help="timed ones")
    parser.add_argument("--engine-threads", type=int, default=min(cores, 4), help="of the peer's second process")
    options = parser.parse_args()
    options.threads = max(1, cores // options.ranks)
    print(f"PyTorch {torch.__version__} · {processor()}")
    sys.exit(0 if all([bench(options, name) for name in options.shapes]) else 1)


if __name__ == "__main__":
    main()
