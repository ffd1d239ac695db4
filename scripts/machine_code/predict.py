#!/usr/bin/env -S python3 -B
"""Predicts attention's speed on an H100 from its machine code: how much a turn asks of each unit, and the rates of these.

    scripts/machine_code/predict.py [--json] [--check] FILE…       objects or cubins of common/ops/cuda/attention

A tile takes as long as the unit that it asks most of; the share of that which a kernel reaches is that of published
kernels of its kind. The rest is latency that nothing hides, and grows with the instructions that are no products. Share and
instructions from which it grows, "taken" and "others" in common/ops/cuda/attention/README.md, are frozen. Exit code 1 of
--check: less than we ask for, or another prediction than the README says; 77: no cuobjdump and nvdisasm here.
"""

import json
import re
import sys

import ladder
import sass

# An H100's SM, a clock; 132 of them at 1.70 GHz, assumed under load.
CLOCKS_OF_ALL_SMS = 132 * 1.70e9
WGMMA_FLOPS, MMA_FLOPS = 4096, 0.629 * 4096
SHARED_BYTES, EX2, FP32, ALU, ISSUED = 128, 16, 128, 64, 4

KERNELS = {
    ("forward", "mma"): ("forward_mma_kernel",),
    ("forward", "wgmma"): ("forward_wgmma_kernel",),
    ("backward", "mma"): ("keys_mma_kernel", "queries_mma_kernel"),
    ("backward", "wgmma"): ("key_wgmma_kernel", "query_wgmma_kernel"),
}
WIDE = {("backward", "mma"): ("keys_mma_kernel, dv", "keys_mma_kernel, dk", "queries_mma_kernel")}  # heads above 128
FLOPS = {"forward": 4, "backward": 10}  # useful ones, times d, of a query and a key that it sees
# Of FlashAttention-3's forward and backward, hd 128, causal, 16k.
ASKED = {("forward", "mma"): 0.5, ("backward", "mma"): 0.4, ("forward", "wgmma"): 0.85, ("backward", "wgmma"): 0.75}
LANE_BYTES = {"LDS": 4, "STS": 4, "LDL": 4, "STL": 4, "LDSM": 16}  # where the name does not say another width
ON_FP32 = ("FFMA", "FMUL", "FADD")
ON_ALU = ("FMNMX", "FSEL", "FSETP", "F2FP", "SEL", "ISETP", "LOP3", "IADD3", "SHF", "PRMT", "LEA")


