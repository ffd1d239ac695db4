"""Failures of the plug-in in a real server, ordered through a file: "before" a worker loads, or "inside" its load."""
import os
import pathlib


def _ordered(where):
    file = pathlib.Path(os.environ["TANDEM_FAULT"])
    if file.exists() and file.read_text() == where:
        file.unlink()
        return True
    return False


def register():
    """An entry point of vLLM's, like the plug-in's own; each process that loads weights gets the wrapped functions."""
    from tandem_vllm import receiver, reload

    take, load = receiver.Receiver.take, reload.load
    if hasattr(load, "fails"):
        return

    def failing_take(self, version):
        if _ordered("before"):
            raise RuntimeError("ordered before the load")
        take(self, version)

    def failing_load(model, model_config, weights):
        if not _ordered("inside"):
            return load(model, model_config, weights)
        return load(model, model_config, torn(list(weights)))

    def torn(weights):
        # In the middle of the layer whose query, key and value become one matrix, after others are loaded.
        last = max(at for at, (name, _) in enumerate(weights) if "q_proj.weight" in name)
        yield from weights[:last + 1]
        raise RuntimeError("ordered inside the load")

    failing_load.fails = True
    receiver.Receiver.take, reload.load = failing_take, failing_load
