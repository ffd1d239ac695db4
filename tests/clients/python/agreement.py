"""What one rank of a server's step fails with, every rank is told of. Run by scripts/python_check.sh.

Exit code 1 when a rank was told anything else, or goes on before the slowest has ended its step.
"""
import logging
import pathlib
import sys
import tempfile
import time
import types

import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from tandem_sync.server.agreement import all_together, each_alone

RANKS = 3


def step_of(rank, failing, folder):
    def step():
        if rank == 1:
            time.sleep(0.3)
        (folder / str(rank)).touch()
        if rank in failing:
            raise ValueError(f"ordered on {rank}")

    return step


def run(rank, name):
    logging.disable()
    folder = pathlib.Path(name)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, init_method=f"file://{name}/rendezvous")
    group = types.SimpleNamespace(rank_in_group=rank, world_size=RANKS, cpu_group=dist.group.WORLD)
    for failing in [(), (1,), (0, 2), ()]:
        ended = folder / f"steps of {failing}"
        ended.mkdir(exist_ok=True)
        dist.barrier()
        failures = all_together(step_of(rank, failing, ended), group)
        wanted = [f"ValueError: ordered on {at}" if at in failing else "" for at in range(RANKS)]
        if failures != wanted or len(list(ended.iterdir())) != RANKS:
            sys.exit(f"rank {rank} was told {failures} where {failing} fail, after {len(list(ended.iterdir()))} of {RANKS} steps")
        dist.barrier()
        for file in ended.iterdir():
            file.unlink(missing_ok=True)
        dist.barrier()
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as name:
        multiprocessing.spawn(run, args=(name,), nprocs=RANKS)
        alone = types.SimpleNamespace(rank_in_group=0, world_size=1, cpu_group=None)
        logging.disable()
        step = step_of(0, (0,), pathlib.Path(name))
        if all_together(step, alone) != [each_alone(step)] or not each_alone(step):
            sys.exit("a rank alone is not told of its own failure")
    print(f"one rank's failure is told to all of {RANKS}")


if __name__ == "__main__":
    main()
