#!/usr/bin/env python3
"""Golden pipeline schedules of PyTorch, for tests/unit/trainer/pipeline/golden_test.cpp.

    python3 tests/golden/make_schedules.py tests/golden/data/schedules.json
    python3 tests/golden/make_schedules.py --pp 5,6,7 --microbatches 64 wider.json

Needs PyTorch 2.13 and xxhash; no GPU and no processes. What the file holds:

  torch      the version
  hashes     [name]["PxV"][M - 1]: XXH3-64 of the compute lists and of the lowered lists, or "refused" where PyTorch raises a
             ValueError. Actions are joined by a space, ranks by a line end. Neighbouring RESHARDs are sorted: PyTorch keeps
             them in a set.
  lists      a few in full, for people

GPipe and 1F1B are what their loops do with a stage that only writes down what is asked of it: 1F1B's own table, for drawing,
numbers the last rank's forwards from 1. They take one stage a rank, so more are refused, and are not lowered: "".
"""

import argparse
import inspect
import itertools
import json
import logging

import torch
import xxhash
from torch.distributed.pipelining import schedules

NAMES = ["GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"]
IN_FULL = [("GPipe", 2, 1, 4), ("1F1B", 4, 1, 8), ("Interleaved1F1B", 4, 2, 8), ("LoopedBFS", 2, 2, 3),
           ("InterleavedZeroBubble", 4, 2, 8), ("ZBVZeroBubble", 4, 2, 8), ("DualPipeV", 4, 2, 8)]


class Stage:
    """As much of a stage as schedules ask for."""

    submod = None
    has_backward = True
    is_first = False
    is_last = False

    def __init__(self, index, ranks, stages):
        self.stage_index, self.group_rank, self.group_size, self.num_stages = index, index % ranks, ranks, stages
        self.done = []

    def forward_one_chunk(self, microbatch, *args, **kwargs):
        self.done.append(f"{self.stage_index}F{microbatch}")

    def backward_one_chunk(self, microbatch, *args, **kwargs):
        self.done.append(f"{self.stage_index}B{microbatch}")

    def perform_reduce_grad(self, *args):
        pass

    def get_fwd_recv_ops(self, microbatch):
        return []

    get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = get_fwd_recv_ops


def loop(kind, rank, ranks, microbatches):
    stage = Stage(rank, ranks, ranks)
    schedule = kind(stage, microbatches)
    schedule._initialize_stage = lambda *args: None
    schedule._step_microbatches([()] * microbatches, [{}] * microbatches)
    return stage.done


def sorted_reshards(actions):
    for is_reshard, group in itertools.groupby(actions, lambda action: action.computation_type == schedules.RESHARD):
        yield from sorted(group) if is_reshard else group


def lists_of(name, ranks, stages_per_rank, microbatches):
    """Compute lists and lowered lists, [rank][action] as text, or None where they are refused."""
    kind = schedules.get_schedule_class(name)
    try:
        if "stage" in inspect.signature(kind).parameters:
            if stages_per_rank != 1:
                return None
            return [loop(kind, rank, ranks, microbatches) for rank in range(ranks)], []
        stages = [Stage(index * ranks, ranks, ranks * stages_per_rank) for index in range(stages_per_rank)]
        schedule = kind(stages, microbatches)
    except ValueError:
        return None
    compute = [[str(action) for action in schedule.pipeline_order[rank] if action] for rank in range(ranks)]
    lowered = [[str(action) for action in sorted_reshards(schedule.pipeline_order_with_comms[rank])] for rank in range(ranks)]
    return compute, lowered


def text_of(lists):
    return "\n".join(" ".join(actions) for actions in lists)


def hash_of(lists):
    return xxhash.xxh3_64_hexdigest(text_of(lists).encode()) if lists else ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pp", default="2,3,4,8")
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=32)
    parser.add_argument("file")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)

    hashes = {}
    for name in NAMES:
        hashes[name] = {}
        for ranks in map(int, arguments.pp.split(",")):
            for stages_per_rank in range(1, arguments.stages + 1):
                cases = []
                for microbatches in range(1, arguments.microbatches + 1):
                    lists = lists_of(name, ranks, stages_per_rank, microbatches)
                    cases.append([hash_of(part) for part in lists] if lists else "refused")
                hashes[name][f"{ranks}x{stages_per_rank}"] = cases
        print(name, flush=True)
    lists = [{"name": name, "pp": ranks, "stages": stages, "microbatches": microbatches,
              "ranks": [" ".join(actions) for actions in lists_of(name, ranks, stages, microbatches)[0]]}
             for name, ranks, stages, microbatches in IN_FULL]
    named = []
    for name, shapes in hashes.items():
        lines = [f'  "{shape}": {json.dumps(cases, separators=(",", ":"))}' for shape, cases in shapes.items()]
        named.append(f'"{name}": {{\n' + ",\n".join(lines) + "}")
    with open(arguments.file, "w") as file:
        version = torch.__version__.split("+")[0]
        file.write(f'{{"torch": "{version}",\n"lists": {json.dumps(lists, indent=1)},\n"hashes": {{\n')
        file.write(",\n".join(named) + "}}\n")


if __name__ == "__main__":
    main()
