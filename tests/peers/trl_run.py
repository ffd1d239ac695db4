"""A run of TRL against a vLLM server that is up, synced by tandem_sync.trl; what one rank of it does.

Prints a JSON line: TRL's own largest difference between the server's log-probs and the trainer's (sampling_logp_difference/max,
or the ratio's distance from 1 in the asynchronous trainer) at each step, the versions pushed, what the server says it has, and
how far its log-probs of a fixed text are from the trainer's model after a last push.
"""
import argparse
import contextlib
import json
import os
import sys
import urllib.request

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
import torch

TEXT = "hello world, abc"


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trainer", choices=["grpo", "rloo", "async"])
    parser.add_argument("--model", required=True)
    parser.add_argument("--url", required=True, help="http://HOST:PORT")
    parser.add_argument("--output", required=True)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--save-steps", type=int, default=0)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--peft", action="store_true")
    parser.add_argument("--fsdp2", action="store_true", help="accelerate knows no FSDP on a CPU: it is told that it does")
    parser.add_argument("--skip", action="store_true", help="negative control: nothing is pushed after the first version")
    return parser.parse_args()


def reward(completions, **_):
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [float(text.count("a")) - .1 * len(set(text)) for text in texts]


def fsdp_on_cpu():
    from accelerate import state
    from accelerate.utils import DistributedType

    before = state.AcceleratorState.__init__

    def init(self, *args, **kwargs):
        before(self, *args, **kwargs)
        if kwargs.get("fsdp_plugin") is not None:
            self.fsdp_plugin, self.distributed_type = kwargs["fsdp_plugin"], DistributedType.FSDP
            state.PartialState._shared_state["distributed_type"] = DistributedType.FSDP

    state.AcceleratorState.__init__ = init


def asynchronous_on_cpu():
    """What TRL's asynchronous trainer asks of a GPU: its name, and an attention over packed rows."""
    import trl.experimental.async_grpo.packing as packing

    torch.cuda.get_device_name = lambda *_: "cpu"

    class Attention:
        @staticmethod
        def flash_attn_varlen_func(q, k, v, starts_q, starts_k, longest_q, longest_k, softmax_scale=None, causal=True, **_):
            out = torch.empty_like(q)
            for a, b, c, d in zip(starts_q[:-1], starts_q[1:], starts_k[:-1], starts_k[1:]):
                query, key, value = (x.transpose(0, 1) for x in (q[a:b], k[c:d], v[c:d]))
                key, value = (x.repeat_interleave(query.shape[0] // x.shape[0], 0) for x in (key, value))
                mask = torch.ones(b - a, d - c, dtype=torch.bool).tril(diagonal=int((d - c) - (b - a)))
                out[a:b] = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask,
                                                                            scale=softmax_scale).transpose(0, 1)
            return out
    packing._flash_attn = lambda: Attention


def get(url):
    return json.load(urllib.request.urlopen(url, timeout=60))


def served_logprobs(url, ids):
    body = {"model": "model", "prompt": [ids], "max_tokens": 1, "prompt_logprobs": 0}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    entries = json.load(urllib.request.urlopen(request, timeout=120))["choices"][0]["prompt_logprobs"]
    return [entry[str(token)]["logprob"] for token, entry in zip(ids[1:], entries[1:])]


def model_logprobs(model, ids):
    # FSDP2 gathers inside forward: every rank computes.
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].float()
    return torch.log_softmax(logits, -1)[range(len(ids) - 1), ids[1:]].tolist()


def make(options):
    from datasets import Dataset

    prompts = ["abc ", "hello ", "one two ", "xyz "] * 8
    common = dict(output_dir=options.output, use_cpu=True, bf16=False, per_device_train_batch_size=8, num_generations=8,
                  max_completion_length=8, max_steps=options.steps, logging_steps=1, report_to=[], learning_rate=1e-2,
                  disable_tqdm=True, gradient_checkpointing=False,
                  save_strategy="steps" if options.save_steps else "no", save_steps=options.save_steps or 500)
    peft = None
    if options.peft:
        from peft import LoraConfig
        peft = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear")
    if options.trainer == "async":
        from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

        import tandem_sync.trl
        asynchronous_on_cpu()
        transfer = tandem_sync.trl.WeightTransfer(options.url.replace("http", "vllm"))
        common |= dict(vllm_server_base_url=options.url, learning_rate=1e-3, weight_sync_steps=1, token_budget=0)
        data = Dataset.from_dict({"prompt": [[{"role": "user", "content": text}] for text in prompts]})
        return AsyncGRPOTrainer(model=options.model, reward_funcs=reward, args=AsyncGRPOConfig(**common), train_dataset=data,
                                weight_transfer=transfer), transfer
    from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

    common |= dict(use_vllm=True, vllm_mode="server", vllm_server_base_url=options.url, beta=0.0)
    Config, Trainer = (GRPOConfig, GRPOTrainer) if options.trainer == "grpo" else (RLOOConfig, RLOOTrainer)
    trainer = Trainer(model=options.model, reward_funcs=reward, args=Config(**common), peft_config=peft,
                      train_dataset=Dataset.from_dict({"prompt": prompts}))
    return trainer, trainer.vllm_generation.tandem


def main():
    options = parsed()
    torch.set_num_threads(1)
    if options.fsdp2:
        fsdp_on_cpu()
    import tandem_sync.trl

    with contextlib.ExitStack() as stack:
        if options.trainer != "async":
            stack.enter_context(tandem_sync.trl.install())
        trainer, sync = make(options)
        if options.skip:
            generation, true = trainer.vllm_generation, trainer.vllm_generation.sync_weights
            generation.sync_weights = lambda: None if generation.tandem.session else true()
        trainer.train(resume_from_checkpoint=options.resume or None)
    log = trainer.state.log_history
    difference = [line["sampling/sampling_logp_difference/max"] for line in log
                  if "sampling/sampling_logp_difference/max" in line]
    report = {"differences": difference, "version": sync.version, "steps": trainer.state.global_step,
              "perf": [line["perf/tandem_version"] for line in log if "perf/tandem_version" in line],
              "ratios": [line["ratio"] for line in log if "ratio" in line]}
    if options.trainer == "async":
        report["model_version"] = trainer.model_version
        report["served"] = get(options.url + "/weight_info")["weight_version"]
    elif not options.skip:
        trainer.vllm_generation.sync_weights()
        report["version"] = sync.version
        report["served"] = get(options.url + "/weight_info")["weight_version"]
        ids = trainer.processing_class(TEXT)["input_ids"]
        own = model_logprobs(trainer.model.eval(), ids)
        report["text"] = max(abs(a - b) for a, b in zip(own, served_logprobs(options.url, ids)))
        if sync.session is not None:
            sync.session.close()
    if trainer.accelerator.is_main_process:
        print("REPORT " + json.dumps(report), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # reward functions are imported by spawned workers
    main()