def shared_bytes(instruction):
    """Shared memory that a warp (HGMMA: a warpgroup) reads or writes; local memory is as wide."""
    if instruction.base == "HGMMA":
        rows, columns, depth = instruction.product_shape()
        return 2 * depth * (columns + (0 if instruction.reads_a_from_registers() else rows))
    if instruction.base not in LANE_BYTES:
        return 0
    width = re.search(r"\.(64|128)\b", instruction.name)
    return 32 * (int(width[1]) // 8 if width else LANE_BYTES[instruction.base])


def units(row, issued):
    """Clocks of an SM that a tile asks of each unit."""
    warps = row.groups * (4 if ladder.by_warpgroups(row.kernel) else 1)
    asked = dict.fromkeys(("tensor", "shared", "ex2", "fp32", "alu", "issue"), 0.0)
    for instruction, times in issued:
        # A warpgroup's product is one instruction in each of its four warps.
        of_block = times * (row.groups if instruction.base == "HGMMA" else warps)
        if instruction.is_product():
            rows, columns, depth = instruction.product_shape()
            rate = WGMMA_FLOPS if instruction.base == "HGMMA" else MMA_FLOPS
            asked["tensor"] += of_block * 2 * rows * columns * depth / rate
        asked["shared"] += of_block * shared_bytes(instruction) / SHARED_BYTES
        if instruction.name.startswith("MUFU.EX2"):
            asked["ex2"] += of_block * 32 / EX2
        elif instruction.base in ON_FP32:
            asked["fp32"] += of_block * 32 / FP32
        elif instruction.base in ON_ALU:
            asked["alu"] += of_block * 32 / ALU
        asked["issue"] += times * warps / ISSUED
    return asked


def clocks(row, turn, taken, others_frozen):
    """Of an SM, for a tile; and what it asks of the units."""
    issued = sass.issued(turn, ladder.arithmetic(row).products)
    asked = units(row, issued)
    others = sum(times for instruction, times in issued if not instruction.is_product())
    bound = max(asked.values())
    return bound + bound * (1 / taken - 1) * others / others_frozen, asked


def predict(turns):
    """[(pass, step, d) …] with TFLOP/s; `turns` by (kernel, head dim)."""
    rows, found = ladder.kernel_rows(), []
    for cells in ladder.table("pass", "by"):
        key, d = (cells["pass"], cells["by"]), int(cells["d"])
        of_pass = WIDE[key] if key in WIDE and d > 128 else KERNELS.get(key, ())
        if not of_pass or any((kernel, d) not in turns for kernel in of_pass):
            continue
        taken, seconds, kernels = float(cells["taken"]), 0.0, {}
        for kernel, others in zip(of_pass, ladder.numbers(cells["others"]), strict=True):
            row = rows[kernel, d]
            tile_clocks, asked = clocks(row, turns[kernel, d], taken, others)
            seconds += tile_clocks / (row.own * row.walked) / CLOCKS_OF_ALL_SMS
            kernels[kernel] = {unit: round(n) for unit, n in asked.items()} | {"clocks": round(tile_clocks)}
        tflops = FLOPS[cells["pass"]] * d / seconds / 1e12
        fa3 = (ladder.numbers(cells["FA3"]) or [None])[0]
        found.append({"pass": cells["pass"], "d": d, "by": cells["by"], "taken": taken, "predicted": round(tflops, 1),
                      "of_fa3": round(tflops / fa3, 3) if fa3 else None, "readme": ladder.numbers(cells["predicted"])[0], "readme_of_fa3": ladder.numbers(cells["of FA3"])[0],
                      "kernels": kernels})
    return found


def faults(found):
    for p in found:
        what = f"{p['pass']} by {p['by']}, hd {p['d']}"
        asked = ASKED.get((p["pass"], p["by"]), 0) if p["d"] == 128 else 0
        if p["of_fa3"] is not None and p["of_fa3"] < asked:
            yield f"{what}: predicted {p['predicted']} TFLOP/s, {p['of_fa3']} of FA3's; we ask for {asked}"
        if abs(p["predicted"] - p["readme"]) > 0.03 * p["readme"]:
            yield f"{what}: predicted {p['predicted']} TFLOP/s; the README says {p['readme']}"
        elif p["of_fa3"] is not None and abs(p["of_fa3"] - p["readme_of_fa3"]) > 0.03 * p["of_fa3"]:
            yield f"{what}: predicted {p['of_fa3']} of FA3's; the README says {p['readme_of_fa3']}"


def main(arguments):
    flags = {a for a in arguments if a.startswith("-")}
    files = [a for a in arguments if not a.startswith("-")]
    if not files or flags - {"--json", "--check"}:
        print(__doc__, file=sys.stderr)
        return 2
    tools = sass.tools()
    rows, turns = ladder.kernel_rows(), {}
    for file in files:
        for kernel in sass.kernels(tools, file, "sm_90a"):
            key = ladder.row_key(kernel.name)
            row = rows.get(key)
            if row and kernel.count(*sass.PRODUCTS):
                turns[key] = sass.main_loop(kernel, ladder.arithmetic(row).products)
    found = predict(turns)
    if "--json" in flags:
        print(json.dumps(found, indent=1))
    else:
        print(f"{'pass':9} {'by':6} {'d':>3} {'taken':>6} {'TFLOP/s':>8} {'of FA3':>7}   clocks of an SM for a tile")
        for p in found:
            print(f"{p['pass']:9} {p['by']:6} {p['d']:3} {p['taken']:6} {p['predicted']:8} {p['of_fa3'] or '–':>7}   " +
                  "; ".join(f"{k}: " + ", ".join(f"{u} {n}" for u, n in asked.items()) for k, asked in p["kernels"].items()))
    if "--check" not in flags:
        return 0
    wrong = list(faults(found))
    if not found:
        wrong.append("none of the README's kernels is in " + " ".join(files))
    for fault in wrong:
        print(fault, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
