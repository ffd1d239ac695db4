"""A Llama of a few thousand weights in plain PyTorch, by Hugging Face's names, and a tandem-engine that serves its shapes."""

import contextlib
import json
import os
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

# 3 ranks cut nothing of it evenly.
CONFIG = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", hidden_size=32, intermediate_size=72,
              num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8, vocab_size=101,
              rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=128, torch_dtype="float32")


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Attention(nn.Module):
    def __init__(self, hidden, heads, kv, dim):
        super().__init__()
        self.dim = dim
        self.q_proj = nn.Linear(hidden, heads * dim, bias=False)
        self.k_proj = nn.Linear(hidden, kv * dim, bias=False)
        self.v_proj = nn.Linear(hidden, kv * dim, bias=False)
        self.o_proj = nn.Linear(heads * dim, hidden, bias=False)

    def forward(self, x):  # [batch, tokens, hidden]
        q, k, v = (p(x).unflatten(-1, (-1, self.dim)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        return self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn = Attention(c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"])
        self.mlp = Mlp(c["hidden_size"], c["intermediate_size"])
        self.input_layernorm, self.post_attention_layernorm = Norm(c["hidden_size"]), Norm(c["hidden_size"])

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Tiny(nn.Module):
    def __init__(self, tied=False, **changes):
        super().__init__()
        self.config = c = {**CONFIG, **changes, "tie_word_embeddings": tied}
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.model.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.model.norm = Norm(c["hidden_size"])
        self.lm_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
        if tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x)
        return self.lm_head(self.model.norm(x))


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * 4
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.detach().float().contiguous().numpy().tobytes())


@contextlib.contextmanager
def engine(model):
    """The URL of a tandem-engine that serves the model's shapes, with other values."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(model.config))
        write_safetensors(Path(folder, "model.safetensors"),
                          {name: torch.zeros(p.shape) + 0.01 for name, p in model.named_parameters()})
        ready = Path(folder, "ready")
        process = subprocess.Popen([os.environ["TANDEM_ENGINE"], "serve", "--model", folder, "--listen", "127.0.0.1:0",
                                    "--ready-file", str(ready), "--threads", "1", "--die-with-parent"],
                                   stdout=subprocess.DEVNULL, stderr=open(os.path.join(folder, "log"), "w"))
        try:
            deadline = time.monotonic() + 60
            while not ready.exists() or not ready.read_text().strip():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("tandem-engine did not start:\n" + Path(folder, "log").read_text())
                time.sleep(0.05)
            yield ready.read_text().strip(), process
        finally:
            process.kill()
            process.wait()


class EngineRanks:
    """Ranks of a tensor-parallel engine that holds weights and computes nothing: the engine's side of tandem-sync bench."""

    def __init__(self, shapes, tp=1, dtype="float32"):
        """shapes: a config.json, or the name of a model that tandem-sync bench knows"""
        self.folder = tempfile.TemporaryDirectory()
        if not isinstance(shapes, str):
            config = Path(self.folder.name, "config.json")
            config.write_text(json.dumps(shapes))
            shapes = str(config)
        self.ranks = [subprocess.Popen([os.environ["TANDEM_SYNC"], "bench-engine", "--shapes", shapes, "--engine-dtype", dtype,
                                        "--engine-tp", str(tp), "--engine-rank", str(rank)],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for rank in range(tp)]
        self.addresses = [self._line(rank) for rank in self.ranks]

    def _line(self, rank):
        line = rank.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"tandem-sync bench-engine ended with {rank.wait()}")
        return line

    def held(self):
        """[rank]: {"version": N, "tensors": {name: XXH3-128 of what it reads}}"""
        answers = []
        for rank in self.ranks:
            rank.stdin.write("\n")
            rank.stdin.flush()
            answers.append(json.loads(self._line(rank)))
        return answers

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks:
            rank.kill()
            rank.wait()
        self.folder.cleanup()


def tensor_parallel(whole, tp, rank):
    """What a rank of vLLM or SGLang holds of a model's tensors: fused, cut, a vocabulary padded with rows of zeros."""
    def rows(tensor):
        return tensor.chunk(tp, 0)[rank]

    def vocabulary(tensor):
        padding = -len(tensor) % 64
        if (len(tensor) + padding) % tp != 0:
            padding = -len(tensor) % (64 * tp)
        return rows(torch.cat([tensor, torch.zeros(padding, tensor.shape[1])]))

    held = {}
    for name, tensor in whole.items():
        if name in ("model.embed_tokens.weight", "lm_head.weight"):
            held[name] = vocabulary(tensor)
        elif name.endswith((".o_proj.weight", ".down_proj.weight")):
            held[name] = tensor.chunk(tp, 1)[rank]
        elif name.endswith("norm.weight"):
            held[name] = tensor
        elif name.endswith(".q_proj.weight"):
            others = [whole[name.replace("q_proj", other)] for other in ("k_proj", "v_proj")]
            held[name.replace("q_proj", "qkv_proj")] = torch.cat([rows(one) for one in (tensor, *others)])
        elif name.endswith(".gate_proj.weight"):
            up = whole[name.replace("gate_proj", "up_proj")]
            held[name.replace("gate_proj", "gate_up_proj")] = torch.cat([rows(tensor), rows(up)])
    return held


def ask(url, route, body=None):
    request = urllib.request.Request(url + route, json.dumps(body).encode() if body is not None else None,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def held(url):
    """The engine's own checksums, by name, and the version that it says."""
    return ask(url, "/weights_checker", {"action": "checksum"})["ranks"][0]["checksums"], ask(url, "/model_info")
