"""Uses our store with the clients of PyTorch, from several processes, and forms process groups by it.

Whatever a client can do is done once with our server and once with PyTorch's own, and must give the same. Exit code 1 when
anything differs.
"""
import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import subprocess
import time

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # read by the import: connections end here on purpose
import torch
import torch.distributed as dist


class Store:
    """Our server, in a process of its own."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.process.stdin.close()
        assert self.process.wait(20) == 0

    def ask(self, **asked):
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def client(port, seconds=20, **options):
    return dist.TCPStore("127.0.0.1", port, is_master=False, timeout=datetime.timedelta(seconds=seconds), **options)


def outcome(body):
    try:
        return body()
    except Exception as error:  # the kind of it is part of what is compared
        return type(error).__name__


def everything(port):
    """What a client of that port sees, as a list."""
    store, other = client(port), client(port)
    soon = datetime.timedelta(milliseconds=300)
    seen = []

    def note(body):
        seen.append(outcome(body))

    note(lambda: store.set("key", "value"))
    note(lambda: other.get("key"))
    note(lambda: store.set("bytes", b"\0\xff" * 3000))
    note(lambda: other.get("bytes"))
    note(lambda: other.add("sum", 5))
    note(lambda: store.add("sum", -7))
    note(lambda: other.get("sum"))
    note(lambda: store.compare_set("key", "other", "no"))
    note(lambda: store.compare_set("key", "value", "changed"))
    note(lambda: store.compare_set("absent", "old", "new"))
    note(lambda: store.compare_set("fresh", "", "new"))
    note(lambda: [store.check(["key"]), store.check(["key", "absent"])])
    note(lambda: store.append("key", "+more"))
    note(lambda: other.get("key"))
    note(lambda: store.multi_set(["a", "b"], ["1", "2"]))
    note(lambda: other.multi_get(["a", "b", "key"]))
    note(lambda: [store.delete_key("a"), store.delete_key("a")])
    note(lambda: store.wait(["b", "key"]))
    note(lambda: store.wait(["b", "never"], soon))
    note(lambda: store.get("key"))  # the connection is as it was
    note(lambda: dist.PrefixStore("outer", dist.PrefixStore("inner", store)).set("k", "prefixed"))
    note(lambda: other.get("inner/outer/k"))
    if hasattr(store, "queue_push"):
        note(lambda: [store.queue_push("queue", "1"), store.queue_push("queue", "2"), store.queue_len("queue")])
        note(lambda: [other.queue_pop("queue"), other.queue_pop("queue"), other.queue_len("queue")])
        note(lambda: other.queue_pop("queue", block=False))
    if hasattr(store, "list_keys"):
        note(lambda: sorted(store.list_keys()))
    if hasattr(store, "barrier"):
        note(lambda: store.barrier("meeting", 2, soon))
        note(lambda: other.barrier("meeting", 2, soon))
    note(store.num_keys)
    return seen


def take_turns(port, rank, ranks, failures):
    try:
        store = client(port, world_size=ranks, wait_for_workers=True)
        for turn in range(50):
            if store.add(f"turn/{turn}", 1) == ranks:
                store.set(f"go/{turn}", str(rank))
            assert 0 <= int(store.get(f"go/{turn}")) < ranks
        if rank == 0:
            time.sleep(1)
            store.set("late", "there")
        store.wait(["late"])
    except BaseException as error:
        failures.put(f"rank {rank}: {error!r}")


def form_groups(port, rank, ranks, failures):
    """Rank 0 has a store, as ours has; the others find it by its URL."""
    try:
        options = dict(backend="gloo", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=30))
        if rank == 0:
            dist.init_process_group(store=dist.PrefixStore("default_pg", client(port)), **options)
        else:
            dist.init_process_group(init_method=f"tcp://127.0.0.1:{port}", **options)
        tensor = torch.full((1000,), float(rank + 1))
        dist.all_reduce(tensor)
        assert tensor.eq(ranks * (ranks + 1) / 2).all(), tensor[0]
        group = dist.new_group([0, ranks - 1])
        if rank in (0, ranks - 1):
            pair = torch.tensor([rank])
            dist.all_reduce(pair, group=group)
            assert pair.item() == ranks - 1
        objects = [{"from": rank}] if rank == 0 else [None]
        dist.broadcast_object_list(objects)
        assert objects == [{"from": 0}]
        dist.monitored_barrier()
        dist.destroy_process_group()
    except BaseException as error:
        failures.put(f"rank {rank}: {error!r}")


def form_group_on_a_store(port, rank, ranks, failures):
    try:
        store = dist.PrefixStore("x", client(port))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
        tensor = torch.tensor([2.0**rank])
        dist.all_reduce(tensor)
        assert tensor.item() == 2.0**ranks - 1
        dist.destroy_process_group()
    except BaseException as error:
        failures.put(f"rank {rank}: {error!r}")


def in_processes(body, port, ranks):
    context = multiprocessing.get_context("spawn")
    failures = context.Queue()
    processes = [context.Process(target=body, args=(port, rank, ranks, failures)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        if process.is_alive():
            process.kill()
            failures.put("a process does not end")
    assert all(process.exitcode == 0 for process in processes) and failures.empty(), failures.get()


def check_against_pytorch(program):
    with Store(program) as ours:
        seen = everything(ours.port)
    theirs = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    expected = everything(theirs.port)
    for step, (one, other) in enumerate(zip(seen, expected, strict=True)):
        assert one == other, f"step {step}: {one!r}, with PyTorch's server {other!r}"
    failed = [one for one in seen if isinstance(one, str)]  # the waits for what never comes, and an empty queue
    assert len(failed) == 1 + hasattr(theirs, "queue_push") + hasattr(theirs, "barrier"), failed
    print(f"  {len(seen)} steps of a client: as with PyTorch's server", flush=True)


def check_our_side(program):
    """What the process that has the store sees of its clients, and they of it."""
    with Store(program) as store, multiprocessing.get_context("spawn").Pool(1) as pool:
        waits = pool.apply_async(wait_for, (store.port, "group", "0"))
        deadline = time.monotonic() + 60
        while store.ask(awaited=True) != ["group/0"]:
            assert time.monotonic() < deadline
            time.sleep(.01)
        assert store.ask(set="group/0", value="from the server") is True
        assert waits.get(60) == b"from the server"
        assert store.ask(get="group/answer", seconds=20) == "from the client"
        assert store.ask(add="group/sum", amount=4) == 4
        assert "'never'" in store.ask(get="never", seconds=0)["error"]
    print("  values of the process that has the store, and for it", flush=True)


def wait_for(port, prefix, name):
    store = dist.PrefixStore(prefix, client(port))
    value = store.get(name)
    store.set("answer", "from the client")
    return value


def join_named_group(port, failures):
    """As a worker of SGLang's joins a group for updates; a backend stands for NCCL, which asks its store for "0"."""
    from torch.distributed import distributed_c10d as c10d

    def backend(store, rank, size, timeout):
        assert (rank, size, store.get("0")) == (1, 2, b"id")
        raise KeyboardInterrupt("this is all that it wanted")

    c10d.Backend.register_backend("standin", backend, devices=["cuda"])
    address = f"tcp://127.0.0.1:{port}"
    try:
        if importlib.util.find_spec("sglang"):
            from sglang.srt.utils.common import init_custom_process_group

            init_custom_process_group("cuda:standin", address, world_size=2, rank=1, group_name="weights")
        else:
            store, rank, size = next(c10d.rendezvous(address, 1, 2, timeout=c10d.default_pg_timeout))
            c10d._new_process_group_helper(size, rank, [], c10d.Backend("cuda:standin"), dist.PrefixStore("weights", store),
                                           group_name="weights", timeout=c10d.default_pg_timeout)
        failures.put("the backend was not asked")
    except KeyboardInterrupt:
        pass
    except BaseException as error:
        failures.put(repr(error))


