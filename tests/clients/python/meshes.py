"""Publishes DTensors on meshes of every kind, made by PyTorch itself, and compares the bytes that the engine holds with the whole
tensors: meshes flattened, sliced, permuted, of some of the ranks; a dim that is cut twice; dims counted from the end.

    scripts/python_check.sh          runs this
"""

import os
import sys
import traceback

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import tandem_sync
import tiny
from layouts import compare, expect, run


def kinds():
    """What makes a DTensor of a whole tensor, by name."""
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    cube = init_device_mesh("cpu", (2, 1, 2))

    def on(mesh, *placements):
        return lambda whole: distribute_tensor(whole, mesh, [p(whole) if callable(p) else p for p in placements])

    def last(whole):
        return Shard(whole.dim() - 1)

    found = {
        "flattened": on(grid["a", "b"]._flatten("ab"), Shard(0)),
        "one axis of two": on(grid["b"], Shard(0)),
        "ascending along each axis": on(DeviceMesh("cpu", [[0, 2], [1, 3]]), Shard(0), last),
        "rows cut twice": on(grid, Shard(0), Shard(0)),
        "columns cut twice": on(grid, last, last),
        "from the end": on(grid, Replicate(), Shard(-1)),
        "three axes": on(cube, Shard(0), Shard(0), last),
        "the first ranks": on(DeviceMesh("cpu", [0, 1]), Shard(0)),
        "the last ranks, descending, whole": on(DeviceMesh("cpu", [3, 2]), Replicate()),
        "one rank": on(DeviceMesh("cpu", [1]), Shard(0)),
    }
    return found, {
        "descending": (on(DeviceMesh("cpu", [3, 1, 2, 0]), Shard(0)), "do not ascend"),
        "partial": (lambda whole: DTensor.from_local(whole, grid, [Replicate(), Partial()]), "reduce it before publishing"),
    }


def body(rank, size, url, port, failures):
    try:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
        dist.init_process_group("gloo")
        torch.manual_seed(3)
        whole = {name: parameter.detach() for name, parameter in tiny.Tiny().named_parameters()}
        good, bad = kinds()
        cases = {**{name: [make] for name, make in good.items()}, "all of them in one model": list(good.values())}
        for version, (case, makes) in enumerate(cases.items(), start=1):
            with tandem_sync.Session(engines=[url] if rank == 0 else [], deadline=30, rollback=True) as sync:
                values = {name: tensor * version for name, tensor in whole.items()}
                sync.publish([(name, makes[at % len(makes)](tensor)) for at, (name, tensor) in enumerate(values.items())])
                sync.push(version=version)
                expect(sync.check(), f"{case}: check: {sync.first_mismatch()}")
                if rank == 0:
                    compare(url, {tandem_sync.hf(name): tensor for name, tensor in values.items()}, version)
        for case, (make, why) in bad.items():
            with tandem_sync.Session(engines=[url] if rank == 0 else [], deadline=30, rollback=True) as sync:
                try:
                    sync.publish([(name, make(tensor)) for name, tensor in whole.items()])
                    raise AssertionError(f"{case}: published")
                except tandem_sync.InvalidError as error:
                    expect(why in str(error), str(error))
        dist.destroy_process_group()
    except BaseException:
        failures.put(f"rank {rank}:\n{traceback.format_exc()}")
        sys.exit(1)


if __name__ == "__main__":
    with tiny.engine(tiny.Tiny()) as (url, process):
        texts = run(body, 4, url)
    print(f"torch {torch.__version__}: meshes: {'failed' if texts else 'ok'}")
    for text in texts:
        print(text, file=sys.stderr)
    sys.exit(bool(texts))
