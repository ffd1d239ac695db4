#!/usr/bin/env python3
"""Golden values of every loss and advantage form: PyTorch autograd through the model of data/qwen3_tied with a value
head, in fp64, over three sequences with masks, several terms at a time. Writes data/losses/ (cases.json: options, loss
and advantages; model.safetensors: the batch, and of each case the gradients of a few parameters that see all others).

Needs torch, transformers, safetensors; made with torch 2.6.0 and transformers 5.23.0 on the CPU.
Run: python tests/golden/make_losses.py
"""
import json
import pathlib

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent / "data"
LENGTHS = (11, 6, 9)
KEPT = ("model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.down_proj.weight",
        "model.norm.weight", "value_head.weight")
PLAIN = {"ratio": "token", "clip_low": 0.2, "clip_high": 0.2, "dual_clip": 0.0, "truncation": "off", "tis_low": 0.0,
         "tis_high": 2.0, "opsm_delta": 0.0, "kl": "low_var", "kl_coef": 0.0, "entropy_coef": 0.0, "value_coef": 0.0,
         "value_clip": 0.2, "aggregation": "token_mean", "constant_length": 1.0, "temperature": 1.0}
CASES = {
    "supervised": {"ratio": "supervised", "temperature": 0.9},
    "reinforce": {"ratio": "none"},
    "grpo": {},
    "clip_higher": {"clip_high": 0.28},
    "dual_clip": {"dual_clip": 1.25},
    "gspo": {"ratio": "sequence", "clip_low": 0.03, "clip_high": 0.05, "aggregation": "sequence_mean"},
    "gspo_wide_tis": {"ratio": "sequence", "clip_low": 0.9, "clip_high": 9.0, "truncation": "clamp", "tis_high": 1.1},
    "dr_grpo": {"aggregation": "constant", "constant_length": 16.0},
    "sequence_mean": {"aggregation": "sequence_mean", "entropy_coef": 0.05},
    "kl_k1": {"kl": "k1", "kl_coef": 0.3},
    "kl_k2": {"kl": "k2", "kl_coef": 0.3},
    "kl_k3": {"kl": "k3", "kl_coef": 0.3},
    "kl_low_var": {"kl": "low_var", "kl_coef": 0.3},
    "entropy": {"entropy_coef": 0.2},
    "temperature": {"entropy_coef": 0.1, "temperature": 0.7},
    "tis": {"truncation": "clamp", "tis_low": 0.9, "tis_high": 1.15},
    "icepop": {"truncation": "band", "tis_low": 0.8, "tis_high": 1.25},
    "opsm": {"opsm_delta": 1e-4},
    "ppo": {"value_coef": 0.5, "entropy_coef": 0.01, "clip_high": 0.3},
    "everything": {"value_coef": 0.7, "entropy_coef": 0.02, "kl_coef": 0.1, "dual_clip": 1.5, "truncation": "clamp",
                   "tis_high": 1.2, "opsm_delta": 0.05, "temperature": 1.3, "aggregation": "sequence_mean"},
}


def scores(model, head, tokens, temperature):
    out = model(tokens[None], output_hidden_states=True)
    all_logprobs = torch.log_softmax(out.logits[0, :-1] / temperature, -1)
    logprobs = all_logprobs.gather(1, tokens[1:, None])[:, 0]
    return logprobs, -(all_logprobs.exp() * all_logprobs).sum(-1), out.hidden_states[-1][0, :-1] @ head[0]


def kl_of(form, log_ratio):
    k3 = torch.exp(-log_ratio) - 1 + log_ratio
    return {"k1": log_ratio, "k2": log_ratio ** 2 / 2, "k3": k3, "low_var": k3.clamp(-10, 10)}[form]


def token_losses(o, s, logprobs, entropies, values):
    """Loss of each token of one sample, and its mask."""
    mask, adv = s["mask"][1:].bool(), s["advantages"][1:]
    if o["ratio"] == "supervised":
        return -logprobs, mask
    log_ratio = logprobs - s["old"][1:]
    drift = -log_ratio[mask].mean().detach()
    if o["ratio"] == "sequence":
        log_ratio = log_ratio[mask].mean().expand_as(log_ratio)
    ratio = log_ratio.exp()
    pg = torch.maximum(-ratio * adv, -ratio.clamp(1 - o["clip_low"], 1 + o["clip_high"]) * adv)
    if o["ratio"] == "none":
        pg = -adv * logprobs
    if o["dual_clip"] > 1:
        pg = torch.where(adv < 0, torch.minimum(-o["dual_clip"] * adv, pg), pg)
    weight = (s["old"] - s["rollout"])[1:].exp()
    bounded = weight.clamp(o["tis_low"], o["tis_high"])
    if o["truncation"] == "clamp":
        pg = pg * bounded
    elif o["truncation"] == "band":
        pg = pg * torch.where(bounded == weight, weight, 0.0)
    if o["opsm_delta"] > 0 and drift > o["opsm_delta"]:
        pg = torch.where(adv < 0, 0.0, pg)
    loss = pg - o["entropy_coef"] * entropies + o["kl_coef"] * kl_of(o["kl"], logprobs - s["reference"][1:])
    moved = s["values"][1:] + (values - s["values"][1:]).clamp(-o["value_clip"], o["value_clip"])
    returns = s["returns"][1:]
    value_loss = 0.5 * torch.maximum((values - returns) ** 2, (moved - returns) ** 2)
    return loss + o["value_coef"] * value_loss, mask


