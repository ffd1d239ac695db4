#!/usr/bin/env python3
"""Golden values of PyTorch's tensor parallelism: transformers' Llama (biases everywhere), Qwen2 (tied) and Qwen3 under
`parallelize_module` (torchtitan_plan.py: vocabulary, heads and features cut; loss_parallel), with and without sequence
parallelism, and with `fully_shard` over it. Writes data/tensor_parallel/ for each model: config.json;
shapes.json, of every mesh and parameter the local shape on each rank and a sum of its elements that depends on their
order (position_sum); model.safetensors, log-probs, loss and the gradient of every parameter. Weights and tokens are
formulas of a name and an index (draw), which golden_test.cpp in tests/unit/trainer/tensor_parallel repeats.

Ranks are gloo processes. All is float64, norms too (transformers' own are float32), so that every mesh must give the values of
one rank to 1e-11: those are what is written, once, rounded to float32, and decide where PyTorch or transformers err. The
largest differences from one rank are printed: 1.3e-15 to 2.5e-15.

Needs torch, transformers, safetensors; made with torch 2.13.0 and transformers 5.24.0 on the CPU.
Run: python tests/golden/make_tensor_parallel.py
"""
import json
import os
import pathlib
import tempfile

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.functional import cross_entropy, rms_norm
from transformers import (LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from torchtitan_plan import parallelize

HERE = pathlib.Path(__file__).parent / "data/tensor_parallel"
LENGTHS = (12, 8)  # tp divides them: PyTorch's sequence parallelism asks for it
TARGETS = sum(LENGTHS) - len(LENGTHS)
# 4 ranks divide neither the vocabulary nor the features of the MLP.
SIZES = dict(vocab_size=29, hidden_size=16, intermediate_size=26, num_hidden_layers=2, num_attention_heads=8,
             num_key_value_heads=4, head_dim=6, max_position_embeddings=64, rms_norm_eps=1e-6)
MODELS = {
    "llama_biases": (LlamaConfig, LlamaForCausalLM, dict(tie_word_embeddings=False, attention_bias=True, mlp_bias=True)),
    "qwen2_tied": (Qwen2Config, Qwen2ForCausalLM, dict(tie_word_embeddings=True)),
    "qwen3_untied": (Qwen3Config, Qwen3ForCausalLM, dict(tie_word_embeddings=False, attention_bias=False)),
}
MESHES = [(dp, tp, sequence) for dp, tp in ((1, 2), (1, 4), (2, 2)) for sequence in (False, True)]
ROPE_THETA = 1000.0
TOLERANCE = 1e-11


def exact_norm(self, hidden):
    return rms_norm(hidden, self.weight.shape, self.weight, self.variance_epsilon)


for norm in (LlamaRMSNorm, Qwen2RMSNorm, Qwen3RMSNorm):
    norm.forward = exact_norm


def draw(name: str, count: int) -> numpy.ndarray:
    """20 bits for each index: splitmix64's finalizer over the FNV-1a hash of the name."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    x = numpy.uint64(seed) + numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return (x ^ (x >> numpy.uint64(31))) >> numpy.uint64(44)


def weight(name: str, shape) -> torch.Tensor:
    """In [-0.25, 0.25), around 1 for norms: exact in float32."""
    values = (draw(name, torch.Size(shape).numel()).astype(numpy.float64) / 2**19 - 1) / 4
    return torch.from_numpy(values + (1 if name.endswith("norm.weight") else 0)).reshape(shape)


def tokens(sample: int) -> torch.Tensor:
    return torch.from_numpy(draw(f"tokens.{sample}", LENGTHS[sample]).astype(numpy.int64) % SIZES["vocab_size"])


def position_sum(local: torch.Tensor) -> float:
    flat = local.detach().flatten()
    return (flat * torch.arange(1, flat.numel() + 1)).sum().item()


def make_model(name: str):
    config_class, model_class, more = MODELS[name]
    config = config_class(**SIZES, **more, rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
                          eos_token_id=1, bos_token_id=None, pad_token_id=None, attn_implementation="sdpa")
    model = model_class(config).double().train()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(weight(key, parameter.shape))
    return model


def logprobs_of(model, ids: torch.Tensor) -> torch.Tensor:
    count = len(ids)
    mask = torch.full((count, count), float("-inf"), dtype=torch.float64).triu(1)[None, None]
    logits = model(input_ids=ids[None], position_ids=torch.arange(count)[None], attention_mask=mask,
                   use_cache=False).logits[0]
    # The last row predicts nothing.
    targets = torch.cat([ids[1:], torch.tensor([-100])])
    return -cross_entropy(logits, targets, reduction="none")


def step(model, samples, scale: float):
    """Log-probs of the samples; gradients of minus their sum times `scale`."""
    with loss_parallel():
        found = [logprobs_of(model, tokens(sample)) for sample in samples]
        (-sum(one.sum() for one in found) * scale).backward()
    whole = [one.full_tensor() if isinstance(one, DTensor) else one for one in found]
    return [one.detach()[:-1] for one in whole]


def full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def run_case(rank: int, name: str, dp: int, tp: int, sequence: bool) -> dict:
    mesh = init_device_mesh("cpu", (dp, tp), mesh_dim_names=("dp", "tp"))
    model = make_model(name)
    parallelize(model, mesh["tp"], sequence)
    if dp > 1:
        for layer in [*model.model.layers, model]:
            fully_shard(layer, mesh=mesh["dp"])
    samples = range(len(LENGTHS))[rank // tp :: dp]
    logprobs = step(model, samples, dp / TARGETS)  # fully_shard takes the mean over dp
    local = {}
    for key, parameter in model.named_parameters():
        here = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        local[key] = [list(here.shape), position_sum(here)]
    return {"local": local, "logprobs": dict(zip(samples, logprobs)),
            "gradients": {key: full(one.grad) for key, one in model.named_parameters()}}


def run_rank(rank: int, world: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    torch.save({(name, *sizes): run_case(rank, name, *sizes) for name in MODELS for sizes in MESHES
                if sizes[0] * sizes[1] == world}, f"{folder}/{rank}")
    dist.destroy_process_group()


def on_meshes(world: int) -> dict:
    """By model and mesh, what each rank found."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_rank, args=(world, folder), nprocs=world)
        ranks = [torch.load(f"{folder}/{rank}") for rank in range(world)]
    return {case: [one[case] for one in ranks] for case in ranks[0]}


def expect_as_on_one(ranks: list, logprobs: list, gradients: dict) -> float:
    scale = torch.cat([one.flatten() for one in gradients.values()]).norm() * 1e-3
    worst = 0.0
    for found in ranks:
        for sample, one in found["logprobs"].items():
            worst = max(worst, (one - logprobs[sample]).abs().max().item())
        assert found["gradients"].keys() == gradients.keys()
        for key, one in gradients.items():
            worst = max(worst, ((found["gradients"][key] - one).norm() / max(one.norm(), scale)).item())
    return worst


def make(name: str, found: dict) -> None:
    model = make_model(name)
    logprobs = step(model, range(len(LENGTHS)), 1 / TARGETS)
    gradients = {key: one.grad for key, one in model.named_parameters()}
    meshes = []
    for dp, tp, sequence in MESHES:
        ranks = found[name, dp, tp, sequence]
        worst = expect_as_on_one(ranks, logprobs, gradients)
        print(f"{name} dp {dp} tp {tp} sequence_parallel {sequence}: within {worst:.1e} of one rank")
        assert worst <= TOLERANCE
        local = {key: [found["local"][key] for found in ranks] for key in gradients}
        meshes.append({"dp": dp, "tp": tp, "sequence_parallel": sequence, "local": local})
    folder = HERE / name
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"grad." + key: one for key, one in gradients.items()}
    tensors |= {f"logprobs.{i}": one for i, one in enumerate(logprobs)}
    tensors["loss"] = -torch.cat(logprobs).mean()[None]
    save_file({key: one.float().contiguous() for key, one in tensors.items()}, folder / "model.safetensors")
    (folder / "shapes.json").write_text(json.dumps(meshes, separators=(",", ":")) + "\n")
    text = {"architectures": [type(model).__name__], "model_type": model.config.model_type, **SIZES, **MODELS[name][2],
            "rope_theta": ROPE_THETA, "eos_token_id": 1, "torch_dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(text, indent=2) + "\n")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    on_all = on_meshes(2) | on_meshes(4)
    for model_name in MODELS:
        make(model_name, on_all)
