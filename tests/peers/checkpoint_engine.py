"""Takes weights from our sender by the worker of checkpoint-engine, out of an unpacked wheel, and by SGLang's extension of it
where SGLang is installed.

The worker's code is the real one; checkpoint_engine_stub says what stands for CUDA.
Exit code 1 when anything differs.
"""
import argparse
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import torch
import zmq
from safetensors.torch import load_file, save_file

DEVICE = "GPU-0a1b2c3d-0000-1111-2222-333344445555"


def import_worker(wheel, folder):
    """The worker's module, and SGLang's extension of it or None."""
    sys.path.insert(0, str(pathlib.Path(__file__).parent / "checkpoint_engine_stub"))
    os.environ |= {"CHECKPOINT_ENGINE_WHEEL": str(wheel), "CHECKPOINT_ENGINE_BUFFER": str(folder / "buffer")}
    extension = None
    if importlib.util.find_spec("sglang") is not None:
        module = importlib.import_module("sglang.srt.checkpoint_engine.checkpoint_engine_worker")
        extension = module.SGLangCheckpointEngineWorkerExtension
    worker = importlib.import_module("checkpoint_engine.worker")
    assert worker.__file__.startswith(str(wheel)), worker.__file__
    return worker, extension


class Loaded:
    """Stands for a model."""

    def __init__(self, fails_at=None):
        self.tensors, self.buckets, self.finished, self.fails_at = {}, 0, 0, fails_at

    def load_weights(self, weights):
        if self.buckets == self.fails_at:
            raise KeyError("model.lm_head")
        self.buckets += 1
        self.tensors.update((name, tensor.clone()) for name, tensor in weights)

    def finish(self):
        self.finished += 1


class Push:
    """Our sender, at the worker's side of the call."""

    def __init__(self, program, directory, folder):
        self.process = subprocess.Popen([program, str(directory), str(folder / "buffer"), DEVICE], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = json.loads(next(line for line in self.process.stdout if line.startswith("{")))  # behind its log
        self.handles = said["zmq_handles"]
        assert list(self.handles) == [DEVICE]

    def call(self, update):
        """What the server does at its route; returns what it says of a failure."""
        try:
            update(self.handles)
            said = ""
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        if self.process.poll() is None:
            self.process.stdin.write(said.replace("\n", " ") + "\n")
        self.process.stdin.close()
        return said

    def end(self):
        errors = self.process.stderr.read()
        code = self.process.wait(60)
        return code, errors


def make_directory(folder):
    torch.manual_seed(5)
    tensors = {f"model.layers.{i}.weight": torch.randn(33, 17 + i).to([torch.float32, torch.bfloat16][i % 2])
               for i in range(24)}
    tensors |= {"model.scale": torch.tensor(1.5), "model.größe": torch.randn(3, 1, 5)}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text("{}")
    return load_file(folder / "model.safetensors")


def by_worker(worker, model):
    return lambda handles: worker.update_weights_from_ipc(
        zmq.Context.instance(), handles[DEVICE], device_id=1, run=model.load_weights, post_hook=model.finish)


def by_sglang(extension, model):
    class Extension(extension):
        def get_device_uuid(self):
            return DEVICE

        def get_device_id(self):
            return 1

        def get_model_loader(self):
            return model.load_weights

        def get_post_hook(self):
            return model.finish

    return Extension().update_weights_from_ipc


def check_load(start, updater, wanted, what):
    model = Loaded()
    push = start()
    assert push.call(updater(model)) == ""
    code, errors = push.end()
    assert code == 0, errors
    assert model.finished == 1 and model.buckets > 2, (model.finished, model.buckets)
    assert model.tensors.keys() == wanted.keys()
    for name, tensor in wanted.items():
        one = model.tensors[name]
        assert one.dtype == tensor.dtype and one.shape == tensor.shape and torch.equal(one, tensor), name
    print(f"  {what}: {len(wanted)} tensors equal, of {model.buckets} buckets", flush=True)


def check_failures(start, worker):
    stub = sys.modules["checkpoint_engine"]
    push = start()
    stub.fails = True
    said = push.call(by_worker(worker, Loaded()))
    code, errors = push.end()
    stub.fails = False
    assert code == 1 and "CUDA error: invalid resource handle" in said + errors and "sglang://here" in errors, (said, errors)
    model = Loaded(fails_at=1)
    push = start()
    said = push.call(by_worker(worker, model))
    code, errors = push.end()
    assert code == 1 and "model.lm_head" in errors and "sglang://here" in errors, (said, errors)
    assert model.buckets == 1 and model.finished == 0 and said
    print(f"  a load that fails: the sender says \"{errors.strip().splitlines()[-1]}\"", flush=True)


def check_kill(start, worker, before_open):
    """A worker of a sender that was killed is freed by the next one, wherever in its load it is."""
    model, ended = Loaded(), []
    push = start()
    waits = threading.Event()

    def kill():
        push.process.kill()
        push.process.wait()
        waits.set()

    def load_and_wait(weights):
        kill()
        Loaded.load_weights(model, weights)

    model.load_weights = load_and_wait
    if before_open:
        kill()
    call = threading.Thread(target=lambda: ended.append(push.call(by_worker(worker, model))))
    call.start()
    assert waits.wait(60)
    next_push = start()  # frees it before it says where to connect
    call.join(60)
    assert not call.is_alive() and ended[0], "the worker still waits"
    other = Loaded()
    assert next_push.call(by_worker(worker, other)) == ""
    assert next_push.end()[0] == 0 and other.finished == 1 and model.finished == 0
    where = "before it has sent anything" if before_open else "in a load"
    print(f"  a sender that is killed {where}: its worker raises \"{ended[0]}\", and the next load succeeds", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=pathlib.Path, required=True, help="an unpacked wheel of checkpoint-engine")
    parser.add_argument("--program", required=True, help="checkpoint_engine")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        worker, extension = import_worker(options.wheel.resolve(), folder)
        os.environ["TMPDIR"] = name  # where the sockets are
        directory = folder / "model"
        directory.mkdir()
        wanted = make_directory(directory)

        def start():
            return Push(options.program, directory, folder)

        check_load(start, lambda model: by_worker(worker, model), wanted, "checkpoint-engine's worker")
        if extension is not None:
            of = "SGLang " + importlib.metadata.version("sglang")
            check_load(start, lambda model: by_sglang(extension, model), wanted, of + "'s extension of it")
        check_failures(start, worker)
        check_kill(start, worker, before_open=True)
        check_kill(start, worker, before_open=False)
        left = [one.name for one in folder.iterdir() if one.name.startswith("tandem")]
        assert not left, left
    print("  ok", flush=True)


main()
