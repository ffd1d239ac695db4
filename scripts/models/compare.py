#!/usr/bin/env python3
"""Loads Hugging Face directories with transformers and compares their weights.

    scripts/models/compare.py runs/smollm2/checkpoint            # does it load, with nothing missing or unexpected?
    scripts/models/compare.py runs/NAME/checkpoint models/smollm2  # and how far is it from another one?

Exit codes: 0 it loads (and both have the same parameters), 1 it does not.
"""
import sys

import torch
from transformers import AutoModelForCausalLM


def load(directory):
    model, info = AutoModelForCausalLM.from_pretrained(
        directory, torch_dtype=torch.float32, output_loading_info=True
    )
    wrong = {key: value for key, value in info.items() if value}
    if wrong:
        sys.exit(f"{directory}: {wrong}")
    parameters = dict(model.named_parameters())
    print(f"{directory}: {type(model).__name__}, {sum(p.numel() for p in parameters.values())} parameters")
    return parameters


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    first = load(sys.argv[1])
    if len(sys.argv) == 2:
        return
    second = load(sys.argv[2])
    if first.keys() != second.keys():
        sys.exit(f"only in one of them: {sorted(first.keys() ^ second.keys())}")
    worst, name = max((float((first[k] - second[k]).abs().max()), k) for k in first)
    print(f"largest difference of a weight: {worst:.3g}, in {name}")


main()
