"""Publishes PyTorch models of many layouts to a tandem-engine, and compares the bytes that it holds with full_tensor()'s.

    scripts/python_check.sh          runs this and the doctests, with each PyTorch that it is given
"""

import contextlib
import gc
import os
import sys
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import xxhash
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import tandem_sync
import tiny


# FSDP2 of PyTorch 2.6 calls these on the CPU, whose streams got them later; they do nothing.
for missing in ("record_event", "wait_event"):
    if not hasattr(torch.cpu.Stream, missing):
        setattr(torch.cpu.Stream, missing, lambda self, event=None: None)


def one(model):
    return model


def fsdp(model, mesh):
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fsdp_all(model):
    return fsdp(model, init_device_mesh("cpu", (dist.get_world_size(),)))


def fsdp_reduced_precision(model):
    from torch.distributed.fsdp import MixedPrecisionPolicy
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def hsdp(model):
    return fsdp(model, init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))


def fsdp_of_submesh(model):
    return fsdp(model, init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "cp"))["dp"])


def tp(model, mesh):
    for layer in model.model.layers:
        parallelize_module(layer, mesh, {
            "self_attn.q_proj": ColwiseParallel(), "self_attn.k_proj": ColwiseParallel(),
            "self_attn.v_proj": ColwiseParallel(), "self_attn.o_proj": RowwiseParallel(),
            "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel()})
    return model


def tp_all(model):
    return tp(model, init_device_mesh("cpu", (dist.get_world_size(),)))


def fsdp_and_tp(model):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    return fsdp(tp(model, mesh["tp"]), mesh["dp"])


def columns(model):
    """Shard(1) of what has a second dim, as FSDP2 cuts it when told to."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in [*model.model.layers, model]:
        fully_shard(module, mesh=mesh, shard_placement_fn=lambda p: Shard(1) if p.dim() > 1 else None)
    return model


def ddp(model):
    return torch.nn.parallel.DistributedDataParallel(model)


def wrapped(model):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    for at, layer in enumerate(model.model.layers):
        model.model.layers[at] = checkpoint_wrapper(layer)
    return torch.compile(fsdp_all(model), backend="eager")


EVEN = {"vocab_size": 104}  # PyTorch's FSDP over TP wants dims that divide
CASES = {  # name: (ranks, tied, layout, changes of the configuration)
    "one process": (0, False, one, {}),
    "one rank, tied": (1, True, fsdp_all, {}),
    "FSDP2 (2)": (2, False, fsdp_all, {}),
    "FSDP2 (2), computing in bf16": (2, False, fsdp_reduced_precision, {}),
    "FSDP2 (2), tied": (2, True, fsdp_all, {}),
    "FSDP2 (3), uneven rows": (3, False, fsdp_all, {}),
    "FSDP2 (3), uneven rows, tied": (3, True, fsdp_all, {}),
    "FSDP2 (2), cut by columns": (2, False, columns, {}),
    "FSDP2 (2), compiled and checkpointed": (2, False, wrapped, {}),
    "DDP (2)": (2, True, ddp, {}),
    "FSDP2 on dp of (dp, cp) = (2, 1)": (2, False, fsdp_of_submesh, {}),
    "FSDP2 on dp of (dp, cp) = (2, 2)": (4, False, fsdp_of_submesh, {}),
    "HSDP (2, 2)": (4, False, hsdp, {}),
    "TP (2)": (2, False, tp_all, EVEN),
    "FSDP2 x TP (2, 2)": (4, False, fsdp_and_tp, EVEN),
}


# On the CPU, FSDP2 of PyTorch 2.6 has no backward (its gathered weights count as modified): there weights are changed in
# place instead, and the forward alone shows that they are the ones that are used.
BACKWARD = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 7)


def train_step(model, optimizer, step):
    torch.manual_seed(1000 + step)  # the same tokens on every rank: replicas stay equal
    ids = torch.randint(0, 100, (2, 12))
    if not BACKWARD:
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(model(ids).float().flatten(0, 1), ids.roll(-1, 1).flatten())
            for parameter in model.parameters():
                parameter.mul_(1 + 0.01 * (step + 1))
        if hasattr(model, "reshard"):
            model.reshard()
        return loss
    logits = model(ids)
    loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids.roll(-1, 1).flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def full(model):
    """Every parameter whole, by PyTorch's own means. Collective."""
    return {tandem_sync.hf(name): (p.full_tensor() if isinstance(p, DTensor) else p).detach().clone()
            for name, p in model.named_parameters()}


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def compare(url, whole, version):
    checksums, info = tiny.held(url)
    expect(info["weight_version"] in (version, str(version)), f"the engine says {info['weight_version']}, not {version}")
    expect(set(checksums) == set(whole), f"names differ: {set(checksums) ^ set(whole)}")
    for name, tensor in whole.items():
        mine = xxhash.xxh3_128_hexdigest(tensor.contiguous().numpy().tobytes())
        expect(checksums[name] == mine, f"version {version}: '{name}' differs")


def compare_ranks(engine, whole, version):
    for number, held in enumerate(engine.held()):
        wanted = tiny.tensor_parallel(whole, len(engine.ranks), number)
        expect(held["version"] == version, f"engine rank {number} holds version {held['version']}, not {version}")
        expect(set(held["tensors"]) == set(wanted), f"names differ: {set(held['tensors']) ^ set(wanted)}")
        for name, tensor in wanted.items():
            mine = xxhash.xxh3_128_hexdigest(tensor.contiguous().numpy().tobytes())
            expect(held["tensors"][name] == mine, f"engine rank {number}, version {version}: '{name}' differs")


def push_to_ranks(rank, tied, layout, changes, tp):
    """Into the ranks of a tensor-parallel engine, with and without a copy on the trainer's side."""
    torch.manual_seed(8)
    module = tiny.Tiny(tied, **changes)
    config = module.config
    model = layout(module)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for adopt, mode in ((False, "gather"), (True, "direct"), (False, "delta")):
        with tiny.EngineRanks(config, tp) if rank == 0 else contextlib.nullcontext() as engine:
            with tandem_sync.Session(engines=engine.addresses if rank == 0 else [], mode=mode, deadline=30) as sync:
                if adopt:
                    sync.adopt(model)
                sync.publish(model)
                for version in (1, 2):
                    train_step(model, optimizer, version)
                    sync.push(version=version)
                    expect(sync.check(), f"{mode}: check after version {version}: {sync.first_mismatch()}")
                    whole = full(model)
                    if rank == 0:
                        compare_ranks(engine, whole, version)


def gathered(model):
    """FSDP2's modules, the root first; none of other layouts."""
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def push_while_gathered(rank, url, tied, layout, changes):
    """The weights, not the copies that FSDP2 has computed with and left in their place."""
    torch.manual_seed(9)
    model = layout(tiny.Tiny(tied, **changes))
    modules = gathered(model)
    if not modules:
        return
    whole = full(model)
    for adopt in (False, True):
        with torch.no_grad():
            model(torch.zeros(2, 12, dtype=torch.int64))  # gathers the root's
        with tandem_sync.Session(engines=[url] if rank == 0 else [], deadline=30, rollback=True) as sync:
            if adopt:
                sync.adopt(model)
            sync.publish(model)
            for version, change in ((1, None), (2, FSDPModule.unshard), (3, FSDPModule.reshard), (4, FSDPModule.unshard)):
                for module in modules if change else []:
                    change(module)
                sync.push(version=version)
                expect(sync.check(), f"gathered, adopt {adopt}: check after version {version}: {sync.first_mismatch()}")
                if rank == 0:
                    compare(url, whole, version)
            for copies in (model.named_parameters(), [(name, p.detach()) for name, p in model.named_parameters()]):
                try:
                    sync.publish(copies)
                    raise AssertionError("gathered copies were published")
                except tandem_sync.InvalidError as error:
                    expect("gathered copy" in str(error), str(error))
            for module in modules:
                module.reshard()
            sync.publish(model.named_parameters())


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def train_and_push(rank, url, tied, layout, changes, adopt, mode):
    torch.manual_seed(7)
    model = layout(tiny.Tiny(tied, **changes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with tandem_sync.Session(engines=[url] if rank == 0 else [], mode=mode, deadline=30, rollback=True) as sync:
        losses = [train_step(model, optimizer, 0)] if adopt == "late" else []
        if adopt:
            sync.adopt(model)
        if adopt != "late":
            losses.append(train_step(model, optimizer, 0))
        sync.publish(model)
        for version in (1, 2, 3):
            report = sync.push(version=version) if version != 2 else sync.push(version=version, wait=False).wait()
            expect(report.mode == (mode if mode != "auto" else "direct" if adopt else "gather"), report.mode)
            expect(sync.check(), f"check after version {version}: {sync.first_mismatch()}")
            whole = full(model)
            if rank == 0:
                compare(url, whole, version)
            losses.append(train_step(model, optimizer, version))
            expect(sync.first_mismatch() is not None, "a step of the optimizer went unnoticed")
    losses.append(train_step(model, optimizer, 9))  # adopted memory outlives the session
    return torch.stack(losses), full(model)


def body(rank, size, url, case, port, failures):
    try:
        torch.set_num_threads(1)
        if size > 0:
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
            dist.init_process_group("gloo")
        _, tied, layout, changes = CASES[case]
        losses, weights = train_and_push(rank, url, tied, layout, changes, adopt=None, mode="auto")
        for adopt, mode in (("early", "auto"), ("late", "auto"), ("early", "alias"), (None, "alias"), ("early", "gather"),
                            (None, "delta")):
            again, same_weights = train_and_push(rank, url, tied, layout, changes, adopt, mode)
            expect(torch.equal(losses, again), f"adopt {adopt}, {mode}: losses differ")
            expect(same(weights, same_weights), f"adopt {adopt}, {mode}: trained weights differ")
        push_while_gathered(rank, url, tied, layout, changes)
        push_to_ranks(rank, tied, layout, changes, tp=2)
        if size > 0:
            dist.destroy_process_group()
            gc.collect()  # models in cycles hold Gloo's threads, which abort where the interpreter ends before them
    except BaseException:
        failures.put(f"{case}, rank {rank}:\n{traceback.format_exc()}")
        sys.exit(1)


def killed_engine(rank, size, url, pid, port, failures):
    """Every rank hears the same of an engine that dies, and a push that is aborted ends."""
    try:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
        dist.init_process_group("gloo")
        torch.manual_seed(7)
        model = fsdp_all(tiny.Tiny())
        with tandem_sync.Session(engines=[url] if rank == 0 else [], deadline=10) as sync:
            sync.publish(model)
            sync.push(version=11)
            dist.barrier()
            if rank == 0:
                os.kill(pid, 9)
            dist.barrier()
            try:
                sync.push(version=12)
                raise AssertionError("a push to a dead engine went well")
            except tandem_sync.SyncError as error:
                expect((error.rank, error.phase) == (0, "pause"), f"{error.rank} {error.phase}: {error}")
                expect("engine" in error.peer, error.peer)
        try:
            tandem_sync.Session(engines=[url], deadline=5)
            raise AssertionError("a session with a dead engine was opened")
        except tandem_sync.SyncError as error:
            expect(error.phase == "connect", error.phase)
        dist.destroy_process_group()
        gc.collect()
    except BaseException:
        failures.put(f"killed engine, rank {rank}:\n{traceback.format_exc()}")
        sys.exit(1)


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(what, size, *arguments):
    failures = mp.get_context("spawn").SimpleQueue()
    port = free_port()
    ranks = [mp.get_context("spawn").Process(target=what, args=(rank, size, *arguments, port, failures), daemon=True)
             for rank in range(max(size, 1))]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(240)
    texts = []
    while not failures.empty():
        texts.append(failures.get())
    for number, rank in enumerate(ranks):
        if rank.exitcode != 0 and not texts:
            texts.append(f"rank {number} ended with {rank.exitcode}")
        rank.kill()
    return texts


def main():
    chosen = sys.argv[1:] or [*CASES, "killed engine"]
    bad = 0
    for case in chosen:
        tied, changes = (CASES[case][1], CASES[case][3]) if case in CASES else (False, {})
        with tiny.engine(tiny.Tiny(tied, **changes)) as (url, process):
            texts = run(body, CASES[case][0], url, case) if case in CASES else run(killed_engine, 2, url, process.pid)
        print(f"torch {torch.__version__}: {case}: {'failed' if texts else 'ok'}", flush=True)
        for text in texts:
            print(text, file=sys.stderr)
        bad += bool(texts)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
