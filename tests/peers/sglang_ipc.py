"""Loads weights into a real SGLang on the CPU through its /update_weights_from_ipc, from our sender.

SGLang, and checkpoint-engine's worker in it, are the published ones; what stands for CUDA in the worker is said by
checkpoint_engine_stub. What the server then says must be what transformers says of those weights. Exit code 1 when
anything differs.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import urllib.error

import vllm_models
from sglang_server import Server

DEVICE = "GPU-0a1b2c3d-0000-1111-2222-333344445555"


class Sender:
    """Our sender of a directory's weights, and the call that it is the other half of."""

    def __init__(self, options, directory, folder):
        self.process = subprocess.Popen([options.program, str(directory), os.environ["CHECKPOINT_ENGINE_BUFFER"], DEVICE],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.handles = json.loads(next(line for line in self.process.stdout if line.startswith("{")))["zmq_handles"]

    def call(self, server, version, handles=None):
        body = dict(zmq_handles=handles or self.handles, flush_cache=True, weight_version=str(version))
        try:
            said = server.post("/update_weights_from_ipc", body)
        except urllib.error.HTTPError as error:
            said = json.load(error)
        returned = "" if said["success"] else said["message"].replace("\n", " ")
        errors = self.process.communicate(returned, timeout=60)[1]
        return self.process.returncode, said, errors


def check_killed(options, server, directory, folder):
    """The server's call of a sender that was killed returns when there is another."""
    killed = Sender(options, directory, folder)
    killed.process.kill()
    killed.process.wait()
    said = []
    call = threading.Thread(target=lambda: said.append(killed.call(server, 99)))
    call.start()
    call.join(2)
    assert call.is_alive(), said
    other = Sender(options, directory, folder)
    call.join(60)
    assert not call.is_alive() and not said[0][1]["success"], said
    other.process.kill()
    other.process.wait()
    print(f"  a sender that is killed: the server's call ends with the next, \"{said[0][1]['message']}\"", flush=True)


def check(options, folder, version_of_wheel):
    os.environ["CHECKPOINT_ENGINE_WHEEL"] = str((options.wheels / version_of_wheel).resolve())
    os.environ["CHECKPOINT_ENGINE_BUFFER"] = str(folder / "buffer")
    directories, wanted = vllm_models.make_models(options, folder / version_of_wheel)
    worst = 0
    with open(folder / "server.log", "w") as log:
        server = Server(options, directories[0], log)
        try:
            worst = max(worst, vllm_models.apart(server.ask(), wanted[0]))
            for version in range(1, options.loads + 1):
                which = version % len(directories)
                code, said, errors = Sender(options, directories[which], folder).call(server, version)
                assert code == 0 and said["success"], (version, said, errors, (folder / "server.log").read_text()[-3000:])
                assert server.weight_version() == str(version)
                worst = max(worst, vllm_models.apart(server.ask(), wanted[which]))
            before = server.ask()
            check_killed(options, server, directories[0], folder)
            assert server.ask() == before
            sender = Sender(options, directories[0], folder)
            other = {"GPU-of-somebody-else": next(iter(sender.handles.values()))}
            code, said, errors = sender.call(server, 99, other)
            assert code == 1 and not said["success"] and "GPU-of-somebody-else" in errors, (code, said, errors)
            assert server.ask() == before and server.weight_version() == str(options.loads)
        finally:
            server.stop()
        logged = (folder / "server.log").read_text()
        assert "Post-hook processing failed" not in logged, logged[-3000:]
    assert worst < 1e-3, worst
    print(f"  checkpoint-engine {version_of_wheel}: {options.loads} loads, log-probs to {worst:.1e} of transformers'; a call "
          f"for another GPU: \"{errors.strip().splitlines()[-1]}\"", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="of an environment with SGLang")
    parser.add_argument("--program", required=True, help="checkpoint_engine")
    parser.add_argument("--wheels", type=pathlib.Path, required=True, help="folder of unpacked wheels")
    parser.add_argument("--versions", nargs="*", default=["0.1.2", "0.4.2"], help="of checkpoint-engine")
    parser.add_argument("--family", default="qwen3", choices=["llama", "qwen2", "qwen3"])
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--loads", type=int, default=6)
    parser.add_argument("--port", type=int, default=30523)
    options = parser.parse_args()
    options.model, options.models, options.dtype = None, 3, "float32"
    options.server, options.serve_option = None, []
    with tempfile.TemporaryDirectory() as name:
        os.environ["TMPDIR"] = name
        for version in options.versions:
            (pathlib.Path(name) / version).mkdir()
            check(options, pathlib.Path(name), version)
    print("  ok")


if __name__ == "__main__":
    main()
