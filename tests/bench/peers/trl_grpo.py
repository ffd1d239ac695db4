"""GRPO steps by TRL, for compare_rl.sh: with TRL's own generation, or (--url) by a vLLM server that Tandem keeps in step. Prints a
line of JSON: for each step its seconds, and of those what generation and the sync took, and the tokens that were generated."""
import argparse
import json
import os
import re
import time

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompts", required=True, help="JSON lines with prompt and answer: each step has them all")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True, help="of each completion")
    parser.add_argument("--batch", type=int, required=True, help="completions that are computed at once")
    parser.add_argument("--output", required=True)
    parser.add_argument("--url", help="of a vLLM server")
    return parser.parse_args()


class Clock(TrainerCallback):
    def __init__(self):
        self.steps, self.took = [], {}

    def around(self, name, call):
        def timed(*arguments, **keywords):
            started = time.perf_counter()
            try:
                return call(*arguments, **keywords)
            finally:
                self.took[name] = self.took.get(name, 0.0) + time.perf_counter() - started
        return timed

    def on_step_begin(self, *_, **__):
        self.started, self.took = time.perf_counter(), {}

    def on_step_end(self, *_, **__):
        self.steps.append({"seconds": time.perf_counter() - self.started, **self.took})


def reward(completions, answer, **_):
    return [float(re.findall(r"-?\d+", completion[-1]["content"])[-1:] == [right]) for completion, right in zip(completions, answer)]


def main():
    options = parsed()
    torch.set_num_threads(os.cpu_count())
    clock, generated = Clock(), []
    with open(options.prompts) as lines:
        problems = [json.loads(line) for line in lines]
    served = {}
    if options.url:
        import tandem_sync.trl

        tandem_sync.trl.install()
        served = dict(use_vllm=True, vllm_mode="server", vllm_server_base_url=options.url)
    completions = len(problems) * options.samples
    trainer = GRPOTrainer(
        model=options.model, reward_funcs=reward, processing_class=AutoTokenizer.from_pretrained(options.model),
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": one["prompt"]}], "answer": one["answer"]}
                                         for one in problems]),
        callbacks=[clock],
        args=GRPOConfig(output_dir=options.output, max_steps=options.steps, learning_rate=4e-5, lr_scheduler_type="constant",
                        per_device_train_batch_size=options.batch, gradient_accumulation_steps=completions // options.batch,
                        num_generations=options.samples, temperature=0.7, max_completion_length=options.tokens, beta=0.0,
                        bf16=True, use_cpu=True, gradient_checkpointing=False, logging_steps=1, save_strategy="no", report_to=[],
                        disable_tqdm=True, **served))
    if options.url:
        trainer.vllm_generation.sync_weights = clock.around("sync", trainer.vllm_generation.sync_weights)
    generate = clock.around("generate", trainer._generate_single_turn)

    def counted(*arguments, **keywords):
        told = generate(*arguments, **keywords)
        generated.append(sum(len(ids) for ids in told[0]))
        return told

    trainer._generate_single_turn = counted
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "reward" in entry]
    for step, entry, tokens in zip(clock.steps, logged, generated):
        step["generate"] -= step.get("sync", 0.0)  # TRL syncs where it generates
        step |= {"tokens": tokens, "reward": entry["reward"], "differs": entry.get("sampling/sampling_logp_difference/max")}
    print("STEPS " + json.dumps(clock.steps), flush=True)


if __name__ == "__main__":
    main()
