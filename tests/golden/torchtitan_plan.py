"""torchtitan's plan of tensor parallelism (llama3 and qwen3) for transformers' Llama, Qwen2 and Qwen3: make_tensor_parallel.py
takes its values, and the bench beside PyTorch its steps.

- `parallelize_module` unties: the head is tied again after it. Untied, the embedding's gradient lacks the head's part.
- q_norm and k_norm are `SequenceParallel` over heads: as plain modules their gradients would be those of own heads.
- transformers counts positions on the embedding's output, under sequence parallelism a part of the tokens: who calls the
  model has to pass them.
"""
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               parallelize_module)


def parallelize(model, mesh, sequence: bool) -> None:
    """Logits come as a DTensor, cut by the vocabulary: for `loss_parallel`."""
    between = Shard(1) if sequence else Replicate()
    plan = {"model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
            "lm_head": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False)}
    layer = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"}
    # Parts of unequal sizes keep the whole one's only as DTensors.
    layer |= {f"mlp.{name}_proj": ColwiseParallel(use_local_output=False) for name in ("gate", "up")}
    layer |= {name: RowwiseParallel(output_layouts=between) for name in ("self_attn.o_proj", "mlp.down_proj")}
    if model.config.model_type == "qwen3":
        layer |= {f"self_attn.{name}_norm": SequenceParallel(sequence_dim=2, use_local_output=True) for name in "qk"}
    if sequence:
        norm = SequenceParallel(use_local_output=True)
        plan["model.norm"] = norm
        layer |= {"input_layernorm": norm, "post_attention_layernorm": norm,
                  "mlp": PrepareModuleInput(input_layouts=between, desired_input_layouts=Replicate()),
                  "self_attn": PrepareModuleInput(input_kwarg_layouts={"hidden_states": between},
                                                  desired_input_kwarg_layouts={"hidden_states": Replicate()})}
    parallelize_module(model, mesh, plan)
    for one in model.model.layers:
        parallelize_module(one, mesh, layer)
    if model.config.tie_word_embeddings:
        model.lm_head.weight = model.model.embed_tokens.weight
