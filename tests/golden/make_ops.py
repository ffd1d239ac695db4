"""Golden values of the ops from PyTorch, for tests/unit/common/ops/golden_test.cpp.

    python tests/golden/make_ops.py        (PyTorch 2.6; writes tests/golden/data/ops_*.json)

Inputs and outputs are both stored, as float32 values, so the test needs no random generator of PyTorch's.
"""

import json
import pathlib

import torch

OUT = pathlib.Path(__file__).parent / "data"


def tensor(t):
    return {"shape": list(t.shape), "values": [float(f"{v:.9g}") for v in t.detach().float().flatten().tolist()]}


def save(name, **tensors):
    entries = {k: tensor(v) if torch.is_tensor(v) else v for k, v in tensors.items()}
    (OUT / f"ops_{name}.json").write_text(json.dumps(entries, separators=(",", ":")) + "\n")


def attention():
    torch.manual_seed(1)
    tokens, heads, kv_heads, dim = 67, 2, 1, 8
    q = torch.randn(tokens, heads, dim, requires_grad=True)
    k = torch.randn(tokens, kv_heads, dim, requires_grad=True)
    v = torch.randn(tokens, kv_heads, dim, requires_grad=True)
    dout = torch.randn(tokens, heads, dim)
    group = heads // kv_heads
    out = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(0, 1),
        k.transpose(0, 1).repeat_interleave(group, 0),
        v.transpose(0, 1).repeat_interleave(group, 0),
        is_causal=True,
    ).transpose(0, 1)
    out.backward(dout)
    scores = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(group, 1)) / dim**0.5
    mask = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    lse = scores.masked_fill(~mask, float("-inf")).logsumexp(-1)
    save("attention", q=q, k=k, v=v, dout=dout, out=out, lse=lse, dq=q.grad, dk=k.grad, dv=v.grad)


def rms_norm():
    torch.manual_seed(2)
    x = torch.randn(9, 24, requires_grad=True)
    weight = torch.randn(24, requires_grad=True)
    dy = torch.randn(9, 24)
    y = torch.nn.functional.rms_norm(x, (24,), weight, eps=1e-6)
    y.backward(dy)
    save("rms_norm", eps=1e-6, x=x, weight=weight, dy=dy, y=y, dx=x.grad, dweight=weight.grad)


def swiglu():
    torch.manual_seed(3)
    gate = (torch.randn(200) * 3).requires_grad_()
    up = torch.randn(200, requires_grad=True)
    dy = torch.randn(200)
    y = torch.nn.functional.silu(gate) * up
    y.backward(dy)
    save("swiglu", gate=gate, up=up, dy=dy, y=y, dgate=gate.grad, dup=up.grad)


def rope():
    """Hugging Face's rotate-half form, with its float32 angles."""
    torch.manual_seed(4)
    positions = torch.tensor([0, 1, 5, 100, 4000])
    theta, dim = 10000.0, 16
    x = torch.randn(5, 3, dim)
    inverse = 1.0 / (theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))
    angle = torch.outer(positions.float(), inverse)
    cos, sin = (torch.cat([f(angle)] * 2, -1)[:, None] for f in (torch.cos, torch.sin))
    half = torch.cat([-x[..., dim // 2 :], x[..., : dim // 2]], -1)
    save("rope", theta=theta, positions=positions.float(), x=x, y=x * cos + half * sin)


def logprobs():
    torch.manual_seed(5)
    logits = (torch.randn(6, 40) * 3).requires_grad_()
    targets = torch.tensor([0, 39, 7, 7, 20, 1])
    weights = torch.randn(6)
    temperature = 0.7
    all_logprobs = torch.log_softmax(logits / temperature, -1)
    chosen = all_logprobs.gather(1, targets[:, None])[:, 0]
    chosen.backward(weights)
    entropies = -(all_logprobs.exp() * all_logprobs).sum(-1)
    save("logprobs", temperature=temperature, logits=logits, targets=targets.float(), dlogprobs=weights,
         logprobs=chosen, entropies=entropies, dlogits=logits.grad)


def adamw():
    torch.manual_seed(6)
    param = torch.randn(50, requires_grad=True)
    start = param.detach().clone()
    optimizer = torch.optim.AdamW([param], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    grads, params = [], []
    for _ in range(5):
        param.grad = torch.randn(50)
        grads.append(param.grad.clone())
        optimizer.step()
        params.append(param.detach().clone())
    save("adamw", start=start, grads=torch.stack(grads), params=torch.stack(params))


def bfloat16():
    torch.manual_seed(7)
    values = torch.cat([torch.randn(200), torch.randn(50) * 1e30, torch.randn(50) * 1e-39,
                        torch.tensor([1.00390625, 1.01171875, 3.3895314e38])])
    save("bfloat16", values=values, rounded=values.bfloat16())


def float8():
    """All 254 numbers of e4m3fn, and roundings up to 464: above that PyTorch makes NaN where quantize saturates."""
    torch.manual_seed(8)
    bits = torch.tensor([b for b in range(256) if b & 0x7F != 0x7F], dtype=torch.uint8)
    scales = 2.0 ** torch.arange(-11, 9, dtype=torch.float32)
    values = torch.cat([(torch.randn(20, 20) * scales[:, None]).flatten().clamp(-464, 464),
                        torch.tensor([464.0, -464.0, 0.0, -0.0, 2.0**-10, 2.0**-10 * 1.0000001, 2.0**-9 * 7.5])])
    save("float8", bits=bits.float(), numbers=bits.view(torch.float8_e4m3fn).float(), values=values,
         rounded=values.to(torch.float8_e4m3fn).view(torch.uint8).float())


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for make in (attention, rms_norm, swiglu, rope, logprobs, adamw, bfloat16, float8):
        make()
