#!/usr/bin/env python3
"""The peer of `train_bench`: the same training steps by PyTorch's FSDP2 and transformers, on this machine's CPU.

    python3 tests/bench/peers/torch_fsdp2.py --dtype fp32 [--ranks 2] [--rows 1] [--length 512] [--steps 2] [--json]
    python3 tests/bench/peers/torch_fsdp2.py --make DIR --curve 50       # weights and data for a training curve
    python3 tests/bench/peers/torch_fsdp2.py --init DIR --data DIR/data.json --dtype fp32 --json

Ranks are processes of a gloo group; every layer and the root are sharded with fully_shard; gradients are reduced in
fp32; the model is transformers' LlamaForCausalLM with SDPA attention, the optimizer torch.optim.AdamW (fused when the
build has it for CPUs).

In the peer's favour: parameters stay gathered between forward and backward (PyTorch 2.6's FSDP2 cannot do otherwise on
a CPU, and it saves a gather a layer), the first step is not timed, each rank has its share of the cores as threads.
PyTorch 2.6 lacks three methods of torch.cpu.Stream that FSDP2 calls; they are added below and do nothing, since CPU
work is synchronous.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

torch.cpu.Stream.record_event = lambda self, event=None: event or torch.cpu.Event()
torch.cpu.Stream.wait_event = lambda self, event: None
torch.cpu.Stream.synchronize = lambda self: None

BETAS, EPS, CLIP = (0.9, 0.95), 1e-8, 1.0
DEADLINE = timedelta(seconds=600)


def smollm2_config():
    return LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, head_dim=64, max_position_embeddings=2048, rms_norm_eps=1e-5, rope_theta=10000.0,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip


def make(folder, steps, batch, length):
    """Fresh weights, and sequences in which most tokens follow from the one before: something to learn."""
    torch.manual_seed(0)
    LlamaForCausalLM(smollm2_config()).save_pretrained(folder)
    draw = random.Random(0)
    words = draw.sample(range(49152), 512)

    def sequence():
        at, result = draw.randrange(512), []
        for _ in range(length):
            result.append(words[at])
            at = (5 * at + 3) % 512 if draw.random() < 0.8 else draw.randrange(512)
        return result

    data = [[sequence() for _ in range(batch)] for _ in range(steps)]
    (pathlib.Path(folder) / "data.json").write_text(json.dumps(data))


def random_data(steps, batch, length):
    draw = random.Random(1)
    return [[[draw.randrange(49152) for _ in range(length)] for _ in range(batch)] for _ in range(steps)]


def sharded_model(options, mesh):
    if options.init:
        model = LlamaForCausalLM.from_pretrained(options.init, dtype=torch.float32)
    else:
        torch.manual_seed(0)
        model = LlamaForCausalLM(smollm2_config())
    model.train()
    policy = MixedPrecisionPolicy()
    if options.dtype == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    return model


def train(rank, options, store, results):
    torch.set_num_threads(max(1, os.cpu_count() // options.ranks))
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=options.ranks, timeout=DEADLINE)
    mesh = init_device_mesh("cpu", (options.ranks,), mesh_dim_names=("dp",))
    model = sharded_model(options, mesh)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=options.lr, betas=BETAS, eps=EPS, weight_decay=options.weight_decay, fused=True
    )
    batch = options.ranks * options.rows
    data = json.loads(pathlib.Path(options.data).read_text()) if options.data else None
    if data is None:
        data = random_data(options.steps + 1, batch, options.length)
    losses, seconds = [], []
    for step in data:
        rows = len(step) // options.ranks
        tokens = torch.tensor(step[rank * rows : (rank + 1) * rows])
        dist.barrier()
        start = time.perf_counter()
        logits = model(input_ids=tokens, use_cache=False).logits[:, :-1].float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        seconds.append(time.perf_counter() - start)
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / options.ranks)
    if rank == 0:
        timed = seconds[1:] or seconds
        per_step = len(data[0]) * len(data[0][0])
        results.put({
            "peer": "PyTorch FSDP2", "version": torch.__version__, "dtype": options.dtype, "ranks": options.ranks,
            "threads_per_rank": torch.get_num_threads(), "tokens_per_step": per_step,
            "median_s": statistics.median(timed), "tokens_per_s": per_step / statistics.median(timed),
            "losses": losses,
        })  # fmt: skip
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", help="folder to write fresh weights and data.json into, and nothing else")
    parser.add_argument("--curve", type=int, default=50, help="steps of the data that --make writes")
    parser.add_argument("--init", help="Hugging Face directory to start from; default: fresh weights")
    parser.add_argument("--data", help="token ids [step][sequence][token]; default: random ones")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rows", type=int, default=1, help="sequences a rank")
    parser.add_argument("--length", type=int, default=512, help="tokens a sequence")
    parser.add_argument("--steps", type=int, default=2, help="timed steps, after one that is not")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.make:
        make(options.make, options.curve, options.ranks * options.rows, options.length)
        return
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("spawn").SimpleQueue()
        mp.spawn(train, args=(options, f"{folder}/store", results), nprocs=options.ranks)
        result = results.get()
    if options.json:
        print(json.dumps(result))
        return
    print(f"{result['peer']} {result['version']}  {options.dtype}  {options.ranks} ranks of {result['threads_per_rank']} threads"
          f"  {result['tokens_per_step']} tokens a step: {result['median_s'] * 1e3:.0f} ms, {result['tokens_per_s']:.0f} tokens/s")


if __name__ == "__main__":
    main()
