#!/usr/bin/env python3
"""Golden layouts and redistributions from PyTorch's DTensor, for tests/unit/common/dtensor/golden_test.cpp.

    python3 tests/golden/make_dtensor.py tests/golden/data/dtensor.json

Needs PyTorch 2.6; CPU and gloo only. The seed is fixed: the same PyTorch writes the same file. What the file holds:

  redistribute  mesh, shape, from, to; for every rank the piece before (shape, offset, runs) and after (shape, runs).
                The global tensor is 0, 1, 2, …; `runs` lists the piece's values as [first, count, first, count, …].
                A Partial source holds term() below, so that its reduction is the global tensor again.
  tp_fsdp       a linear layer, tensor-parallel over `tp`, then fully_shard over `dp`: the weight's placements and pieces.

Where PyTorch 2.6 cannot be asked, it refuses: an unevenly cut _StridedShard; Partial over gloo with reduce-scatter or avg;
a piece with an empty dim and another dim that needs padding.
"""

import json
import os
import random
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed._composable.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

SIZES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
MESHES = {
    2: [(2,), (1, 2), (2, 1)],
    3: [(3,)],
    4: [(4,), (2, 2), (1, 2, 2)],
    6: [(6,), (2, 3), (3, 2)],
    8: [(8,), (2, 4), (4, 2), (2, 2, 2)],
}
CASES = {2: 110, 3: 70, 4: 140, 6: 130, 8: 150}


def term(value, placements, sizes, coords):
    """What a rank of a Partial layout holds so that the reduction over all axes, in any order, is `value`."""
    sums = [i for i, p in enumerate(placements) if p.is_partial() and p.reduce_op == "sum"]
    result = value if all(coords[i] == 0 for i in sums) else torch.zeros_like(value)
    for i, p in enumerate(placements):
        if not p.is_partial():
            continue
        if p.reduce_op == "sum":
            result = result + (2 * coords[i] - (sizes[i] - 1))
        elif p.reduce_op == "max":
            result = result - 2 * coords[i]
        else:
            result = result + 2 * coords[i]
    return result


def name(p):
    if isinstance(p, _StridedShard):
        return f"SS({p.dim},{p.split_factor})"
    if p.is_shard():
        return f"S({p.dim})"
    return f"P({p.reduce_op})" if p.is_partial() else "R"


def runs(tensor):
    result = []
    for value in (int(v) for v in tensor.reshape(-1).tolist()):
        if result and result[-2] + result[-1] == value:
            result[-1] += 1
        else:
            result += [value, 1]
    return result


