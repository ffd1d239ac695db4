#!/usr/bin/env -S python3 -B
"""Holds the machine code of attention's kernels to what their tiles and common/ops/cuda/attention/README.md say.

    scripts/machine_code/check.py [--table] --ptxas PTXAS FILE…        objects of common/ops/cuda/attention

Of every kernel, for sm_80 and sm_90a: nothing spilled, no local memory; none of the compiler's messages about products that
it had to serialise or registers that it did not hand over; tensor-core instructions exactly as the tile's arithmetic gives
them; the main loop at most 1.05 times as long as the README says. --table: prints the README's rows as they are now.
Exit code 1: something is not so; 77: no cuobjdump and nvdisasm here.
"""

import concurrent.futures
import itertools
import math
import pathlib
import re
import subprocess
import sys
import tempfile

import ladder
import sass

ARCHITECTURES = ("sm_80", "sm_90a")
# setmaxnreg ignored; products of warpgroups serialised, for six reasons.
BAD_MESSAGES = ("C7508", "C7510", "C7511", "C7512", "C7513", "C7514", "C7515", "C7602")
MOST_LONGER = 1.05
ALLOCATED = 8  # registers, at a time


def compiler_says(tools, ptxas, file):
    """What ptxas says against a file's kernels for sm_90a, compiled once more from the PTX beside them."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "kernels.ptx"
        source.write_text(sass.ptx(tools, file, "sm_90a"))
        report = subprocess.run([ptxas, "-v", "--generate-line-info", "-arch", "sm_90a", "-o", f"{folder}/cubin", source],
                                capture_output=True, text=True)
    text = report.stdout + report.stderr
    if report.returncode != 0:
        return [text.strip()]
    complaints, name = [], ""
    for line in text.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            name = found[1]
        elif found := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if found[1] != "0" or found[2] != "0":
                complaints.append(f"{sass.demangle([name])[0]}: {line.strip()}")
        elif any(f"({message})" in line for message in BAD_MESSAGES):
            complaints.append(line.strip())
    return complaints


def differs(what, found, wanted):
    return [] if found == wanted else [f"{found} {what}; the tile's arithmetic gives {wanted}"]


def product_faults(kernel, row, turn):
    """Tensor-core instructions against the tile's arithmetic."""
    wanted = ladder.arithmetic(row)
    faults = differs("products and loads a turn in the README", (row.products, row.loads), (wanted.products, wanted.loads))
    if ladder.by_warpgroups(row.kernel):
        faults += differs("HGMMA in the main loop", turn.count("HGMMA"), wanted.products)
        faults += differs("multiplications of these", sum(math.prod(i.product_shape()) for i in turn.all() if i.is_product()),
                          ladder.multiplications(row))
        faults += differs("HGMMA", kernel.count("HGMMA"), wanted.products_in_all)
        faults += differs("UTMALDG", kernel.count("UTMALDG"), wanted.loads_in_all)
        faults += differs("USETMAXREG", kernel.count("USETMAXREG"), 2)  # of those who fetch, of those who compute
        faults += differs("HMMA and LDSM", kernel.count("HMMA", "LDSM"), 0)
    else:
        faults += differs("HMMA in the main loop", turn.count("HMMA"), wanted.products)
        faults += differs("LDSM in the main loop", turn.count("LDSM"), wanted.loads)
        faults += differs("HMMA", kernel.count("HMMA"), wanted.products_in_all)
        faults += differs("LDSM", kernel.count("LDSM"), wanted.loads_in_all)
        faults += differs("HGMMA", kernel.count("HGMMA"), 0)
    return faults


def length_faults(row, architecture, length, registers):
    said, wide = row.loops[architecture], row.registers[architecture]
    if length > MOST_LONGER * said:
        yield f"{length} instructions in the main loop; the README says {said}"
    elif said > MOST_LONGER * length:
        yield f"{length} instructions in the main loop, fewer than the README says ({said}): its table is to follow"
    if abs(registers - wide) > ALLOCATED:
        yield f"{registers} registers; the README says {wide}"


def kernel_faults(kernel, row, architecture, registers, measures):
    """`measures` takes the kernel's registers and its main loop's length."""
    faults = [f"{n} {base}: spilled, or an array in local memory" for base in ("LDL", "STL") if (n := kernel.count(base))]
    by_hopper = row is not None and ladder.by_warpgroups(row.kernel)
    if row is None or (by_hopper and architecture != "sm_90a"):
        # No row, no tensor cores; nor have a Hopper's kernels a body elsewhere.
        return faults + differs("HMMA and HGMMA, without a row in the README", kernel.count(*sass.PRODUCTS), 0)
    turn = sass.main_loop(kernel, ladder.arithmetic(row).products)
    if by_hopper:
        registers = kernel.registers()  # of those who compute; what the compiler says is what a block begins with
    measures[row.kernel, row.d, architecture] = registers, len(turn.all())
    faults += product_faults(kernel, row, turn)
    return faults + list(length_faults(row, architecture, len(turn.all()), registers))


def print_table(measures):
    """The README's rows, as the objects have it now."""
    for row in ladder.kernel_rows().values():
        found = [measures.get((row.kernel, row.d, architecture), ("–", "–")) for architecture in ARCHITECTURES]
        registers, loops = (" / ".join(str(of_one[i]) for of_one in found) for i in (0, 1))
        print(f"| `{row.kernel}` | {row.d} | {row.own} × {row.walked} | {row.groups} × {row.rows} | {row.held} | "
              f"{row.products}, {row.loads} | {registers} | {loops} |")


def faults_of(tools, ptxas, files, measures):
    rows, seen = ladder.kernel_rows(), set()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        complaints = pool.map(lambda file: compiler_says(tools, ptxas, file), files)
        for file, architecture in itertools.product(files, ARCHITECTURES):
            registers = sass.registers(tools, file, architecture)
            if not registers:
                yield f"{file}: no kernels for {architecture}"
                continue
            for kernel in sass.kernels(tools, file, architecture):
                key = ladder.row_key(kernel.name)
                seen.add(key)
                for fault in kernel_faults(kernel, rows.get(key), architecture, registers[kernel.mangled], measures):
                    yield f"{architecture} {kernel.name}: {fault}"
        yield from itertools.chain.from_iterable(complaints)
    for kernel, d in sorted(rows.keys() - seen):
        yield f"{kernel} for heads of {d}: in the README, in no object"


def main(arguments):
    show = "--table" in arguments
    arguments = [a for a in arguments if a != "--table"]
    if len(arguments) < 3 or arguments[0] != "--ptxas" or any(a.startswith("-") for a in arguments[1:]):
        print(__doc__, file=sys.stderr)
        return 2
    measures = {}
    faults = list(faults_of(sass.tools(), arguments[1], arguments[2:], measures))
    if show:
        print_table(measures)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(measures)} kernels with tensor cores, for {' and '.join(ARCHITECTURES)}: {len(faults) or 'no'} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
