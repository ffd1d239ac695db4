#!/usr/bin/env python3
"""The same training steps as torch_fsdp2.py's by PyTorch's pipeline parallelism: 1F1B, a stage a rank, fp32.

    python3 tests/bench/peers/torch_pipeline.py --init DIR --data DIR/data.json [--ranks 2] [--microbatches 8] [--json]

Ranks are processes of a gloo group. transformers' model is cut by its layers as Tandem cuts it
(common/sharding/pipeline_stages.h). A table that embedding and head share is on the first and the last rank: its gradient is
summed over the two once a step, and counted once in the norm. Losses are sums over tokens divided by the batch's count, so the
schedule scales no gradients.

In the peer's favour: the last stage keeps no logits of past micro-batches, shapes are inferred in the first step, which is
not timed, and the table's gradient travels as one tensor, in place.
"""

import argparse
import json
import pathlib

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch_fsdp2 import BETAS, CLIP, EPS, run_ranks, run_steps, start_rank
from transformers import AutoModelForCausalLM


def cut_layers(layers, stages, first_less, last_less):
    """[first, end) of each stage: the embedding weighs as first_less layers, the head as last_less; what does not divide goes
    to the first stages."""
    each, more = divmod(layers + first_less + last_less, stages)
    parts, begin = [], 0
    for stage in range(stages):
        end = begin + each + (stage < more) - first_less * (stage == 0) - last_less * (stage + 1 == stages)
        parts.append((begin, end))
        begin = end
    return parts


class Stage(torch.nn.Module):
    """Layers [first, end) of a model; before the first one the embedding, behind the last one the norm and the head."""

    def __init__(self, model, first, end):
        super().__init__()
        self.embeds, self.heads = first == 0, end == len(model.model.layers)
        self.decoder = model.model
        self.decoder.layers = self.decoder.layers[first:end]
        if not self.embeds:
            self.decoder.embed_tokens = None
        if self.heads:
            self.head = model.lm_head
        else:
            self.decoder.norm = torch.nn.Identity()

    def forward(self, x):
        given = {"input_ids": x} if self.embeds else {"inputs_embeds": x}
        positions = torch.arange(x.shape[1])[None]
        hidden = self.decoder(**given, position_ids=positions, use_cache=False).last_hidden_state
        return self.head(hidden) if self.heads else hidden


class SharedTable:
    """Embedding and head of a tied model, on the first rank and the last."""

    def __init__(self, model, ranks):
        self.group = dist.new_group([0, ranks - 1])
        self.ends = dist.get_rank() in (0, ranks - 1)
        self.weight = model.lm_head.weight if model.config.tie_word_embeddings else None

    def sum_gradients(self):
        if self.weight is not None and self.ends:
            dist.all_reduce(self.weight.grad, group=self.group)

    def counted(self, parameters):
        return [one for one in parameters if one is not self.weight or dist.get_rank() == 0]


def clip(parameters, counted):
    squares = torch.nn.utils.get_total_norm([one.grad for one in counted]) ** 2
    dist.all_reduce(squares)
    torch.nn.utils.clip_grads_with_norm_(parameters, CLIP, squares.sqrt())


def train(rank, options, store, results):
    start_rank(rank, options, store)
    model = AutoModelForCausalLM.from_pretrained(options.init, dtype=torch.float32).train()
    table = SharedTable(model, options.ranks)
    cut = cut_layers(model.config.num_hidden_layers, options.ranks, 1, options.last_less)
    part = Stage(model, *cut[rank])
    parameters = list(part.parameters())
    optimizer = torch.optim.AdamW(
        parameters, lr=options.lr, betas=BETAS, eps=EPS, weight_decay=options.weight_decay, fused=True
    )  # fmt: skip
    data = json.loads(pathlib.Path(options.data).read_text())
    targets_of_step = len(data[0]) * (len(data[0][0]) - 1)

    def loss_of(logits, targets):
        total = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
        return total / targets_of_step

    stage = PipelineStage(part, rank, options.ranks, torch.device("cpu"))
    schedule = Schedule1F1B(stage, options.microbatches, loss_fn=loss_of, scale_grads=False)

    def backward(step):
        tokens = torch.tensor(step)
        targets = torch.full_like(tokens, -100)
        targets[:, :-1] = tokens[:, 1:]
        losses = []
        schedule.step(*[tokens] * part.embeds, target=targets if part.heads else None, losses=losses, return_outputs=False)
        table.sum_gradients()
        return torch.stack(losses).detach().sum() if losses else torch.zeros(())

    def update():
        clip(parameters, table.counted(parameters))
        optimizer.step()
        optimizer.zero_grad()

    found = run_steps(data, backward, update)
    if rank == 0:
        results.put({"peer": "PyTorch PP", "dtype": "fp32", "pp": options.ranks, "stages": cut} | found)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--init", required=True, help="Hugging Face directory to start from")
    parser.add_argument("--data", required=True, help="token ids [step][sequence][token]")
    parser.add_argument("--ranks", type=int, default=2, help="each of them a stage")
    parser.add_argument("--microbatches", type=int, default=8, help="equal parts of a step's sequences")
    parser.add_argument("--last-less", type=int, default=1, help="layers that the head weighs")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = run_ranks(train, options)
    if options.json:
        print(json.dumps(result))
        return
    stages = " | ".join(f"{first} to {end}" for first, end in result["stages"])
    print(f"{result['peer']} {result['version']}  layers {stages}  {result['tokens_per_step']} tokens a step: "
          f"{result['median_s'] * 1e3:.0f} ms, {result['tokens_per_s']:.0f} tokens/s")


if __name__ == "__main__":
    main()
