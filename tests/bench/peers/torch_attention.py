#!/usr/bin/env python3
"""The peer of attention_gpu_bench: PyTorch's scaled_dot_product_attention, by flash and by cuDNN, at the shapes of its JSON.

    python3 tests/bench/peers/torch_attention.py --measured attention.json [--out FILE.json]

Forward alone and backward alone, bfloat16, the median of runs of several calls timed by events, as the bench does. A table of
both sides' TFLOP/s of the useful operations, ours over the better of PyTorch's, and in the last columns FlashAttention-3's
published figures for an H100 where there are (Dao-AILab/flash-attention pull request 1893: head size 128, causal), which
nothing here measured. Packed rows are left out: this function has no packed form.
Exit code 0: done, 2: bad usage, 77: skipped for want of PyTorch or a GPU.
"""

import argparse
import json
import pathlib
import statistics
import sys

PUBLISHED = {"forward": 660.0, "backward": 575.0}  # FlashAttention-3, H100, head size 128, causal, 8k to 16k


def seconds_of(torch, call):
    def run(calls):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / calls

    run(2)
    calls = max(3, min(200, int(0.02 / run(2))))
    return statistics.median(run(calls) for _ in range(7))


def measure(torch, backend, row):
    """Seconds of a forward and a backward, or why there are none."""
    heads, kv_heads, length, size = row["heads"], row["kv_heads"], row["length"], row["head_dim"]
    make = lambda count: torch.randn(1, count, length, size, device="cuda").bfloat16().requires_grad_(True)
    q, k, v = make(heads), make(kv_heads), make(kv_heads)
    attention = torch.nn.functional.scaled_dot_product_attention
    call = lambda: attention(q, k, v, is_causal=row["causal"], enable_gqa=heads != kv_heads)
    try:
        with torch.nn.attention.sdpa_kernel(backend):
            with torch.no_grad():
                forward = seconds_of(torch, call)
            out = call()
            dout = torch.randn_like(out)
            backward = seconds_of(torch, lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))
    except RuntimeError as error:
        return {"error": str(error).splitlines()[0]}
    return {"forward": forward, "backward": backward}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measured", required=True, type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("skipped: this Python has no PyTorch")
        sys.exit(77)
    if torch.cuda.device_count() == 0:
        print("skipped: PyTorch sees no GPU")
        sys.exit(77)
    ours = json.loads(arguments.measured.read_text())
    backends = {
        "flash": torch.nn.attention.SDPBackend.FLASH_ATTENTION,
        "cudnn": torch.nn.attention.SDPBackend.CUDNN_ATTENTION,
    }
    rows = []
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; TFLOP/s")
    print(f"{'':40} {'ours':>6} {'flash':>6} {'cuDNN':>6} {'of the better':>14} {'of FA3 (published)':>19}")
    for row in ours["rows"]:
        if row["sequences"] != 1:
            continue
        peers = {name: measure(torch, backend, row) for name, backend in backends.items()}
        result = {key: row[key] for key in ("length", "heads", "kv_heads", "head_dim", "causal")}
        for what, share in (("forward", 1.0), ("backward", 2.5)):
            flops = row["forward_tflops"] * row["forward_ms"] * share * 1e9
            rates = {name: flops / peer[what] / 1e12 for name, peer in peers.items() if what in peer}
            mine = row[f"{what}_tflops"]
            better = mine / max(rates.values()) if rates else None
            published = mine / PUBLISHED[what] if row["head_dim"] == 128 and row["causal"] and row["length"] >= 8192 else None
            result[what] = {"ours": mine, **rates, "of_the_better": better, "of_published": published}
            name = f"{what} {row['length']}, {row['heads']} of {row['kv_heads']} heads of {row['head_dim']}, " + (
                "causal" if row["causal"] else "full"
            )
            cell = lambda value, width, digits: f"{value:{width}.{digits}f}" if value is not None else " " * (width - 1) + "–"
            print(f"{name:40} {mine:6.0f} {cell(rates.get('flash'), 6, 0)} {cell(rates.get('cudnn'), 6, 0)} "
                  f"{cell(better, 14, 2)} {cell(published, 19, 2)}", flush=True)
        errors = {name: peer["error"] for name, peer in peers.items() if "error" in peer}
        if errors:
            result["errors"] = errors
        rows.append(result)
    if arguments.out:
        arguments.out.write_text(json.dumps({"gpu": ours["gpu"], "torch": torch.__version__, "rows": rows}, indent=1) + "\n")


main()
