#!/usr/bin/env python3
"""The peer of `train_bench`: the same training steps by PyTorch's FSDP2, or its tensor parallelism, and transformers, on
this machine's CPU.

    python3 tests/bench/peers/torch_fsdp2.py --dtype fp32 [--ranks 2] [--rows 1] [--length 512] [--steps 2] [--json]
    python3 tests/bench/peers/torch_fsdp2.py --make DIR --curve 50       # weights and data for a training curve
    python3 tests/bench/peers/torch_fsdp2.py --init DIR --data DIR/data.json --dtype fp32 [--tp 2] --json

Ranks are processes of a gloo group; every layer and the root are sharded with fully_shard; gradients are reduced in
fp32; the model is transformers' with SDPA attention, the optimizer torch.optim.AdamW (fused when the build has it for
CPUs). With --tp the ranks are dp x tp: torchtitan's plan (tests/golden/torchtitan_plan.py) under loss_parallel, and
fully_shard over it where dp is above one or bf16 asks for its mixed precision. A step has --rows sequences for each rank,
whatever axis it is on; with --microbatches FSDP2 takes them in equal parts, and reduces the gradients once.

In the peer's favour: parameters stay gathered between forward and backward (PyTorch 2.6's FSDP2 cannot do otherwise on
a CPU, and it saves a gather a layer) and from one micro-batch to the next, the first step is not timed, each rank has its
share of the cores as threads.
PyTorch 2.6 lacks three methods of torch.cpu.Stream that FSDP2 calls; they are added below and do nothing, since CPU
work is synchronous.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

sys.path.append(str(pathlib.Path(__file__).parents[2] / "golden"))
from torchtitan_plan import parallelize  # noqa: E402

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


def qwen2_5_config():
    return Qwen2Config(
        vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, max_position_embeddings=2048, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip


CONFIGS = {"smollm2": smollm2_config, "qwen2.5": qwen2_5_config}


def config_of(options):
    config = CONFIGS[options.model]()
    if options.layers:
        config.num_hidden_layers = options.layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[: options.layers]
    return config


def make(options):
    """Fresh weights, and sequences in which most tokens follow from the one before: something to learn."""
    folder, steps, batch, length = options.make, options.curve, options.ranks * options.rows, options.length
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config_of(options), dtype=torch.float32)
    model.save_pretrained(folder)
    draw = random.Random(0)
    words = draw.sample(range(model.config.vocab_size), 512)

    def sequence():
        at, result = draw.randrange(512), []
        for _ in range(length):
            result.append(words[at])
            at = (5 * at + 3) % 512 if draw.random() < 0.8 else draw.randrange(512)
        return result

    data = [[sequence() for _ in range(batch)] for _ in range(steps)]
    (pathlib.Path(folder) / "data.json").write_text(json.dumps(data))


def random_data(steps, batch, length, vocab):
    draw = random.Random(1)
    return [[[draw.randrange(vocab) for _ in range(length)] for _ in range(batch)] for _ in range(steps)]


def sharded_model(options, mesh):
    if options.init:
        model = AutoModelForCausalLM.from_pretrained(options.init, dtype=torch.float32)
    else:
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config_of(options), dtype=torch.float32)
    model.train()
    if options.tp > 1:
        parallelize(model, mesh["tp"], bool(options.sequence_parallel))
    policy = MixedPrecisionPolicy()
    if options.dtype == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    elif mesh["dp"].size() == 1:
        return model
    for layer in [*model.model.layers, model]:
        fully_shard(layer, mesh=mesh["dp"], mp_policy=policy, reshard_after_forward=False)
    return model


def by_mesh(model):
    """The parameters in groups of one kind, mesh by mesh: fused and foreach operations take no mixture."""
    groups = {}
    for parameter in model.parameters():
        groups.setdefault(parameter.device_mesh if isinstance(parameter, DTensor) else None, []).append(parameter)
    return list(groups.values())


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def clip(groups):
    norms = [whole(torch.nn.utils.get_total_norm([p.grad for p in group])) for group in groups]
    total = torch.linalg.vector_norm(torch.stack(norms))
    for group in groups:
        torch.nn.utils.clip_grads_with_norm_(group, CLIP, total)


def loss_of(model, tokens):
    positions = torch.arange(tokens.shape[1])[None]
    logits = model(input_ids=tokens, position_ids=positions, use_cache=False).logits.float()
    targets = torch.full_like(tokens, -100)  # the last ones: a slice of the logits would be a copy
    targets[:, :-1] = tokens[:, 1:]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def backward_in_parts(model, tokens, parts):
    """The mean loss of equal parts, one after the other; only the last one's backward reduces the gradients."""
    total = 0
    for part in range(parts):
        if parts > 1:
            model.set_requires_gradient_sync(part + 1 == parts)
            model.set_reshard_after_backward(part + 1 == parts)
        loss = loss_of(model, tokens.chunk(parts)[part]) / parts
        loss.backward()
        total = total + whole(loss.detach())
    return total