def can_be_asked(sizes, shape, source, to):
    """No rank has a piece with an empty dim and another dim that may be padded."""
    cut = {p.dim for p in (*source, *to) if p.is_shard()}
    for placements in (source, to):
        pieces = {tuple(shape)}
        for size, p in zip(sizes, placements):
            if p.is_shard():
                full = [-(-s[p.dim] // size) for s in pieces]
                pieces = {
                    (*s[: p.dim], min(s[p.dim], f * (r + 1)) - min(s[p.dim], f * r), *s[p.dim + 1 :])
                    for s, f in zip(pieces, full)
                    for r in range(size)
                }
        if any(s[d] == 0 and cut - {d} for s in pieces for d in range(len(shape))):
            return False
    return True


def random_case(rng, world):
    while True:
        case = draw_case(rng, world)
        if can_be_asked(*case):
            return case


def draw_case(rng, world):
    sizes = rng.choice(MESHES[world])
    shape = [rng.choice(SIZES) for _ in range(rng.choice((1, 1, 2, 2, 3)))]
    while torch.Size(shape).numel() > 250:
        shape[rng.randrange(len(shape))] = rng.choice(SIZES)
    shards = [Shard(d) for d in range(len(shape))]
    to = [rng.choice([Replicate(), *shards]) for _ in sizes]
    partials = [Partial(op) for op in ("sum", "max", "min")]
    sources = [Replicate(), *shards, *shards]
    # A Partial axis goes to Replicate: gloo has no reduce-scatter.
    source = [rng.choice(sources + partials) if t.is_replicate() else rng.choice(sources) for t in to]
    return sizes, shape, source, to


def redistribute_case(mesh, sizes, shape, source, to):
    coords = mesh.get_coordinate()
    whole = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
    cut = [Replicate() if p.is_partial() else p for p in source]
    # Every rank makes the whole tensor and keeps its piece.
    local = whole
    for axis, p in enumerate(cut):
        if p.is_shard():
            local = p._replicate_to_shard(local, mesh, axis, coords[axis])
    local_shape, offset = compute_local_shape_and_global_offset(torch.Size(shape), mesh, cut)
    assert list(local_shape) == list(local.shape)
    values = term(local, source, sizes, coords)
    stride = whole.stride()
    dt = DTensor.from_local(values, mesh, source, run_check=False, shape=torch.Size(shape), stride=stride)
    after = dt.redistribute(mesh, to).to_local()
    return [list(local.shape), list(offset), runs(local), list(after.shape), runs(after)]


def tp_fsdp_case(mesh, rows, columns, style):
    layer = nn.Module()
    layer.linear = nn.Linear(columns, rows, bias=False)
    with torch.no_grad():
        layer.linear.weight.copy_(torch.arange(rows * columns, dtype=torch.float32).reshape(rows, columns))
    plan = ColwiseParallel() if style == "colwise" else RowwiseParallel()
    parallelize_module(layer, mesh["tp"], {"linear": plan})
    fully_shard(layer, mesh=mesh["dp"])
    weight = layer.linear.weight
    local = weight.to_local().detach()
    return [name(p) for p in weight.placements], [list(local.shape), runs(local)]


def gather(value, world):
    everyone = [None] * world
    dist.all_gather_object(everyone, value)
    return everyone


def worker(rank, world, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(29600 + world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    rng = random.Random(20260 + world)
    meshes = {s: init_device_mesh("cpu", s, mesh_dim_names=tuple("abc"[: len(s)])) for s in MESHES[world]}
    cases, mine = [], []
    for _ in range(CASES[world]):
        sizes, shape, source, to = random_case(rng, world)
        mine.append(redistribute_case(meshes[sizes], sizes, shape, source, to))
        cases.append({"mesh": list(sizes), "shape": shape, "from": [name(p) for p in source], "to": [name(p) for p in to]})
    for case, ranks in zip(cases, zip(*gather(mine, world))):
        case["ranks"] = ranks

    layered, mine = [], []
    for sizes in [s for s in MESHES[world] if len(s) == 2 and min(s) > 1]:
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("dp", "tp"))
        for _ in range(12):
            style = rng.choice(("colwise", "rowwise"))
            if style == "colwise":  # both cut the rows: fully_shard wants them even
                rows, columns = world * rng.randint(1, 3), rng.randint(1, 9)
            else:  # it wants contiguous pieces, so tensor parallelism must cut the columns evenly
                rows, columns = rng.randint(1, 12), sizes[1] * rng.randint(1, 4)
            placements, piece = tp_fsdp_case(mesh, rows, columns, style)
            mine.append(piece)
            layered.append({"mesh": list(sizes), "shape": [rows, columns], "style": style, "placements": placements})
    for case, ranks in zip(layered, zip(*gather(mine, world))):
        case["ranks"] = ranks
    if rank == 0:
        with open(f"{out}.{world}", "w", encoding="utf-8") as file:
            json.dump({"redistribute": cases, "tp_fsdp": layered}, file)
    dist.barrier()
    os._exit(0)  # gloo's teardown sometimes hangs


def main():
    out = sys.argv[1]
    merged = {"torch": torch.__version__.split("+")[0], "redistribute": [], "tp_fsdp": []}
    for world in MESHES:
        mp.spawn(worker, args=(world, out), nprocs=world)
        with open(f"{out}.{world}", encoding="utf-8") as file:
            part = json.load(file)
        os.remove(f"{out}.{world}")
        for key in ("redistribute", "tp_fsdp"):
            merged[key] += part[key]
        print(f"world {world}: {len(part['redistribute'])} + {len(part['tp_fsdp'])} cases", flush=True)
    with open(out, "w", encoding="utf-8") as file:
        file.write("{" + f'"torch":{json.dumps(merged["torch"])}')
        for key in ("redistribute", "tp_fsdp"):
            lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in merged[key])
            file.write(f',\n"{key}":[\n{lines}]')
        file.write("}\n")


if __name__ == "__main__":
    main()
