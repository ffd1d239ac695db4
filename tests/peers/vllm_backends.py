"""Pushes into a real vLLM on the CPU by its backends "ipc", "nccl" and "sparse_nccl", from an emulated GPU; a build with tests has one.

As it is, the server reaches neither such memory nor such a group: it must say so, and go on with the weights that it has.
With PyTorch's opening of an IPC handle replaced in its worker by one that maps the emulated GPU's memory, pushes by "ipc"
run to their end, and what it then says must be what transformers says of those weights. Exit code 1 when anything differs.
"""
import argparse
import contextlib
import pathlib
import tempfile

import plugin
import tandem_push
import vllm_models
import vllm_server

SAYS = {
    "ipc": ["does not open memory of cuda:0", "VLLM_ALLOW_INSECURE_SERIALIZATION=1"],
    "nccl": ["/init_weight_transfer_engine"],
    "sparse_nccl": ["/init_weight_transfer_engine"],
}

# In the worker: memory of an emulated GPU, by its handle (tests/emulated_gpu/export.cpp), as if it were one's own GPU's.
OPENS = '''
import mmap, os, struct, types
import torch

def new_shared_cuda(cls, device, handle, size, offset, *rest):
    magic, bytes_, inode, pid, fd = struct.unpack_from("<QQQii", handle)
    file = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR)
    memory = mmap.mmap(file, bytes_)
    os.close(file)
    return torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=offset).untyped_storage()

def register():
    torch.UntypedStorage._new_shared_cuda = classmethod(new_shared_cuda)
    torch.cuda._lazy_init = lambda: None
    torch.cuda.get_device_properties = lambda index: types.SimpleNamespace(uuid="gpu 0")
'''


def push(options, server, directory, gpus):
    done = tandem_push.run(options.program, directory, server.target, "--deadline", "60", TANDEM_EMULATED_GPUS=str(gpus))
    return done.returncode, done.stdout + done.stderr


@contextlib.contextmanager
def serving(options, backend, directory):
    options.serve_option = ["--weight-transfer-config", '{"backend":"%s"}' % backend]
    with open(pathlib.Path(tempfile.gettempdir()) / f"vllm_backends_{backend}.log", "w") as log:
        server = vllm_server.Server(options, directory, log)
        try:
            yield server
        finally:
            server.stop()


def check_refusals(options, backend, directories, wanted):
    with serving(options, backend, directories[0]) as server:
        before = server.ask()
        vllm_models.apart(before, wanted[0])
        for gpus, says in [(0, ["cuda:0 is not there"]), (1, SAYS[backend]), (1, SAYS[backend])]:
            code, said = push(options, server, directories[1], gpus)
            assert code == 1 and all(words in said for words in says), (backend, gpus, code, said)
            assert not server.paused() and server.weight_version() == "default", (backend, gpus, said)
            assert server.ask() == before, (backend, gpus)
        print(f"  {backend}: refused by name three times, serves on", flush=True)


def check_pushes(options, directories, wanted):
    worst = 0
    with serving(options, "ipc", directories[0]) as server:
        for version in range(1, options.pushes + 1):
            which = version % len(directories)
            code, said = push(options, server, directories[which], 1)
            assert code == 0, (version, said)
            assert not server.paused() and server.weight_version() == str(version), (version, said)
            worst = max(worst, vllm_models.apart(server.ask(), wanted[which]))
    assert worst < 1e-3, worst
    print(f"  ipc: {options.pushes} pushes, log-probs to {worst:.1e} of transformers'", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", required=True, help="the command")
    parser.add_argument("--program", required=True, help="tandem-sync, of a build with tests")
    parser.add_argument("--tokenizer", required=True, help="a directory with one")
    parser.add_argument("--family", default="qwen3", choices=["llama", "qwen2", "qwen3"])
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--refuse", nargs="*", default=list(SAYS), choices=list(SAYS), help="backends to see refuse")
    parser.add_argument("--pushes", type=int, default=10)
    parser.add_argument("--port", type=int, default=30412)
    options = parser.parse_args()
    options.model, options.models, options.dtype = None, 3, "float32"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        directories, wanted = vllm_models.make_models(options, folder)
        for backend in options.refuse:
            check_refusals(options, backend, directories, wanted)
        with plugin.in_workers(folder, "opens_emulated", OPENS):
            check_pushes(options, directories, wanted)
    print("  ok")


main()
