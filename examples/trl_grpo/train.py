#!/usr/bin/env python3
"""SmolLM2 learns arithmetic: TRL's GRPOTrainer trains, a vLLM server generates, Tandem keeps it in step. README.md."""
import json, pathlib, re, sys, urllib.request

import tandem_sync.trl
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

MODEL, URL, STEPS = sys.argv[1], sys.argv[2], int((sys.argv + ["12"])[3])
HELD_OUT = 64
prompts = pathlib.Path(__file__).resolve().parents[1] / "smollm2/prompts.jsonl"
problems = [json.loads(line) for line in prompts.open()]
tokenizer = AutoTokenizer.from_pretrained(MODEL)

def is_right(text, answer):
    return float(re.findall(r"-?\d+", text)[-1:] == [answer])

def reward(completions, answer, **_):
    return [is_right(completion[-1]["content"], right) for completion, right in zip(completions, answer)]

def held_out():
    """Greedy pass@1 of what the server holds."""
    ids = [tokenizer.apply_chat_template([{"role": "user", "content": problem["prompt"]}], add_generation_prompt=True,
                                         return_dict=False) for problem in problems[-HELD_OUT:]]
    body = {"model": "model", "prompt": ids, "max_tokens": 32, "temperature": 0}
    request = urllib.request.Request(URL + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    choices = json.load(urllib.request.urlopen(request, timeout=600))["choices"]
    return sum(is_right(c["text"], problems[c["index"] - HELD_OUT]["answer"]) for c in choices) / HELD_OUT

tandem_sync.trl.install()
trainer = GRPOTrainer(
    model=MODEL, reward_funcs=reward,
    train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": problem["prompt"]}], "answer": problem["answer"]}
                                     for problem in problems[:-HELD_OUT]]),
    args=GRPOConfig(output_dir="runs/trl_grpo", max_steps=STEPS, learning_rate=4e-5, lr_scheduler_type="constant",
                    per_device_train_batch_size=8, gradient_accumulation_steps=8, num_generations=8, temperature=0.7,
                    max_completion_length=32, beta=0.0, bf16=True, use_cpu="--cpu" in sys.argv, use_vllm=True,
                    vllm_mode="server", vllm_server_base_url=URL, logging_steps=1, save_strategy="no", report_to=[]))
print(f"held-out pass@1 before: {held_out():.3f}", flush=True)
trainer.train()
trainer.vllm_generation.sync_weights()
print(f"held-out pass@1 after {STEPS} steps: {held_out():.3f}", flush=True)
