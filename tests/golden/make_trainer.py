#!/usr/bin/env python3
"""Golden values of tiny Qwen3 and Llama models from Hugging Face transformers: log-probs of two sequences and the
gradient of their token-mean loss with respect to every parameter. Writes data/{qwen3_tied,qwen3_untied,llama_tied}/
(config.json, model.safetensors).

Needs torch, transformers, safetensors; made with torch 2.6.0 and transformers 5.23.0, float32 on the CPU.
Run: python tests/golden/make_trainer.py
"""
import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

HERE = pathlib.Path(__file__).parent / "data"
LENGTHS = (11, 6)


def make(name: str, config_class, model_class, tied: bool) -> None:
    torch.manual_seed(3)
    config = config_class(
        vocab_size=29, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=64, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0}, tie_word_embeddings=tied, attention_bias=False,
        initializer_range=0.2, eos_token_id=1, bos_token_id=None, pad_token_id=None, dtype="float32",
        attn_implementation="eager")
    model = model_class(config).float().eval()
    with torch.no_grad():  # norms of one would hide mistakes
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    tensors = {}
    sequences = [torch.randint(0, config.vocab_size, (length,)) for length in LENGTHS]
    logprobs = []
    for tokens in sequences:
        logits = model(tokens[None]).logits[0].float()
        logprobs.append(torch.log_softmax(logits[:-1], -1).gather(1, tokens[1:, None])[:, 0])
    loss = -torch.cat(logprobs).mean()
    loss.backward()
    for key, parameter in model.named_parameters():
        tensors["weight." + key] = parameter.detach().contiguous()
        tensors["grad." + key] = parameter.grad.contiguous()
    for i, tokens in enumerate(sequences):
        tensors[f"tokens.{i}"] = tokens.to(torch.int32)
        tensors[f"logprobs.{i}"] = logprobs[i].detach().contiguous()
    folder = HERE / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: value.clone() for key, value in tensors.items()}, folder / "model.safetensors")
    written = config.to_dict()
    written["architectures"] = [model_class.__name__]
    kept = ("architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
            "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps",
            "tie_word_embeddings", "attention_bias", "eos_token_id")
    text = {key: written[key] for key in kept}
    text["rope_theta"] = 1000.0
    text["torch_dtype"] = "float32"
    (folder / "config.json").write_text(json.dumps(text, indent=2) + "\n")


make("qwen3_tied", Qwen3Config, Qwen3ForCausalLM, True)
make("qwen3_untied", Qwen3Config, Qwen3ForCausalLM, False)
make("llama_tied", LlamaConfig, LlamaForCausalLM, True)
