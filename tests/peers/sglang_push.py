"""Pushes two sets of weights of one architecture into a real SGLang, in turn, by `tandem-sync push`.

After every push greedy tokens and the log-probs of the prompt are compared with transformers' on the weights that were
pushed, and the version with the one that was asked for. Exit code 1 when anything differs.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import torch
import transformers

PROMPTS = [[1, 5, 9, 2, 7, 30, 31, 32], [3, 3, 8, 100, 17, 60], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20]]
TOKENS = 12


def make_models(folder):
    """Two directories with other weights of one architecture."""
    config = transformers.Qwen3Config(vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=3,
                                      num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                                      max_position_embeddings=256, initializer_range=0.2)
    models, directories = [], []
    for seed in (1, 2):
        torch.manual_seed(seed)
        models.append(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval())
        directories.append(folder / str(seed))
        models[-1].save_pretrained(directories[-1])
    return models, directories


@torch.no_grad()
def expected(model):
    """For each prompt: greedy tokens, and the log-prob of each prompt token after the first."""
    answers = []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        logprobs = model(ids).logits.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None])[:, 0]
        out = ids
        for _ in range(TOKENS):
            out = torch.cat([out, model(out).logits[:, -1:].argmax(-1)], 1)
        answers.append((out[0, len(prompt):].tolist(), logprobs.tolist()))
    return answers


def call(url, target, body=None):
    request = urllib.request.Request(url + target, json.dumps(body).encode() if body is not None else None,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def ask(url):
    answers = []
    for prompt in PROMPTS:
        said = call(url, "/generate", dict(input_ids=prompt, return_logprob=True, logprob_start_len=0, sampling_params=dict(
            temperature=0, max_new_tokens=TOKENS, ignore_eos=True)))
        info = said["meta_info"]
        answers.append((said["output_ids"], [entry[0] for entry in info["input_token_logprobs"][1:]]))
    return answers


def start(options, directory, log):
    command = [options.python, "-m", "sglang.launch_server", "--model-path", str(directory), "--skip-tokenizer-init",
               "--host", "127.0.0.1", "--port", str(options.port), "--dtype", "float32", *options.server.split()]
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    url = f"http://127.0.0.1:{options.port}"
    end = time.monotonic() + 900
    while True:
        try:
            urllib.request.urlopen(url + "/health", timeout=2)
            return process, url
        except (urllib.error.URLError, OSError):
            if process.poll() is not None or time.monotonic() > end:
                stop(process)
                sys.exit(f"the server did not start: {log.name}")
            time.sleep(1)


def stop(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="of an environment with SGLang")
    parser.add_argument("--program", required=True, help="tandem-sync")
    parser.add_argument("--scheme", choices=["sglang", "sglang+tensor"], default="sglang")
    parser.add_argument("--pushes", type=int, default=4)
    parser.add_argument("--port", type=int, default=30123)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--server", default="--device cpu --attention-backend torch_native --disable-overlap-schedule",
                        help="more options of the server")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sglang_push."))
    models, directories = make_models(folder)
    wanted = [expected(model) for model in models]
    failed = False
    with open(folder / "server.log", "w") as log:
        process, url = start(options, directories[0], log)
        try:
            for push in range(options.pushes + 1):
                which = push % 2
                if push:
                    target = url.replace("http", options.scheme)
                    more = ["--abort-running"] if options.scheme == "sglang+tensor" else []
                    done = subprocess.run([options.program, "push", "--model", str(directories[which]), "--to", target,
                                           "--json", *more], capture_output=True, text=True)
                    print(done.stderr, end="")
                    if done.returncode:
                        sys.exit(done.stdout)
                    version = call(url, "/model_info")["weight_version"]
                    failed |= version != str(push)
                found = ask(url)
                tokens = sum(a != b for (a, _), (b, _) in zip(found, wanted[which]))
                apart = max(abs(x - y) for (_, a), (_, b) in zip(found, wanted[which]) for x, y in zip(a, b))
                failed |= tokens > 0 or apart > options.tolerance
                print(f"push {push}: {tokens} of {len(PROMPTS)} greedy answers differ, log-probs by {apart:.2e} at most",
                      flush=True)
        finally:
            stop(process)
    if failed:
        sys.exit(f"FAILED; the server's log is {folder / 'server.log'}")
    shutil.rmtree(folder)
    print("ok")


main()
