"""What an actor of verl's hands over: full tensors, one after the other, or its own shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .._errors import InvalidError

PACKED_EXPERTS = (".mlp.experts.gate_up_proj", ".mlp.experts.down_proj")


def full_tensors(weights: Any) -> Iterator[tuple[str, Any]]:
    """The generator that verl gives every actor, each of which has to run it to its end: it gathers. Refuses what is no whole
    model."""
    for name, tensor in weights:
        _require_no_adapter(name)
        yield name, tensor


def drain(weights: Any) -> None:
    for _ in weights:
        pass


def shards(engine: Any) -> tuple[list[tuple[str, Any]], dict[str, str]]:
    """Names and DTensors of an FSDP2 engine's model, nothing gathered; and names that are another one's tensor, as a tied head
    is its embedding's. Refuses, by name, what verl would convert while it gathers."""
    module: Any = getattr(engine, "module", None)
    if not hasattr(module, "named_parameters"):
        raise _refused(f"{type(engine).__name__} has no module of torch's")
    if hasattr(module, "peft_config"):
        raise _refused("the model has LoRA adapters")
    if getattr(module, "_checkpoint_conversion_mapping", None):
        raise _refused(f"{type(module).__name__} has other names than its checkpoint, which verl converts")
    if getattr(engine, "_qat_enabled", False):
        raise _refused("the weights are quantised on their way")
    gpt_oss = getattr(getattr(module, "config", None), "model_type", "") == "gpt_oss"
    parameters = {name: id(parameter) for name, parameter in module.named_parameters(remove_duplicate=False)}
    items: list[tuple[str, Any]] = []
    firsts: dict[int, str] = {}
    aliases: dict[str, str] = {}
    for name, tensor in module.state_dict().items():
        _require_no_adapter(name)
        if "_fsdp_wrapped_module" in name or "_flat_param" in name:
            raise _refused("the actor is FSDP1 (strategy=fsdp2 hands over shards)")
        if name.endswith(PACKED_EXPERTS) and tensor.dim() == 3 and not gpt_oss:
            raise _refused(f"'{name}' holds all experts, which verl takes apart")
        first = firsts.setdefault(parameters[name], name) if name in parameters else name
        if first == name:
            items.append((name, tensor))
        else:
            aliases[name] = first
    return items, aliases


def _require_no_adapter(name: str) -> None:
    if "lora_" in name or ".base_layer." in name:
        raise InvalidError(f"'{name}' is of a LoRA adapter, which Tandem does not send apart: set model.lora.merge=True", 1)


def _refused(why: str) -> InvalidError:
    return InvalidError(f"sharded hand-over: {why}; without checkpoint_manager_class full tensors are sent", 1)