def batch_loss(o, samples, model, head):
    parts = [token_losses(o, s, *scores(model, head, s["tokens"], o["temperature"])) for s in samples]
    if o["aggregation"] == "token_mean":
        return torch.cat([loss[mask] for loss, mask in parts]).mean()
    if o["aggregation"] == "sequence_mean":
        return torch.stack([loss[mask].mean() for loss, mask in parts]).mean()
    return sum(loss[mask].sum() for loss, mask in parts) / (len(parts) * o["constant_length"])


def make_batch(model, head, vocab):
    samples = []
    for length in LENGTHS:
        s = {"tokens": torch.randint(0, vocab, (length,))}
        s["mask"] = (torch.rand(length) < 0.7).int()
        s["mask"][[3, length - 1]] = 1
        with torch.no_grad():
            logprobs, _, values = scores(model, head, s["tokens"], 1.0)
        pad = torch.zeros(1, dtype=torch.float64)
        noise = lambda scale: torch.cat([pad, scale * torch.randn(length - 1)])
        s["advantages"] = torch.cat([pad, torch.randn(length - 1)])
        s["old"] = torch.cat([pad, logprobs]) + noise(0.25)
        s["rollout"] = s["old"] + noise(0.2)
        s["reference"] = torch.cat([pad, logprobs]) + noise(0.4)
        s["reference"][3] -= 14.0  # k3 goes past its clamp
        s["values"] = torch.cat([pad, values]) + noise(0.3)
        s["returns"] = torch.randn(length)
        # What the other side reads is fp32.
        samples.append({k: v.float().double() if v.is_floating_point() else v for k, v in s.items()})
    return samples


def whiten(values):
    return (values - values.mean()) / (values.var() + 1e-8).sqrt()


def advantages():
    """Two groups of two of the batch's four samples (the third once more), token by token over their targets."""
    gamma, lam, coef, groups = 0.97, 0.9, 0.15, 2
    rewards = torch.tensor([1.0, 0.25, -0.5, 2.0])
    out = {"gamma": gamma, "lambda": lam, "kl_coef": coef, "group_size": groups, "rewards": rewards.tolist(),
           "forms": {}}
    batch = [samples[0], samples[1], samples[2], samples[2]]
    masks = [s["mask"][1:].bool() for s in batch]
    kl = [kl_of("k1", (s["old"] - s["reference"])[1:][m]) for s, m in zip(batch, masks)]
    pairs = lambda r: r.view(-1, groups)
    spread = lambda values: [torch.full_like(k, v) for k, v in zip(kl, values.flatten())]
    total = rewards - coef * torch.stack([k.sum() for k in kl])
    mean = pairs(total).mean(1, keepdim=True)
    forms = out["forms"]
    forms["group"] = spread((pairs(total) - mean) / (pairs(total).std(1, keepdim=True) + 1e-6))
    forms["centered"] = spread(pairs(total) - mean)
    forms["leave_one_out"] = spread(pairs(total) - pairs(total).flip(1))  # of two, the other is the rest
    baseline = rewards - pairs(rewards).mean(1, keepdim=True).expand(-1, groups).flatten()
    forms["baseline"] = [b - coef * k for b, k in zip(baseline, kl)]
    forms["returns"], forms["gae"], forms["gae_returns"] = [], [], []
    for s, m, k, r in zip(batch, masks, kl, rewards):
        token_rewards = -coef * k
        token_rewards[-1] += r
        n = len(k)
        forms["returns"].append(torch.stack([sum(gamma ** (j - i) * token_rewards[j] for j in range(i, n))
                                             for i in range(n)]))
        v = torch.cat([s["values"][1:][m], torch.zeros(1)])
        delta = token_rewards + gamma * v[1:] - v[:-1]
        forms["gae"].append(torch.stack([sum((gamma * lam) ** (j - i) * delta[j] for j in range(i, n))
                                         for i in range(n)]))
        forms["gae_returns"].append(forms["gae"][-1] + v[:-1])
    for name in ("baseline", "returns", "gae"):
        white = whiten(torch.cat(forms[name]))
        forms[name + "_whitened"] = list(white.split([len(k) for k in kl]))
    out["forms"] = {name: [[float(f"{x:.9g}") for x in part.tolist()] for part in parts] for name, parts in forms.items()}
    return out


torch.manual_seed(11)
torch.set_default_dtype(torch.float64)
directory = HERE / "qwen3_tied"
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory), attn_implementation="eager").double().eval()
weights = {key[len("weight."):]: value.double() for key, value in load_file(directory / "model.safetensors").items()
           if key.startswith("weight.")}
model.load_state_dict(weights, strict=False)
model.tie_weights()
head = (0.3 * torch.randn(1, model.config.hidden_size)).float().double().requires_grad_()
samples = make_batch(model, head, model.config.vocab_size)

tensors = {"value_head.weight": head.detach().float()}
for i, s in enumerate(samples):
    for key, value in s.items():
        tensors[f"{key}.{i}"] = value.float() if value.is_floating_point() else value.to(torch.int32)
cases = {}
for name, change in CASES.items():
    options = {**PLAIN, **change}
    model.zero_grad()
    head.grad = None
    loss = batch_loss(options, samples, model, head)
    loss.backward()
    named = dict(model.named_parameters()) | {"value_head.weight": head}
    for key in KEPT:
        if named[key].grad is not None and (key != "value_head.weight" or options["value_coef"]):
            tensors[f"grad.{name}.{key}"] = named[key].grad.float().contiguous()
    cases[name] = change | {"loss": loss.item()}
folder = HERE / "losses"
folder.mkdir(exist_ok=True)
save_file({key: value.detach().clone() for key, value in tensors.items()}, folder / "model.safetensors")
(folder / "cases.json").write_text(json.dumps({"cases": cases, "advantages": advantages()}, indent=None).replace("}, ", "},\n") + "\n")
