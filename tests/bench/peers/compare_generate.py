#!/usr/bin/env python3
"""Decode of a Hugging Face directory: tandem-engine beside transformers' generate, vLLM and llama.cpp, in one run.

    python3 tests/bench/peers/compare_generate.py [--model DIR] [--bin PATH/tandem-engine] [--batch 1,16] [--json]
        [--peers transformers,vllm] [--dtypes fp32,bf16] [--temperature 1] [--logprobs]
        [--vllm VENV/bin/vllm]                        # scripts/vllm_environment.sh VENV; it is asked in bf16
        [--llama-batched-bench PATH --gguf FILE]      # the same weights in bf16, by llama.cpp's convert_hf_to_gguf.py

Without --model: a model of SmolLM2-135M's shapes with random weights. Every side decodes --new-tokens tokens after a
prompt of --prompt tokens, none stops early. The prefill is taken off: the time of a request for one token is
subtracted. tandem-engine and vLLM are asked over HTTP, as their users do; transformers is called in this process.
Rounds alternate between the sides, which all stay up; medians are printed.
"""

import argparse
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "peers"))
from server_process import ServerProcess  # noqa: E402

DEADLINE_S = 900  # vLLM without instructions for bfloat16 takes minutes for 64 sequences
QUIET_S = 2  # a side's threads spin for a while behind its last request
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
ENGINE_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        return json.load(answer)


class Tandem:
    """tandem-engine in a process of its own."""

    def __init__(self, options, dtype):
        self.name, self.dtype, self.options = "tandem", dtype, options
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
        sampling = {"temperature": self.options.temperature, "max_new_tokens": new_tokens, "ignore_eos": True}
        body = {"input_ids": prompts, "sampling_params": sampling, "return_logprob": self.options.logprobs}
        return [one["output_ids"] for one in post(self.url + "/generate", body)]

    def close(self):
        self.process.terminate()
        self.process.wait(DEADLINE_S)
        self.folder.cleanup()


class Vllm(ServerProcess):
    """vLLM's server, with its defaults but for the room of its cache."""

    def __init__(self, options, dtype):
        self.name, self.dtype, self.options = "vllm", dtype, options
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [options.vllm, "serve", options.model, "--served-model-name", "model", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--dtype", ENGINE_DTYPES[dtype], "--max-model-len", "1024", "--skip-tokenizer-init", "--no-enable-prefix-caching"]
        environment = {"VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        self.log = tempfile.NamedTemporaryFile(prefix="vllm", suffix=".log")
        super().__init__(command, f"http://127.0.0.1:{port}", self.log, environment)

    def generate(self, prompts, new_tokens):
        body = {"model": "model", "prompt": prompts, "max_tokens": new_tokens, "temperature": self.options.temperature}
        body |= {"ignore_eos": True, "return_token_ids": True, "detokenize": False} | ({"logprobs": 0} if self.options.logprobs else {})
        return [one["token_ids"] for one in self.post("/v1/completions", body, DEADLINE_S)["choices"]]

    def close(self):
        self.stop()
        self.log.close()


class Transformers:
    def __init__(self, options, dtype):
        self.name, self.dtype, self.temperature = "transformers", dtype, options.temperature
        self.model = AutoModelForCausalLM.from_pretrained(options.model, dtype=DTYPES[dtype])

    @torch.inference_mode()
    def generate(self, prompts, new_tokens):
        ids = torch.tensor(prompts)
        output = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, min_new_tokens=new_tokens,
            do_sample=self.temperature > 0, pad_token_id=0, **({"temperature": self.temperature, "top_k": 0} if self.temperature > 0 else {}),
        )  # fmt: skip
        return output[:, ids.shape[1] :].tolist()

    def close(self):
        self.model = None


def tokens_per_second(side, draw_prompts, new_tokens):
    """Other prompts for each request: no side finds a prefix that it has computed before."""
    times = []
    for count in (1, new_tokens + 1):
        prompts = draw_prompts()
        time.sleep(QUIET_S)
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


def random_model(folder):
    """SmolLM2-135M's shapes (its config.json), weights by chance."""
    config = LlamaConfig(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
        vocab_size=49152, max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=100000.0, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def sides_of(options, dtype):
    peers = options.peers.split(",")
    sides = [Tandem(options, dtype)]
    if "transformers" in peers:
        sides.append(Transformers(options, dtype))
    if "vllm" in peers and dtype == "bf16":
        sides.append(Vllm(options, dtype))
    return sides


def measure(sides, dtype, batch, draw_prompts, options, rates):
    """Adds what each side decodes in each round, in tokens a second, to rates[side, dtype]."""
    for side in sides:
        side.generate(draw_prompts(batch), 4)  # warm
    for number in range(options.rounds):
        for side in sides:
            rate = tokens_per_second(side, lambda: draw_prompts(batch), options.new_tokens)
            rates.setdefault((side.name, dtype), []).append(rate)
            print(f"batch {batch}, round {number + 1}: {side.name} {dtype} {rate:.1f} tokens/s", file=sys.stderr, flush=True)


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="Hugging Face directory; without it, random weights of SmolLM2-135M's shapes")
    parser.add_argument("--bin", default=str(here / "../../../build/release/bin/tandem-engine"))
    parser.add_argument("--batch", default="1,16")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--logprobs", action="store_true", help="of every token that is drawn (not asked of transformers)")
    parser.add_argument("--peers", default="transformers")
    parser.add_argument("--vllm", default="vllm", help="its program, for --peers vllm")
    parser.add_argument("--llama-batched-bench", help="llama.cpp's program of this name")
    parser.add_argument("--gguf", help="the model's weights for it, in bf16")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    made = tempfile.TemporaryDirectory()
    options.model = options.model or random_model(made.name)
    vocab = json.loads((pathlib.Path(options.model) / "config.json").read_text())["vocab_size"]
    draw = random.Random(0)

    def draw_prompts(batch):
        return [[draw.randrange(vocab) for _ in range(options.prompt)] for _ in range(batch)]

    batches = [int(batch) for batch in options.batch.split(",")]
    rates = {batch: {} for batch in batches}
    for dtype in options.dtypes.split(","):
        sides = sides_of(options, dtype)
        try:
            for batch in batches:
                measure(sides, dtype, batch, draw_prompts, options, rates[batch])
        finally:
            for side in sides:
                side.close()
    rows = []
    for batch in batches:
        if options.llama_batched_bench:
            rates[batch]["llama.cpp", "bf16"] = [llama(options, batch) for _ in range(options.rounds)]
        best = max(statistics.median(values) for (name, _), values in rates[batch].items() if name == options.peers.split(",")[0])
        for (name, dtype), values in rates[batch].items():
            rate = statistics.median(values)
            rows.append({"batch": batch, "engine": name, "dtype": dtype, "tokens_per_s": rate, "times_peer": rate / best})
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{options.threads} threads, prompt {options.prompt}, {options.new_tokens} new tokens; 'times' is to the better dtype of {options.peers.split(',')[0]}")
    print(f"{'batch':>5}  {'engine':<14}{'dtype':<6}{'tokens/s':>10}{'times':>8}")
    for row in rows:
        print(f"{row['batch']:>5}  {row['engine']:<14}{row['dtype']:<6}{row['tokens_per_s']:>10.1f}{row['times_peer']:>8.2f}")


if __name__ == "__main__":
    main()
