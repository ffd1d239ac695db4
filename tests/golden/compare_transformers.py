#!/usr/bin/env python3
"""Draws N small random models of every family and compares what trainer and engine make of them with
transformers: logits, gradients of every parameter, ten AdamW steps, the error of bf16 against transformers' own,
and that transformers loads the config.json that we write to the same model. AdamW is compared for the parameters
in which transformers' fp32 is within a tenth of the bound of its own fp64 ("ill" counts the others), and for all
parameters as one vector, which has a bound where none is ill. Prints a line a model and the worst
figures; exit code 1 when one is past its bound.

Run: ninja -C build model_probe && python tests/golden/compare_transformers.py --models 20 --seed 1 [--bin build/bin]
"""
import argparse
import contextlib
import copy
import io
import json
import logging
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

import families

TOLERANCE = 1e-4
BF16_RATIO = 2.0


def draw_rope(r: random.Random) -> dict:
    rope = {"rope_type": r.choice(["default", "linear", "llama3", "yarn"]),
            "rope_theta": r.choice([100.0, 10000.0, 500000.0, 1e6, 1e9])}
    if rope["rope_type"] != "default":
        rope["factor"] = r.choice([1.0, 2.0, 2.5, 8.0, 32.0])
    if rope["rope_type"] in ("llama3", "yarn"):
        rope["original_max_position_embeddings"] = r.choice([8, 32, 100])
    if rope["rope_type"] == "llama3":
        rope.update(low_freq_factor=1.0, high_freq_factor=r.choice([2.0, 4.0]))
    if rope["rope_type"] == "yarn":
        for key, values in {"attention_factor": [0.8, 1.3], "beta_fast": [4.0, 16.0], "beta_slow": [0.5, 2.0],
                            "mscale": [0.7, 1.0], "mscale_all_dim": [0.9, 1.1], "truncate": [False]}.items():
            if r.random() < 0.3:
                rope[key] = r.choice(values)
    return rope


def draw(r: random.Random):
    family = r.choice(sorted(families.FAMILIES))
    kv_heads = r.choice([1, 1, 2, 3])
    heads = kv_heads * r.choice([1, 2, 4])
    head_dim = r.choice([8, 10, 16, 32, 64, 96, 128, 256])
    equal = r.random() < 0.4  # head_dim = hidden / heads
    hidden = heads * head_dim if equal and heads * head_dim <= 256 else heads * r.choice([4, 6, 11, 16, 25])
    sizes = dict(vocab_size=r.choice([31, 64, 101, 257, 500]), hidden_size=hidden,
                 intermediate_size=r.choice([20, 33, 48, 100, 192]), num_hidden_layers=r.choice([1, 2, 3]),
                 num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=512,
                 tie_word_embeddings=r.random() < 0.5, rope_parameters=draw_rope(r),
                 rms_norm_eps=r.choice([1e-5, 1e-6]), initializer_range=r.choice([0.05, 0.1, 0.2]))
    if family != "qwen2" or head_dim * heads != hidden:
        sizes["head_dim"] = head_dim
    if family != "qwen2":
        sizes["attention_bias"] = r.random() < 0.3
    if family == "llama":
        sizes["mlp_bias"] = r.random() < 0.3
    lengths = [r.choice([7, 16, 33, 50]) for _ in range(r.choice([1, 3]))]
    return family, sizes, lengths, r.random() < 0.5


def probe(args, folder, dtype: str) -> dict:
    out = folder / f"{dtype}.safetensors"
    subprocess.run([args.bin / "model_probe", "--model", folder / "model", "--request", folder / "request", "--out",
                    out, "--dtype", dtype, "--train"], check=True)
    return load_file(out)


def by_norm(got, wanted) -> float:
    return ((got - wanted).norm() / wanted.norm()).item() if wanted.norm() > 0 else got.norm().item()


def relative(got, wanted) -> float:
    """By norm and by the largest element, whichever is worse."""
    return max(by_norm(got, wanted), ((got - wanted).abs().max() / wanted.abs().max().clamp_min(1e-30)).item())


def written_config_differs(model, folder, text: str, tokens) -> bool:
    """Whether transformers loads another model by our config.json."""
    (folder / "model" / "config.json").write_text(text)
    again = AutoModelForCausalLM.from_pretrained(folder / "model", attn_implementation="eager", dtype=torch.float32)
    same = all(torch.equal(a, b) for a, b in zip(families.logits_of(again.eval(), tokens),
                                                 families.logits_of(model, tokens)))
    return not same or type(again) is not type(model) or json.loads(text)["architectures"] != [type(model).__name__]


