"""Failures of the plug-ins in a real server, ordered through a file: "before" a worker loads, or "inside" its load."""
import os
import pathlib


def _ordered(where):
    file = pathlib.Path(os.environ["TANDEM_FAULT"])
    if file.exists() and file.read_text() == where:
        file.unlink()
        return True
    return False


def _torn(weights):
    """In the middle of the layer whose query, key and value become one matrix, after others are loaded."""
    weights = list(weights)
    last = max(at for at, (name, _) in enumerate(weights) if "q_proj.weight" in name)
    yield from weights[:last + 1]
    raise RuntimeError("ordered inside the load")


def _fail_before():
    from tandem_sync.server.receiver import Receiver

    take = Receiver.take

    def failing_take(self, version):
        if _ordered("before"):
            raise RuntimeError("ordered before the load")
        take(self, version)

    Receiver.take = failing_take


def register_vllm():
    """An entry point of vLLM's, like the plug-in's own; each process that loads weights gets the wrapped functions."""
    from tandem_sync.vllm import reload

    load = reload.load
    if hasattr(load, "fails"):
        return

    def failing_load(model, model_config, weights):
        return load(model, model_config, _torn(weights) if _ordered("inside") else weights)

    failing_load.fails = True
    reload.load = failing_load
    _fail_before()


def register_sglang():
    """The same for SGLang, which calls it once in each process."""
    from tandem_sync.server.staging import Staging

    tensors = Staging.tensors
    made = set()

    def failing_tensors(self):
        # The first time it is the receiver that asks where the tensors lie.
        if id(self) in made and _ordered("inside"):
            return _torn(tensors(self))
        made.add(id(self))
        return tensors(self)

    Staging.tensors = failing_tensors
    _fail_before()
