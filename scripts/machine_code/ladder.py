"""The ladder of attention's kernels: the tables of common/ops/cuda/attention/README.md, and the arithmetic of a tile.

What a kernel must issue follows from its tile alone. A product of mma.sync is 16 × 8 × 16, one of wgmma 64 × N × 16;
ldmatrix brings 16 rows × 16 columns: a's sixteen rows, or two of b's eight.
"""

import collections
import itertools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = ROOT / "common/ops/cuda/attention/README.md"

# Of a turn: `products` and `loads` a warp (wgmma: a warpgroup; boxes of its producer). `products_in_all` and `loads_in_all`
# of the whole kernel: what comes before the loop and behind it too.
Arithmetic = collections.namedtuple("Arithmetic", "products loads products_in_all loads_in_all")
Row = collections.namedtuple("Row", "kernel d own walked groups rows held products loads registers loops")


def forward_mma(r):
    slices, steps = r.rows // 16, r.d // 16
    products = slices * (r.walked // 8) * steps + slices * (r.d // 8) * (r.walked // 16)
    loads = steps * (slices + r.walked // 16) + (r.walked // 16) * steps
    return Arithmetic(products, loads, products, loads)


def gradients_mma(r, scores, sums):
    """`scores`: products of a warp's own rows with those that pass by; `sums`: of weights with the latter."""
    slices, steps = r.rows // 16, r.d // 16
    own = steps * slices  # of each of the `scores` kinds of own rows
    held = {"yes": scores, "one": 1, "no": 0}[r.held]
    products = scores * slices * (r.walked // 8) * steps + sums * slices * (r.d // 8) * (r.walked // 16)
    loads = (scores + sums) * steps * (r.walked // 16) + (scores - held) * own
    # What is not held is loaded in every turn, the rest once before them.
    return Arithmetic(products, loads, products, loads + held * own)


def keys_mma(r):
    return gradients_mma(r, 2, 2)


def dv_mma(r):
    return gradients_mma(r, 1, 1)


def dk_mma(r):
    return gradients_mma(r, 2, 1)


def queries_mma(r):
    return gradients_mma(r, 2, 1)


def part_mma(r):
    steps = r.d // 16
    columns = -(-steps // r.groups)  # sixteen dimensions each, of a warp
    products = steps * (r.walked // 8) + (r.walked // 16) * 2 * columns
    loads = steps * (r.walked // 16) + (r.walked // 16) * columns
    return Arithmetic(products, loads, products, loads)


def boxes(d):
    """Of a tile: sub-tiles of 64 columns, of 32 where those do not fill d."""
    return d // 64 if d % 64 == 0 else d // 32


def forward_wgmma(r):
    products = r.d // 16 + r.walked // 16
    # The first tile's scores stand before the loop, the last one's values behind it.
    return Arithmetic(products, 2 * boxes(r.d), 2 * products, 3 * boxes(r.d))


def key_wgmma(r):
    products = 2 * (r.d // 16) + 2 * (r.walked // 16)
    return Arithmetic(products, 2 * boxes(r.d), products, 4 * boxes(r.d))


def query_wgmma(r):
    products = 2 * (r.d // 16) + r.walked // 16
    # Two warpgroups start a tile's products before the last one's of the tile before, as the forward does; three in turn.
    return Arithmetic(products, 2 * boxes(r.d), 2 * products if r.groups == 2 else products, 4 * boxes(r.d))


ARITHMETIC = {
    "forward_mma_kernel": forward_mma,
    "forward_mma_kernel, paged": forward_mma,
    "forward_mma_kernel, paged, 128 keys": forward_mma,
    "keys_mma_kernel": keys_mma,
    "keys_mma_kernel, dv": dv_mma,
    "keys_mma_kernel, dk": dk_mma,
    "queries_mma_kernel": queries_mma,
    "part_mma_kernel": part_mma,
    "part_mma_kernel, 128 keys": part_mma,
    "forward_wgmma_kernel": forward_wgmma,
    "key_wgmma_kernel": key_wgmma,
    "query_wgmma_kernel": query_wgmma,
}


# Products of the walked rows with a warpgroup's own ones, or their weights: each own rows × walked rows × d.
MATRIX_PRODUCTS = {"forward_wgmma_kernel": 2, "key_wgmma_kernel": 4, "query_wgmma_kernel": 3}


def multiplications(row):
    """Of a warpgroup and turn."""
    return MATRIX_PRODUCTS[row.kernel] * row.rows * row.walked * row.d


def by_warpgroups(kernel):
    return kernel.endswith("wgmma_kernel")


def row_key(name):
    """(kernel, head dim) of an instance's demangled name: which row of the table is about it."""
    kernel, _, arguments = name.partition("<")
    sizes = [int(size) for size in re.findall(r"\b\d+\b", arguments)]
    # The second size of these is the cadence; 128 is a Hopper's.
    at_128 = kernel in ("forward_mma_kernel", "part_mma_kernel") and sizes[1:2] == [128]
    makes = ("", ", dv", ", dk")[sizes[1]] if kernel == "keys_mma_kernel" else ""  # KeyGradients
    paged = ", paged" if "PagedKeys" in arguments else ""
    return kernel + makes + paged + (", 128 keys" if at_128 else ""), sizes[0] if sizes else 0


def table(*first_cells):
    """The rows of the README's table whose head begins so, by the head's cells."""
    begins = "| " + " | ".join(first_cells) + " |"
    lines = README.read_text().splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith(begins)), None)
    if begin is None:
        raise SystemExit(f"{README}: no table begins with '{begins}'")
    cells_of = lambda line: [cell.strip().strip("`") for cell in line.strip("|").split("|")]
    head, rows = cells_of(lines[begin]), itertools.takewhile(lambda line: line.startswith("|"), lines[begin + 2:])
    return [dict(zip(head, cells_of(row))) for row in rows]


def numbers(cell):
    """The numbers of `255 / 254` or `4 × 32`; None for a dash."""
    return [None if part in ("–", "-") else float(part) if "." in part else int(part)
            for part in re.findall(r"–|\d+(?:\.\d+)?", cell)]


def kernel_rows():
    """(kernel, head dim) → Row, as the README says."""
    found = {}
    for cells in table("kernel", "d"):
        own, walked = numbers(cells["tile"])
        groups, rows = numbers(cells["warps × rows"])
        products, loads = numbers(cells["products, loads"])
        row = Row(cells["kernel"], int(cells["d"]), own, walked, groups, rows, cells["held"], products, loads,
                  *(dict(zip(("sm_80", "sm_90a"), numbers(cells[c]))) for c in ("registers 80 / 90a", "loop 80 / 90a")))
        found[row.kernel, row.d] = row
    return found


def arithmetic(row):
    return ARITHMETIC[row.kernel](row)
