#!/usr/bin/env python3
"""Greedy decode of a Hugging Face directory: tandem-engine beside transformers' generate and llama.cpp, in one run.

    python3 tests/bench/peers/compare_generate.py --model DIR [--bin PATH/tandem-engine] [--batch 1,16] [--json]
        [--llama-batched-bench PATH --gguf FILE]      # the same weights in bf16, by llama.cpp's convert_hf_to_gguf.py

Every side decodes --new-tokens tokens after a prompt of --prompt tokens, none stops early. The prefill is taken off:
the time of a request for one token is subtracted. tandem-engine is asked over HTTP, as its users do; transformers is
called in this process. Rounds alternate between the sides; medians are printed.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import time
import urllib.request

import torch
from transformers import AutoModelForCausalLM

DEADLINE_S = 120
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
ENGINE_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


class Tandem:
    """tandem-engine in a process of its own."""

    def __init__(self, options, dtype):
        self.name, self.dtype = "tandem", dtype
        self.folder = tempfile.TemporaryDirectory()
        ready = pathlib.Path(self.folder.name) / "url"
        command = [options.bin, "serve", "--model", options.model, "--listen", "127.0.0.1:0", "--dtype", ENGINE_DTYPES[dtype]]
        command += ["--threads", str(options.threads), "--ready-file", str(ready), "--die-with-parent"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + DEADLINE_S
        while not (ready.exists() and ready.read_text().strip()):
            if time.monotonic() > end or self.process.poll() is not None:
                raise SystemExit(f"{options.bin} did not start")
            time.sleep(0.05)
        self.url = ready.read_text().strip()

    def generate(self, prompts, new_tokens):
        sampling = {"temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": True}
        body = json.dumps({"input_ids": prompts, "sampling_params": sampling}).encode()
        request = urllib.request.Request(self.url + "/generate", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return [one["output_ids"] for one in json.load(answer)]

    def close(self):
        self.process.terminate()
        self.process.wait(DEADLINE_S)
        self.folder.cleanup()


class Transformers:
    def __init__(self, options, dtype):
        self.name, self.dtype = "transformers", dtype
        self.model = AutoModelForCausalLM.from_pretrained(options.model, dtype=DTYPES[dtype])

    @torch.inference_mode()
    def generate(self, prompts, new_tokens):
        ids = torch.tensor(prompts)
        output = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, min_new_tokens=new_tokens,
            do_sample=False, pad_token_id=0,
        )  # fmt: skip
        return output[:, ids.shape[1] :].tolist()

    def close(self):
        self.model = None


def tokens_per_second(side, prompts, new_tokens):
    times = []
    for count in (1, new_tokens + 1):
        start = time.perf_counter()
        outputs = side.generate(prompts, count)
        times.append(time.perf_counter() - start)
        assert all(len(output) == count for output in outputs), side.name
    return len(prompts) * new_tokens / (times[1] - times[0])


def llama(options, batch):
    command = [options.llama_batched_bench, "-m", options.gguf, "-t", str(options.threads), "-npp", str(options.prompt)]
    command += ["-ntg", str(options.new_tokens), "-npl", str(batch), "-c", str(batch * (options.prompt + options.new_tokens + 8))]
    command += ["--output-format", "jsonl"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    (line,) = [line for line in output.splitlines() if line.startswith("{")]
    return json.loads(line)["speed_tg"]


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Hugging Face directory")
    parser.add_argument("--bin", default=str(here / "../../../build/release/bin/tandem-engine"))
    parser.add_argument("--batch", default="1,16")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--llama-batched-bench", help="llama.cpp's program of this name")
    parser.add_argument("--gguf", help="the model's weights for it, in bf16")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    vocab = json.loads((pathlib.Path(options.model) / "config.json").read_text())["vocab_size"]
    draw = random.Random(0)
    rows = []
    for batch in map(int, options.batch.split(",")):
        prompts = [[draw.randrange(vocab) for _ in range(options.prompt)] for _ in range(batch)]
        rates = {}
        for dtype in DTYPES:
            sides = [Tandem(options, dtype), Transformers(options, dtype)]
            for side in sides:
                side.generate(prompts, 4)  # warm
            for _ in range(options.rounds):
                for side in sides:
                    rates.setdefault((side.name, dtype), []).append(tokens_per_second(side, prompts, options.new_tokens))
            for side in sides:
                side.close()
        if options.llama_batched_bench:
            rates[("llama.cpp", "bf16")] = [llama(options, batch) for _ in range(options.rounds)]
        best = max(statistics.median(values) for (name, _), values in rates.items() if name == "transformers")
        for (name, dtype), values in rates.items():
            rate = statistics.median(values)
            rows.append({"batch": batch, "engine": name, "dtype": dtype, "tokens_per_s": rate, "times_transformers": rate / best})
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{options.threads} threads, prompt {options.prompt}, {options.new_tokens} new tokens; 'times' is to transformers' better dtype")
    print(f"{'batch':>5}  {'engine':<14}{'dtype':<6}{'tokens/s':>10}{'times':>8}")
    for row in rows:
        print(f"{row['batch']:>5}  {row['engine']:<14}{row['dtype']:<6}{row['tokens_per_s']:>10.1f}{row['times_transformers']:>8.2f}")


if __name__ == "__main__":
    main()
