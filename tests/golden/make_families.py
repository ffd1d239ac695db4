#!/usr/bin/env python3
"""Golden values of small models of every family (beside make_trainer.py's three): writes
data/families/NAME/{config.json,model.safetensors}, a Hugging Face directory as transformers saves it, with
golden/model.safetensors (families.py: reference, greedy), and data/rope.json, the frequencies of rope types as
transformers computes them.

Needs torch, transformers, safetensors; made with torch 2.6.0 and transformers 5.23.0, float32 on the CPU.
Run: python tests/golden/make_families.py
"""
import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import families

DATA = pathlib.Path(__file__).parent / "data"
SIZES = dict(vocab_size=37, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True)
PLAIN = {"rope_type": "default", "rope_theta": 1000.0}
MODELS = {
    "qwen2_tied_yarn": ("qwen2", True, dict(rope_parameters={
        "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 8})),
    "qwen2_untied": ("qwen2", False, dict(rope_parameters=PLAIN, tie_word_embeddings=False, num_key_value_heads=4)),
    "llama_tied_llama3": ("llama", False, dict(rope_parameters={
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16})),
    "llama_untied_linear": ("llama", True, dict(
        rope_parameters={"rope_type": "linear", "rope_theta": 1000.0, "factor": 2.0}, tie_word_embeddings=False,
        head_dim=6)),
    "llama_biases": ("llama", False, dict(rope_parameters=PLAIN, attention_bias=True, mlp_bias=True,
                                          num_key_value_heads=1, head_dim=12)),
    "qwen3_biases_yarn": ("qwen3", False, dict(attention_bias=True, head_dim=8, rope_parameters={
        "rope_type": "yarn", "rope_theta": 1000.0, "factor": 2.0, "original_max_position_embeddings": 16,
        "attention_factor": 1.25, "beta_fast": 8.0, "beta_slow": 0.5})),
}


def make_models() -> None:
    for seed, (name, (family, old_keys, changes)) in enumerate(MODELS.items()):
        model = families.make_model(family, seed + 5, **{**SIZES, **changes})
        tokens, masks = families.sequences(SIZES["vocab_size"], (17, 9), seed)
        golden = families.reference(model, tokens, masks)
        golden["greedy"] = families.greedy(model, tokens[0], 16).to(torch.int32)
        families.save(model, DATA / "families" / name, old_keys)
        (DATA / "families" / name / "golden").mkdir(exist_ok=True)
        save_file(golden, DATA / "families" / name / "golden" / "model.safetensors")


YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768}
ROPES = [  # head_dim, max_position_embeddings, rope_parameters
    (64, 8192, {"rope_type": "default", "rope_theta": 100000.0}),
    (128, 40960, {"rope_type": "default", "rope_theta": 1e9}),
    (64, 8192, {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}),
    (128, 131072, {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                   "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
    (64, 131072, {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
                  "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
    (128, 131072, YARN),
    (64, 131072, {**YARN, "attention_factor": 1.0}),
    (64, 163840, {**YARN, "rope_theta": 10000.0, "factor": 40.0, "original_max_position_embeddings": 4096,
                  "mscale": 0.707, "mscale_all_dim": 1.2}),
    (96, 131072, {**YARN, "mscale": 1.0}),
    (64, 131072, {**YARN, "rope_theta": 150000.0, "factor": 32.0, "truncate": False,
                  "original_max_position_embeddings": 4096}),
    (80, 65536, {**YARN, "beta_fast": 16, "beta_slow": 2, "factor": 1.0}),
    (64, 65536, {**YARN, "factor": None, "original_max_position_embeddings": 16384}),
    (8, 64, {**YARN, "rope_theta": 100.0, "original_max_position_embeddings": 4}),
]


def make_ropes() -> None:
    cases = []
    for head_dim, context, rope in ROPES:
        config = LlamaConfig(hidden_size=4 * head_dim, num_attention_heads=4, max_position_embeddings=context,
                             rope_parameters=dict(rope))
        embedding = LlamaRotaryEmbedding(config)
        cases.append({"head_dim": head_dim, "max_position_embeddings": context, "rope_parameters": rope,
                      "inverse": embedding.inv_freq.double().tolist(),
                      "attention_factor": float(embedding.attention_scaling)})
    (DATA / "rope.json").write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


make_models()
make_ropes()
