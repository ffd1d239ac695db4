#!/usr/bin/env python3
"""SmolLM2 learns arithmetic: FSDP2 trains, a tandem-engine or a vLLM server generates, Tandem keeps it in step. README.md."""
import json, pathlib, re, sys, urllib.request

import tandem_sync
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL, URL, STEPS = sys.argv[1], sys.argv[2], int((sys.argv + ["30"])[3])
PROMPTS, SAMPLES, MAX_NEW, TEMPERATURE, LR, LARGEST_WEIGHT = 8, 8, 32, 0.7, 4e-5, 2.0
tokenizer = AutoTokenizer.from_pretrained(MODEL)

def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=300))

def generate(prompts, samples, temperature, seed):
    """[(token ids, log-probs by the engine)], all of the first prompt first."""
    sampling = {"temperature": temperature, "stop_token_ids": [tokenizer.eos_token_id]}
    if URL.startswith("vllm://"):
        body = {"prompt": prompts, "n": samples, "max_tokens": MAX_NEW, "logprobs": 0, "return_token_ids": True, **sampling}
        choices = post("http" + URL[4:] + "/v1/completions", body)["choices"]
        return [(c["token_ids"], c["logprobs"]["token_logprobs"]) for c in choices]
    each = [prompt for prompt in prompts for _ in range(samples)]
    params = [{"max_new_tokens": MAX_NEW, "sampling_seed": seed * 1000 + i, **sampling} for i in range(len(each))]
    answers = post(URL + "/generate", {"input_ids": each, "sampling_params": params, "return_logprob": True})
    return [(a["output_ids"], [entry[0] for entry in a["meta_info"]["output_token_logprobs"]]) for a in answers]

def roll_out(problems, samples, temperature, seed=0):
    """[(prompt, token ids, log-probs, reward)] on every rank; rank 0 asks the engine."""
    prompts = [tokenizer.apply_chat_template([{"role": "user", "content": problem["prompt"]}], add_generation_prompt=True,
                                             return_dict=False) for problem in problems for _ in range(samples)]
    answers = [generate(prompts[::samples], samples, temperature, seed) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(answers)
    numbers = [re.findall(r"-?\d+", tokenizer.decode(tokens))[-1:] for tokens, _ in answers[0]]
    rewards = [float(said == [problems[i // samples]["answer"]]) for i, said in enumerate(numbers)]
    return [(prompt, *answer, reward) for prompt, answer, reward in zip(prompts, answers[0], rewards)]

def train_step(model, optimizer, rollouts):
    rewards = torch.tensor([rollout[3] for rollout in rollouts]).view(-1, SAMPLES)
    advantages = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).flatten()
    mine = range(dist.get_rank(), len(rollouts), dist.get_world_size())
    for part in torch.tensor(mine).split(8):
        shape = len(part), max(len(rollouts[i][0]) + len(rollouts[i][1]) for i in part)
        ids, theirs, mask = torch.zeros(shape, dtype=torch.long), torch.zeros(shape), torch.zeros(shape)
        for row, (prompt, tokens, logprobs, _) in enumerate(rollouts[i] for i in part):
            answer = slice(len(prompt), len(prompt) + len(tokens))
            ids[row, :answer.stop] = torch.tensor(prompt + tokens)
            theirs[row, answer], mask[row, answer] = torch.tensor(logprobs), 1.0
        logits = model(ids).logits[:, :-1].float() / TEMPERATURE
        own = -torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        weight = (own.detach() - theirs[:, 1:]).exp().clamp(max=LARGEST_WEIGHT)  # other kernels, other log-probs
        loss = -(weight * own * advantages[part, None] * mask[:, 1:]).sum() / sum(len(rollout[1]) for rollout in rollouts)
        (loss * dist.get_world_size()).backward()  # FSDP takes the mean over ranks
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()

dist.init_process_group("gloo")
say = print if dist.get_rank() == 0 else lambda text: None
prompts = pathlib.Path(__file__).resolve().parents[1] / "smollm2/prompts.jsonl"
problems = [json.loads(line) for line in prompts.open()]
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
for part in [*model.model.layers, model]:
    fully_shard(part, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
                mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.0)
with tandem_sync.Session(engines=[URL], deadline=120, rollback=True) as sync:
    sync.publish(model)
    for step in range(STEPS + 1):
        report = sync.push(version=step + 1)
        if step in (0, STEPS):
            say(f"held-out pass@1 after {step} steps: {sum(rollout[3] for rollout in roll_out(problems[-64:], 1, 0.0)) / 64:.3f}")
        if step < STEPS:
            batch = [problems[(step * PROMPTS + i) % (len(problems) - 64)] for i in range(PROMPTS)]
            train_step(model, optimizer, rollouts := roll_out(batch, SAMPLES, TEMPERATURE, step + 1))
            say(f"step {step + 1}: reward {sum(r[3] for r in rollouts) / len(rollouts):.3f}; the push before paused {report.paused_ms:.0f} ms")
dist.destroy_process_group()
