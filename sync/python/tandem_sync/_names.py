"""Names of parameters as engines know them: Hugging Face's."""

from __future__ import annotations

WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


def hf(name: str) -> str | None:
    """A parameter's name without what torch.compile, FSDP, DDP and activation checkpointing put around it. For models whose
    modules are named as in Hugging Face's transformers; for others give `publish` a function of your own, which may answer
    None for parameters that engines do not hold.

    >>> tandem_sync.hf("_orig_mod.model.layers.0._checkpoint_wrapped_module.mlp.up_proj.weight")
    'model.layers.0.mlp.up_proj.weight'
    >>> tandem_sync.hf("module._orig_mod.lm_head.weight")
    'lm_head.weight'
    """
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name.removeprefix("module.")
