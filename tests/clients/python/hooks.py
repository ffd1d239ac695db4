"""Our hooks in an SGLang scheduler and in vLLM's workers, over stand-ins: whatever a client sends and whatever fails below them,
they answer, since SGLang ends its server at an exception and vLLM confuses all later answers."""
import dataclasses
import sys
import tempfile
import types

import torch

RUBBISH = ["x", "", None, [], {}, [1], {"a": 1}, float("inf"), float("nan"), "1e3", "٣x", object()]


def expect(holds, what):
    if not holds:
        sys.exit(f"wrong: {what}")


@dataclasses.dataclass
class Answer:
    success: bool
    message: str


@dataclasses.dataclass
class Told:
    updated: bool


class Request:
    def __init__(self, **fields):
        self.__dict__.update(fields)


def stand_in(**modules):
    for name, contents in modules.items():
        name = name.replace("__", ".")
        module = sys.modules[name] = types.ModuleType(name)
        module.__dict__.update(contents)
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], leaf, module)


def sglang(folder):
    group = types.SimpleNamespace(world_size=1, rank_in_group=0)
    stand_in(sglang={}, sglang__srt={}, sglang__srt__managers={}, sglang__srt__distributed={},
             sglang__srt__managers__io_struct={"SetInternalStateReqOutput": Told, "UpdateWeightsFromTensorReqOutput": Answer,
                                               "PauseGenerationReqInput": Request},
             sglang__srt__distributed__parallel_state={"get_world_group": lambda: group})
    from tandem_sync.sglang import hooks
    from tandem_sync.sglang.worker import LOADER, REFUSED, TORN

    refused = []
    scheduler = types.SimpleNamespace(
        server_args=types.SimpleNamespace(custom_weight_loader=[LOADER], model_path=folder, pp_size=1, dp_size=1),
        model_config=types.SimpleNamespace(revision=None), pause_generation=refused.append)
    hooks.made(None, types.SimpleNamespace())  # no server_args
    expect(hooks._worker is None, "a scheduler of another make")
    hooks.made(None, scheduler)
    worker = hooks._worker
    expect(worker is not None and folder in worker._failure, "a server without files has a worker that says so")
    original = lambda *_: "theirs"
    for note in RUBBISH:
        answer = hooks.told(original, scheduler, Request(server_args={hooks.NOTE: note}))
        expect(answer == Told(updated=False), f"the note {note!r}")
    expect(hooks.told(original, scheduler, Request(server_args={hooks.NOTE: "7"})) == Told(True) and worker._note == 7, "a note")
    for server_args in (None, [], "x", {}, {"other": 1}):
        expect(hooks.told(original, scheduler, Request(server_args=server_args)) == "theirs", f"{server_args!r} is SGLang's")

    class Broken:
        address = "unix-abstract:x"

        def data_plane(self):
            raise RuntimeError("no more descriptors")

        def take(self, version):
            pass

        def give_back(self):
            pass

    worker._failure, worker._receiver = "", Broken()
    state = hooks.asked(types.SimpleNamespace(internal_state={})).internal_state["tandem"]
    expect(state["receiver"] == "" and "no more descriptors" in state["failure"], "a receiver that cannot say where it is")
    result = types.SimpleNamespace()  # without internal_state
    expect(hooks.asked(result) is result, "an answer of another make")

    def update(version, original, load_format=LOADER):
        return hooks.update(original, types.SimpleNamespace(_session=1, flush_cache=lambda **_: True),
                            Request(load_format=load_format, weight_version=version))

    expect(update("1", original, "auto") == "theirs", "an update that is not ours")
    for version in ("x", "1.5", "1e3"):
        answer = update(version, original)
        expect(not answer.success and answer.message.startswith(REFUSED), f"version {version!r}")

    def fails(*_):
        raise KeyError("theirs")

    answer = update("2", fails)
    expect(not answer.success and answer.message.startswith(REFUSED) and "theirs" in answer.message and not refused,
           "an update that SGLang fails before it loads")
    worker._staging = types.SimpleNamespace(tensors=lambda: [])

    def half(*_):
        try:
            hooks.load(types.SimpleNamespace(load_weights=fails))
        finally:
            worker._touched = True

    answer = update("3", half)
    expect(not answer.success and answer.message.startswith(TORN) and len(refused) == 1 and not worker._whole, "a torn load")


def vllm():
    class Worker:
        pass

    base = type("WeightTransferEngine", (), {"__class_getitem__": classmethod(lambda cls, _: cls)})
    stand_in(vllm={}, vllm__distributed={}, vllm__distributed__weight_transfer={}, vllm__v1={}, vllm__v1__worker={},
             vllm__distributed__parallel_state={"get_world_group": None},
             vllm__distributed__weight_transfer__base={"WeightTransferEngine": base, "WeightTransferInitInfo": object,
                                                       "WeightTransferUpdateInfo": object},
             vllm__logger={"init_logger": lambda name: __import__("logging").getLogger(name)},
             vllm__v1__worker__worker_base={"WorkerBase": Worker})
    sys.modules["tandem_sync.vllm.reload"] = types.SimpleNamespace(load=None)
    from tandem_sync.vllm.engine import TandemWeightTransferEngine, _tandem_state

    for worker in (Worker(), types.SimpleNamespace(weight_transfer_engine=None)):
        state = _tandem_state(worker)
        expect(state["failure"] != "" and not state["whole"] and state["receiver"] == "", "a worker of another backend")
    engine = TandemWeightTransferEngine.__new__(TandemWeightTransferEngine)
    engine.__dict__.update({"_receiver": None, "_staging": None, "_whole": True, "_version": 3, "_note": "", "_load_ms": 0.0,
                        "_open": False, "_failure": "", "parallel_config": types.SimpleNamespace(rank=0)})
    worker = types.SimpleNamespace(weight_transfer_engine=engine)
    expect(_tandem_state(worker, "paused")["note"] == "paused", "a note")
    for note in RUBBISH[2:]:
        expect(isinstance(_tandem_state(worker, note)["note"], str), f"the note {note!r}")
    expect(_tandem_state(worker, "a", "b", other=1)["version"] == 3, "more arguments than there are")


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        sglang(folder)
    vllm()
    print("hooks: ok")


if __name__ == "__main__":
    main()