def check_named_group(program):
    context = multiprocessing.get_context("spawn")
    failures = context.Queue()
    with Store(program) as store:
        process = context.Process(target=join_named_group, args=(store.port, failures))
        process.start()
        deadline = time.monotonic() + 120
        while not (awaited := store.ask(awaited=True)):
            assert time.monotonic() < deadline and process.is_alive(), failures.get(timeout=5)
            time.sleep(.01)
        assert awaited == ["weights/weights//cuda//0"], awaited
        assert store.ask(set=awaited[0], value="id") is True
        process.join(60)
        assert process.exitcode == 0 and failures.empty(), failures.get()
    by = "SGLang " + importlib.metadata.version("sglang") if importlib.util.find_spec("sglang") else "PyTorch"
    print(f"  a group \"weights\" of {by} waits for {awaited[0]}", flush=True)


def check_end(program):
    with Store(program) as store:
        left = client(store.port, seconds=5)
        left.set("k", "v")
    assert outcome(lambda: left.get("k")) in ("DistNetworkError", "DistStoreError", "RuntimeError")
    print("  clients of a store that has ended hear of it", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="torch_store")
    options = parser.parse_args()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    print(f"PyTorch {torch.__version__}:", flush=True)
    check_against_pytorch(options.program)
    check_our_side(options.program)
    check_named_group(options.program)
    check_end(options.program)
    for body, what in ((take_turns, "3 processes take turns"), (form_groups, "a group of 3 by tcp://, one in it"),
                       (form_group_on_a_store, "a group of 3 on a PrefixStore")):
        with Store(options.program) as store:
            in_processes(body, store.port, 3)
        print(f"  {what}", flush=True)
    print("  ok", flush=True)


if __name__ == "__main__":
    main()
