"""FSDP2 puts gathered copies of parameters, of another dtype maybe, in their place in the modules, from a forward until the
backward and for as long as it is told to: the root's after a forward without one, everything after `unshard()`. Theirs is what
has been computed with; the weights are the sharded parameters, which it keeps."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from ._errors import InvalidError
from ._shard import address_of


def fsdp_params(modules: Iterable[Any]) -> Iterator[Any]:
    """FSDP2's own records of the parameters that it shards, of each module that it was applied to."""
    for module in modules:
        get = getattr(module, "_get_fsdp_state", None)
        if get is None:
            continue
        state = get()
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:  # torch 2.6
            groups = [state._fsdp_param_group] if state._fsdp_param_group is not None else []
        for group in groups:
            yield from group.fsdp_params


def named_parameters(model: Any) -> Iterator[tuple[str, Any]]:
    """The model's, tied ones once, as they are while nothing is gathered."""
    modules = getattr(model, "modules", tuple)
    weights = {id(copy): weight for copy, weight in _standing(modules())}
    for name, parameter in model.named_parameters():
        yield name, weights.get(id(parameter), parameter)


def require_no_copies(items: Iterable[tuple[str, Any]]) -> None:
    """Raises InvalidError naming a tensor that is such a copy, or lies where one does, of whichever model of this process."""
    states = sys.modules.get("torch.distributed._composable_state")
    standing = _standing(list(getattr(states, "_module_state_mapping", ())))
    copies = {address_of(copy) for copy, weight in standing if address_of(copy) not in (0, address_of(weight))}
    for name, tensor in items:
        if address_of(tensor) in copies:
            raise InvalidError(f"'{name}' is FSDP2's gathered copy, not the weight: publish the model, or its named_parameters() "
                               "after reshard()", 1)


def _standing(modules: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """What stands in a module in a sharded parameter's place, and that parameter."""
    for one in fsdp_params(modules):
        copy = one._module_info.module._parameters.get(one._module_info.param_name)
        if copy is not None and copy is not one.sharded_param:
            yield copy, one.sharded_param
