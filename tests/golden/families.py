"""Small random models of every family from Hugging Face transformers, and what they compute: logits, gradients,
ten AdamW steps, and the error of transformers' own bf16. make_families.py keeps some of it as golden files;
compare_transformers.py draws other sizes and compares at once."""
import copy
import json
import pathlib

import torch
from transformers import (LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM)

FAMILIES = {"qwen3": (Qwen3Config, Qwen3ForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM),
            "llama": (LlamaConfig, LlamaForCausalLM)}
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
STEPS = 10


def make_model(family: str, seed: int, **sizes):
    """A model in fp32 whose norms and biases are not what they start as: that would hide mistakes."""
    torch.manual_seed(seed)
    config_class, model_class = FAMILIES[family]
    config = config_class(**{**dict(rms_norm_eps=1e-6, initializer_range=0.35, eos_token_id=1, bos_token_id=None,
                                    pad_token_id=None, dtype="float32", attn_implementation="eager"), **sizes})
    model = model_class(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def sequences(vocab: int, lengths, seed: int):
    """Tokens, and which of them are targets (never the first)."""
    generator = torch.Generator().manual_seed(seed)
    tokens = [torch.randint(0, vocab, (n,), generator=generator) for n in lengths]
    masks = [(torch.rand(n, generator=generator) < 0.7).int() for n in lengths]
    for mask in masks:
        mask[0], mask[-1] = 0, 1
    return tokens, masks


def loss_of(model, tokens, masks):
    """Mean of -log p over all targets."""
    total, count = 0.0, 0
    for ids, mask in zip(tokens, masks):
        logits = model(ids[None]).logits[0, :-1]
        logits = logits.float() if logits.dtype == torch.bfloat16 else logits
        logprobs = torch.log_softmax(logits, -1).gather(1, ids[1:, None])[:, 0]
        total = total - (logprobs * mask[1:]).sum()
        count += int(mask.sum())
    return total / count


def gradients(model, tokens, masks):
    model.zero_grad()
    loss = loss_of(model, tokens, masks)
    loss.backward()
    return loss.item(), {name: p.grad.clone() for name, p in model.named_parameters()}


def train(model, tokens, masks) -> dict:
    """The parameters after STEPS steps of AdamW on one batch."""
    trained = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(trained.parameters(), **ADAMW)
    for _ in range(STEPS):
        gradients(trained, tokens, masks)
        optimizer.step()
    return {name: parameter.detach() for name, parameter in trained.named_parameters()}


def logits_of(model, tokens):
    with torch.no_grad():
        return [model(ids[None]).logits[0].float() for ids in tokens]


def flat(tensors) -> torch.Tensor:
    return torch.cat([tensors[name].float().flatten() for name in sorted(tensors)])


def logprob_error(logits, reference) -> float:
    """Root mean square over all tokens of the vocabulary at all positions."""
    difference = torch.cat([(torch.log_softmax(a, -1) - torch.log_softmax(b, -1)).flatten()
                            for a, b in zip(logits, reference)])
    return difference.pow(2).mean().sqrt().item()


def reference(model, tokens, masks) -> dict:
    """What our code is held against, as named tensors."""
    result = {}
    logits = logits_of(model, tokens)
    for i, (ids, mask) in enumerate(zip(tokens, masks)):
        result[f"tokens.{i}"], result[f"mask.{i}"] = ids.to(torch.int32), mask.to(torch.int32)
        result[f"logits.{i}"] = logits[i]
    loss, grads = gradients(model, tokens, masks)
    result["loss"] = torch.tensor([loss])
    result.update({"grad." + name: value for name, value in grads.items()})

    rounded = copy.deepcopy(model).to(torch.bfloat16)
    result["bf16.logprobs"] = torch.tensor([logprob_error(logits_of(rounded, tokens), logits)])
    rounded_grads = flat(gradients(rounded, tokens, masks)[1])
    result["bf16.gradients"] = ((rounded_grads - flat(grads)).norm() / flat(grads).norm())[None]

    result.update({"trained." + name: value for name, value in train(model, tokens, masks).items()})
    return {name: value.detach().contiguous().clone() for name, value in result.items()}


def greedy(model, prompt, count: int) -> torch.Tensor:
    ids = prompt[None]
    with torch.no_grad():
        for _ in range(count):
            ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
    return ids[0, len(prompt):]


def save(model, folder: pathlib.Path, old_keys: bool = False) -> None:
    """A Hugging Face directory. old_keys: rope as transformers 4 writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if old_keys:
        config = json.loads((folder / "config.json").read_text())
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        rope["type"] = rope.pop("rope_type")
        config["rope_scaling"] = None if rope["type"] == "default" else rope
        config["torch_dtype"] = config.pop("dtype")
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
