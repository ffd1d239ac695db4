"""A whole version into a model, layer by layer, by vLLM's own reload; and what that leaves to be done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def load(model: torch.nn.Module, model_config: Any, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Returns when the model computes with `weights`, which are Hugging Face's names, whole. When it throws the model holds
    parts of two versions, and can be loaded again."""
    from vllm.model_executor.model_loader.mtp_validation import disable_mtp_completeness_check
    from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

    packed = _packed(model)
    initialize_layerwise_reload(model)
    try:
        with torch.no_grad(), disable_mtp_completeness_check():
            model.load_weights(iter(weights))
        finalize_layerwise_reload(model, model_config)
    except BaseException:
        _forget_what_was_read(model)
        finalize_layerwise_reload(model, model_config)
        raise
    _share_packed(model, packed)


def _forget_what_was_read(model: torch.nn.Module) -> None:
    """Layers that have not got all of their weights go back to those that they had, so that the next load starts with
    nothing of this one."""
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

    for layer in model.modules():
        info = get_layerwise_info(layer)
        if info.can_load():
            info.loaded_weights.clear()
            info.load_numel = 0


def _packed(model: torch.nn.Module) -> dict[torch.nn.Module, Any]:
    """The layers whose products vLLM's CPU build computes from a packed copy of their weight, and that copy."""
    return {layer: layer.cpu_linear for layer in model.modules() if hasattr(layer, "cpu_linear")}


def _share_packed(model: torch.nn.Module, before: dict[torch.nn.Module, Any]) -> None:
    """A head that is tied has the embedding's weight and a packed copy of its own, which the reload leaves as it was: it
    takes the one that was packed from the same weight now."""
    fresh: dict[int, Any] = {}
    left: list[torch.nn.Module] = []
    for layer, packed in _packed(model).items():
        weight = getattr(layer, "weight", None)
        if weight is None or weight.numel() == 0:
            continue
        if packed is not before.get(layer):
            fresh[weight.data_ptr()] = packed
        else:
            left.append(layer)
    for layer in left:
        packed = fresh.get(layer.weight.data_ptr())
        if packed is not None:
            layer.cpu_linear = packed