def compare(args, seed: int) -> dict:
    r = random.Random(seed)
    family, sizes, lengths, old_keys = draw(r)
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stderr(io.StringIO()):
        folder = pathlib.Path(name)
        model = families.make_model(family, seed, **sizes)
        tokens, masks = families.sequences(sizes["vocab_size"], lengths, seed)
        wanted = families.reference(model, tokens, masks)
        families.save(model, folder / "model", old_keys)
        (folder / "request").mkdir()
        save_file({k: v for k, v in wanted.items() if k.startswith(("tokens.", "mask."))},
                  folder / "request" / "model.safetensors")
        got, rounded = probe(args, folder, "float32"), probe(args, folder, "bfloat16")
        logits = [wanted[f"logits.{i}"] for i in range(len(tokens))]
        engine = [got[f"engine.{i}"] for i in range(len(tokens))]
        trainer = [got[f"trainer.{i}"] for i in range(len(tokens))]
        names = [name.removeprefix("grad.") for name in wanted if name.startswith("grad.")]
        # Adam divides by the gradient's size: where that is rounding error alone (a key's bias in dims that hardly
        # turn), transformers' own fp32 is not what its fp64 is, and nobody else's can be.
        exact_steps = families.train(copy.deepcopy(model).double(), tokens, masks)
        ill = [n for n in names if by_norm(wanted["trained." + n].double(), exact_steps[n]) > TOLERANCE / 10]
        result = {
            "logits": max(max(relative(a, b) for a, b in zip(engine, logits)),
                          max(relative(a, torch.log_softmax(b, -1)) for a, b in zip(trainer, logits))),
            "gradients": max(relative(got["grad." + n], wanted["grad." + n]) for n in names),
            "adamw": max([by_norm(got["trained." + n], wanted["trained." + n]) for n in names if n not in ill],
                         default=0.0),
            "adamw whole": by_norm(families.flat({n: got["trained." + n] for n in names}),
                                   families.flat({n: wanted["trained." + n] for n in names})),
            "ill": float(len(ill)),
            "bf16 trainer": families.logprob_error([rounded[f"trainer.{i}"] for i in range(len(tokens))], logits)
            / wanted["bf16.logprobs"].item(),
            "bf16 engine": families.logprob_error([rounded[f"engine.{i}"] for i in range(len(tokens))], logits)
            / wanted["bf16.logprobs"].item(),
        }
        exact = families.flat({n: wanted["grad." + n] for n in names})
        error = (families.flat({n: rounded["grad." + n] for n in names}) - exact).norm() / exact.norm()
        result["bf16 gradients"] = (error / wanted["bf16.gradients"]).item()
        result["config"] = float(written_config_differs(model, folder, bytes(got["config"].tolist()).decode(), tokens))
    bounds = {"logits": TOLERANCE, "gradients": TOLERANCE, "adamw": TOLERANCE, "config": 0, "ill": float("inf"),
              "adamw whole": TOLERANCE if not result["ill"] else float("inf")}
    result["bad"] = [key for key, value in result.items() if not value <= bounds.get(key, BF16_RATIO)]
    scaling = sizes["rope_parameters"]["rope_type"]
    print(f"{seed:4} {family:5} {'tied  ' if sizes['tie_word_embeddings'] else 'untied'} {scaling:7} "
          f"V {sizes['vocab_size']:3} h {sizes['hidden_size']:3} heads {sizes['num_attention_heads']:2}/"
          f"{sizes['num_key_value_heads']} d {sizes.get('head_dim', '-'):>3} T {max(lengths):2} "
          f"std {sizes['initializer_range']} | "
          + " ".join(f"{key} {value:.2g}" for key, value in result.items() if key != "bad")
          + (f"  PAST: {result['bad']}" if result["bad"] else ""), flush=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    results = [compare(args, args.seed + i) for i in range(args.models)]
    for key in results[0]:
        if key != "bad":
            values = sorted(result[key] for result in results)
            print(f"{key:15} median {values[len(values) // 2]:.3g}  worst {values[-1]:.3g}")
    return 1 if any(result["bad"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
