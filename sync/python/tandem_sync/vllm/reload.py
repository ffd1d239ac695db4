"""A whole version into a model, layer by layer, by vLLM's own reload; and what that leaves to be done.

vLLM's reload makes each layer anew in fresh memory and then copies it over the one that serves. For an embedding, the largest
tensor of most small models, every load then touches that much memory for the first time, which is slow. One that serves in the
form that checkpoints have is therefore written where it lies, by the same loader of vLLM's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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
        with torch.no_grad(), disable_mtp_completeness_check(), _embeddings_in_place(model):
            model.load_weights(iter(weights))
        finalize_layerwise_reload(model, model_config)
    except BaseException:
        _forget_what_was_read(model)
        finalize_layerwise_reload(model, model_config)
        raise
    _share_packed(model, packed)


@contextmanager
def _embeddings_in_place(model: torch.nn.Module) -> Iterator[None]:
    """Within, vLLM's loaders write to the embeddings that serve; at its end those that were written are processed."""
    from vllm.model_executor.model_loader.reload.layerwise import _place_kernel_tensors, get_layerwise_info

    loaders: dict[torch.nn.Parameter, Any] = {}  # once where a tied head has the embedding's parameter
    written: dict[torch.nn.Parameter, torch.nn.Module] = {}
    for layer in model.modules():
        info = get_layerwise_info(layer)
        if not info.can_load() or not _kept_as_loaded(layer, info):
            continue
        _place_kernel_tensors(layer, info)
        info.reset()
        if layer.weight not in loaders:
            loaders[layer.weight] = layer.weight.weight_loader
            layer.weight.weight_loader = _noting(written, layer, layer.weight.weight_loader)
    try:
        yield
    finally:
        for parameter, loader in loaders.items():
            parameter.weight_loader = loader
    for layer in written.values():
        layer.quant_method.process_weights_after_loading(layer)


def _kept_as_loaded(layer: torch.nn.Module, info: Any) -> bool:
    """Whether a layer is an embedding, or a head, whose one parameter serves in the form that checkpoints have."""
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod, VocabParallelEmbedding

    if not isinstance(layer, VocabParallelEmbedding) or type(layer.quant_method) is not UnquantizedEmbeddingMethod:
        return False
    (serving, buffers), (loadable, loadable_buffers) = info.kernel_tensors, info.restore_metadata
    if serving.keys() != {"weight"} or loadable.keys() != {"weight"} or buffers or loadable_buffers:
        return False
    ours, theirs = serving["weight"], loadable["weight"]
    return (hasattr(ours, "weight_loader")
            and (ours.shape, ours.dtype, ours.stride()) == (theirs.shape, theirs.dtype, theirs.stride()))


def _noting(written: dict[torch.nn.Parameter, torch.nn.Module], layer: torch.nn.Module, loader: Any) -> Any:
    def load(parameter: torch.nn.Parameter, *args: Any, **kwargs: Any) -> Any:
        written[parameter] = layer
        return loader(parameter, *args, **kwargs)

    return load


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