def run_steps(data, backward, update):
    """Steps of backward(sequences), which gives this rank's term of the loss, and update(). The first one is not timed.
    Processor times: of a step the ranks' mean, of backward() each rank's."""
    losses, seconds, cpu_seconds, busy_seconds = [], [], [], []
    for step in data:
        dist.barrier()
        start, cpu_start = time.perf_counter(), time.process_time()
        loss = backward(step)
        busy_seconds.append(time.process_time() - cpu_start)
        update()
        dist.barrier()
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
        dist.all_reduce(loss)
        losses.append(loss.item())
    timed = [statistics.median(each[1:] or each) for each in (seconds, cpu_seconds, busy_seconds)]
    of_ranks = [None] * dist.get_world_size()
    dist.all_gather_object(of_ranks, timed)
    per_step = len(data[0]) * len(data[0][0])
    return {
        "version": torch.__version__, "ranks": len(of_ranks), "threads_per_rank": torch.get_num_threads(),
        "tokens_per_step": per_step, "median_s": timed[0], "cpu_s": statistics.mean(one[1] for one in of_ranks),
        "busy_s": [one[2] for one in of_ranks], "tokens_per_s": per_step / timed[0], "losses": losses,
    }  # fmt: skip


def start_rank(rank, options, store):
    torch.set_num_threads(max(1, os.cpu_count() // options.ranks))
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=options.ranks, timeout=DEADLINE)


def run_ranks(train, options):
    """What rank 0 of train(rank, options, store, results) puts into results."""
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("spawn").SimpleQueue()
        mp.spawn(train, args=(options, f"{folder}/store", results), nprocs=options.ranks)
        return results.get()


def train(rank, options, store, results):
    start_rank(rank, options, store)
    dp = options.ranks // options.tp
    mesh = init_device_mesh("cpu", (dp, options.tp), mesh_dim_names=("dp", "tp"))
    model = sharded_model(options, mesh)
    groups = by_mesh(model)
    optimizer = torch.optim.AdamW(
        [{"params": group} for group in groups], lr=options.lr, betas=BETAS, eps=EPS, weight_decay=options.weight_decay,
        fused=True,
    )  # fmt: skip
    data = json.loads(pathlib.Path(options.data).read_text()) if options.data else None
    if data is None:
        data = random_data(options.steps + 1, options.ranks * options.rows, options.length, model.config.vocab_size)

    def backward(step):
        rows = len(step) // dp
        first = mesh["dp"].get_local_rank() * rows
        with loss_parallel() if options.tp > 1 else contextlib.nullcontext():
            return backward_in_parts(model, torch.tensor(step[first : first + rows]), options.microbatches) / options.ranks

    def update():
        clip(groups)
        optimizer.step()
        optimizer.zero_grad()

    found = run_steps(data, backward, update)
    if rank == 0:
        peer = "PyTorch TP" if options.tp > 1 else "PyTorch FSDP2"
        results.put({"peer": peer, "dtype": options.dtype, "tp": options.tp} | found)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", help="folder to write fresh weights and data.json into, and nothing else")
    parser.add_argument("--curve", type=int, default=50, help="steps of the data that --make writes")
    parser.add_argument("--init", help="Hugging Face directory to start from; default: fresh weights")
    parser.add_argument("--data", help="token ids [step][sequence][token]; default: random ones")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tp", type=int, default=1, help="ranks of the tp axis; divides --ranks")
    parser.add_argument("--sequence-parallel", type=int, choices=[0, 1], default=1, help="with --tp")
    parser.add_argument("--model", choices=sorted(CONFIGS), default="smollm2", help="of fresh weights")
    parser.add_argument("--layers", type=int, default=0, help="of fresh weights; default: the model's")
    parser.add_argument("--microbatches", type=int, default=1, help="equal parts of a rank's sequences; not with --tp")
    parser.add_argument("--rows", type=int, default=1, help="sequences a rank")
    parser.add_argument("--length", type=int, default=512, help="tokens a sequence")
    parser.add_argument("--steps", type=int, default=2, help="timed steps, after one that is not")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.make:
        make(options)
        return
    if options.microbatches > 1 and options.tp > 1:
        parser.error("--microbatches is FSDP2's, not with --tp")
    result = run_ranks(train, options)
    if options.json:
        print(json.dumps(result))
        return
    print(f"{result['peer']} {result['version']}  {options.dtype}  {options.ranks} ranks of {result['threads_per_rank']} threads"
          f"  {result['tokens_per_step']} tokens a step: {result['median_s'] * 1e3:.0f} ms, {result['tokens_per_s']:.0f} tokens/s")


if __name__ == "__main__":
    main()
