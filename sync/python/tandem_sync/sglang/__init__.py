"""Tandem inside an SGLang server: its custom weight loader `tandem_sync.sglang.load`.

    python -m sglang.launch_server --model-path DIR --custom-weight-loader tandem_sync.sglang.load
    tandem-sync push --model NEW --to sglang://HOST:PORT

SGLang finds `register` by the entry point sglang.srt.plugins. Nothing of SGLang is imported before it calls.
"""

from __future__ import annotations

from typing import Any

SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
UPDATES = "sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager"


def register() -> None:
    """Called by SGLang in each of its processes. Servers without our loader go on as if it had not been."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from . import hooks

    HookRegistry.register(f"{SCHEDULER}.__init__", hooks.made, HookType.AFTER)
    HookRegistry.register(f"{SCHEDULER}.get_internal_state", hooks.asked, HookType.AFTER)
    HookRegistry.register(f"{SCHEDULER}.set_internal_state", hooks.told, HookType.AROUND)
    HookRegistry.register(f"{UPDATES}.update_weights_from_tensor", hooks.update, HookType.AROUND)


def load(model: Any, named_tensors: Any) -> None:
    """SGLang's custom weight loader: the staged version, into `model`. `named_tensors` is empty."""
    from . import hooks

    hooks.load(model)
