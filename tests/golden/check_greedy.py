#!/usr/bin/env python3
"""Greedy continuations of ten prompts by transformers, by tandem-engine and by the trainer's forward, all in fp32:
the tokens have to be the same. Also compares logits of every token at every position with transformers'.

The trainer normalises over the whole vocabulary but shows log-probs of chosen tokens only; the candidates here are
transformers' best of each position. That its most likely candidate is its most likely token follows where all the
probability that the candidates leave is less than that one's; where it does not, the engine's logits, of which
the trainer's log-probs are the bits, decide ("by the engine").

Run: ninja -C build tandem-engine model_probe && python tests/golden/check_greedy.py MODEL_DIR [--bin build/bin]
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = ["The capital of France is", "Question: What is 17 + 25?\nAnswer:", "Once upon a time, in a small village",
           "def fibonacci(n):\n    ", "The three primary colours are", "Le chat est assis sur",
           "In 1969, the first humans", "A list of prime numbers: 2, 3, 5, 7,", "Dear Sir or Madam,\n\nI am writing",
           "Water boils at"]
TOLERANCE = 1e-4


def greedy(model, ids, count: int):
    """Like generate, which would not go on after an end of text."""
    result, cache, step = [], None, torch.tensor([ids])
    while len(result) < count:
        answer = model(step, past_key_values=cache, use_cache=True)
        cache = answer.past_key_values
        result.append(int(answer.logits[0, -1].argmax()))
        step = torch.tensor([result[-1:]])
    return result


def start_engine(args, folder):
    ready = folder / "ready"
    engine = subprocess.Popen([args.bin / "tandem-engine", "serve", "--model", args.model, "--dtype", "float32",
                               "--listen", "127.0.0.1:0", "--threads", str(args.threads), "--ready-file", ready,
                               "--die-with-parent"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (ready.exists() and ready.read_text().strip()):
        if engine.poll() is not None or time.monotonic() > deadline:
            engine.kill()
            sys.exit(f"tandem-engine did not start (exit code {engine.poll()})")
        time.sleep(0.1)
    return engine, ready.read_text().strip()


def generate(url: str, ids, count: int):
    """Tokens, and the log-probs that the engine says they have."""
    body = {"input_ids": ids, "sampling_params": {"temperature": 0, "max_new_tokens": count, "ignore_eos": True},
            "return_logprob": True}
    request = urllib.request.Request(url + "/generate", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        found = json.load(answer)
    logprobs = [entry[0] for entry in found["meta_info"]["output_token_logprobs"]]
    return found["output_ids"], torch.tensor(logprobs, dtype=torch.float32)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"))
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--candidates", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="eager").eval()
    prompts = [tokenizer(text)["input_ids"] for text in PROMPTS]
    start = time.monotonic()
    wanted, logits = [], []
    with torch.no_grad():
        for ids in prompts:
            wanted.append(greedy(model, ids, args.tokens))
            logits.append(model(torch.tensor([ids + wanted[-1]])).logits[0])
            if logits[-1][len(ids) - 1:-1].argmax(-1).tolist() != wanted[-1]:
                print("transformers itself: with and without its cache it chooses other tokens")
    print(f"transformers: {time.monotonic() - start:.0f} s", flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        engine, url = start_engine(args, folder)
        try:
            served = [generate(url, ids, args.tokens) for ids in prompts]
        finally:
            engine.terminate()
            engine.wait(timeout=30)
        (folder / "request").mkdir()
        best = [rows.topk(args.candidates).indices.int() for rows in logits]
        request = {f"tokens.{i}": torch.tensor(ids + new, dtype=torch.int32)
                   for i, (ids, new) in enumerate(zip(prompts, wanted))}
        request.update({f"candidates.{i}": rows.contiguous() for i, rows in enumerate(best)})
        save_file(request, folder / "request" / "model.safetensors")
        out = folder / "out.safetensors"
        subprocess.run([args.bin / "model_probe", "--model", args.model, "--request", folder / "request", "--out", out,
                        "--threads", str(args.threads)], check=True)
        found = load_file(out)

    bad = 0
    worst = {"engine logits": 0.0, "trainer log-probs": 0.0, "served log-probs": 0.0}
    proven = positions = 0
    for i, (ids, new) in enumerate(zip(prompts, wanted)):
        first = len(ids) - 1
        exact = torch.log_softmax(logits[i].double(), -1).gather(1, best[i].long())
        trainer = found[f"trainer.{i}"]
        engine_logits = found[f"engine.{i}"]
        scale = logits[i].abs().max()
        worst["engine logits"] = max(worst["engine logits"], ((engine_logits - logits[i]).abs().max() / scale).item())
        difference = (trainer - exact).abs().max() / exact.abs().max()
        worst["trainer log-probs"] = max(worst["trainer log-probs"], difference.item())

        said, said_logprobs = served[i]
        rows = trainer[first:first + args.tokens].double()
        choice = rows.argmax(-1)
        chosen = best[i][first:first + args.tokens].gather(1, choice[:, None])[:, 0].tolist()
        left = 1 - rows.exp().sum(-1)
        sure = rows.max(-1).values.exp() > left
        by_engine = engine_logits[first:first + args.tokens].argmax(-1).tolist()
        proven += int(sure.sum())
        positions += len(new)
        most = trainer[first:first + args.tokens].max(-1).values
        worst["served log-probs"] = max(worst["served log-probs"], (said_logprobs - most).abs().max().item())
        same = said == new and chosen == new and by_engine == new
        bad += not same
        print(f"{'same  ' if same else 'DIFFERENT'} engine {said == new} trainer {chosen == new} "
              f"{json.dumps(PROMPTS[i] + ' ->' + tokenizer.decode(new))[:100]}")
    print(f"{len(prompts) - bad} of {len(prompts)} continuations of {args.tokens} tokens are the same; the trainer's "
          f"choice proven at {proven} of {positions} positions, the others by the engine")
    for key, value in worst.items():
        print(f"{key}: {value:.3g}")
    return 1 if bad or worst["engine logits"] > TOLERANCE or worst["trainer log-probs"] > TOLERANCE else 0


if __name__ == "__main__":
    sys.exit(main())
