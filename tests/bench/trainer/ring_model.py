#!/usr/bin/env python3
"""The time of ring attention (trainer/context/zigzag.cpp), by arithmetic: operations, bytes of results, bytes over the link.

    python3 tests/bench/trainer/ring_model.py [--lengths 16384,131072] [--ranks 1,2,4,8] [--link 360,50] [--measured FILE.json…]

One causal sequence of bfloat16 over P ranks. A step's block (n² / 2 pairs of a query and a key, n = length / P) runs at the rate
that attention over one rank reaches, and its results are read and written at the memory's; nothing of both overlaps. Keys and
values, and in the backward the fp32 gradients that follow them, take turns on one link, each beside the next block, in the order
of the code's events. Columns: what a step computes, what its results take, what it sends; which is longer; the whole pass, and
the share of the ideal: one rank's operations, divided by P. Of all ranks the last one, which has the most results.
Left out: launches, what short blocks lose of the rate, neighbours that are late.
--measured: JSON of attention_gpu_bench (one rank) or of the same form with "ranks" in its rows; shown where the shape is the same.
Exit code 0: done, 2: bad usage.
"""

import argparse
import json
import pathlib


def numbers(text):
    return [float(part) for part in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=numbers, default=[16384, 32768, 131072])
    parser.add_argument("--ranks", type=numbers, default=[1, 2, 4, 8])
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--forward-tflops", type=float, default=612, help="of one rank; measured on an H100")
    parser.add_argument("--backward-tflops", type=float, default=492)
    parser.add_argument("--link", type=numbers, default=[360, 50], help="GB/s each way: NVLink's 450 less a fifth; a network")
    parser.add_argument("--memory", type=float, default=3000, help="GB/s; an H100's copy")
    parser.add_argument("--measured", type=pathlib.Path, nargs="*", default=[])
    options = parser.parse_args()
    sizes = options.lengths + options.ranks + options.link + [options.memory, options.forward_tflops, options.backward_tflops]
    if min(sizes + [options.heads, options.kv_heads, options.head_dim]) <= 0:
        parser.error("every number must be above 0")
    return options


class Streams:
    """The two streams of a rank, in seconds since the start."""

    def __init__(self):
        self.compute = self.transfer = 0.0

    def send(self, seconds):
        """Behind what compute has done so far; when it is there."""
        self.transfer = max(self.transfer, self.compute) + seconds
        return self.transfer

    def wait(self, there):
        self.compute = max(self.compute, there)


class Ring:
    """Of a shape: seconds of each part of a step, forward and backward."""

    def __init__(self, options, length, ranks, link):
        self.ranks = int(ranks)
        rows = length / self.ranks
        self.elements = rows * options.heads * options.head_dim  # of q and the results
        keys = 2 * rows * options.kv_heads * options.head_dim  # of k and v
        self.operations = 4 * rows * rows / 2 * options.heads * options.head_dim  # of a forward block
        self.rate = {"forward": options.forward_tflops * 1e12, "backward": options.backward_tflops * 1e12}
        self.memory = options.memory * 1e9
        self.keys = 2 * keys / (link * 1e9)
        self.gradients = 4 * keys / (link * 1e9)
        self.add = 12 * keys / self.memory  # two of three fp32 operands are read, one is written

    def block(self, what):
        return self.operations * (1 if what == "forward" else 2.5) / self.rate[what]

    def results(self, what, step):
        """Written by the first step, read and written by the others; forward's last one also writes bfloat16, one rank only that."""
        rounded = 2 if what == "forward" and step + 1 == self.ranks else 0
        wide = 8 if step > 0 else 0 if rounded else 4
        return self.elements * (wide + rounded) / self.memory

    def sent(self, what):
        """By a step in the middle."""
        if self.ranks == 1:
            return 0.0
        return self.keys + (self.gradients if what == "backward" else 0.0)

    def total(self, what):
        streams = Streams()
        sent = 0.0
        for step in range(self.ranks):
            moved = streams.send(self.keys) if step + 1 < self.ranks else 0.0
            streams.compute += self.block(what) + self.results(what, step)
            if what == "backward" and self.ranks > 1:
                if step > 0:
                    streams.wait(sent)
                    streams.compute += self.add
                sent = streams.send(self.gradients)
            streams.wait(moved)
        streams.wait(sent)
        return streams.compute


def measured_rows(paths):
    """By (length, ranks, heads, kv heads, head size): its row."""
    rows = {}
    for path in paths:
        for row in json.loads(path.read_text())["rows"]:
            if row["causal"] and row["sequences"] == 1:
                key = (row["length"], row.get("ranks", 1), row["heads"], row["kv_heads"], row["head_dim"])
                rows[key] = row
    return rows


def main():
    options = arguments()
    measured = measured_rows(options.measured)
    print(f"{options.heads} of {options.kv_heads} heads of {options.head_dim}, bfloat16, causal; milliseconds")
    print(f"{'':9}{'length':>8}{'P':>3}{'GB/s':>6}{'block':>9}{'results':>9}{'sent':>9}  {'bound':8}{'whole':>9}{'ideal':>9}{'':6}{'measured':>10}")
    for what in ("forward", "backward"):
        for link in options.link:
            for length in options.lengths:
                for ranks in options.ranks:
                    ring = Ring(options, length, ranks, link)
                    block, results, sent = ring.block(what), ring.results(what, min(1, ring.ranks - 1)), ring.sent(what)
                    ideal = ring.ranks * block
                    row = measured.get((length, ranks, options.heads, options.kv_heads, options.head_dim), {})
                    there = f"{row[what + '_ms']:10.3f}" if row else f"{'-':>10}"
                    bound = "link" if sent > block + results else "compute"
                    whole = ring.total(what)
                    print(f"{what:9}{length:8.0f}{ranks:3.0f}{link:6.0f}{block * 1e3:9.3f}{results * 1e3:9.3f}{sent * 1e3:9.3f}"
                          f"  {bound:8}{whole * 1e3:9.3f}{ideal * 1e3:9.3f}{100 * ideal / whole:5.0f}%{there}")


if __name__ == "__main__":
    main()
