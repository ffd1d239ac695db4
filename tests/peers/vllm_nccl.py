"""tandem-train with a real vLLM on the CPU whose backend is "sparse_nccl" or "nccl", from an emulated GPU.

The server's workers have no NCCL: their communicator is replaced by one that speaks the emulated GPU's (tests/emulated_gpu,
over sockets), and linear layers compute with the parameters themselves, of which the CPU keeps packed copies otherwise; a GPU
keeps none. All else is vLLM's own: its update calls, its reading of patches, its loaders of fused and of plain weights.
After a run its parameters must be, bit by bit, those of a server that is started on the run's checkpoint, and the log-probs
of all samples the trainer's. Exit code 1 when anything differs.
"""
import argparse
import json
import pathlib
import re
import tempfile

import plugin
import train_run
import vllm_server

JOINS = '''
import contextlib, socket, struct
import torch

class Group:
    """Rank 1 of 2."""
    device = torch.device("cpu")

    def __init__(self, unique_id, rank, world_size):
        assert (rank, world_size) == (1, 2), (rank, world_size)
        name = b"\\0" + unique_id[:unique_id.index(0)] + b".0"
        self.peer = socket.socket(socket.AF_UNIX)
        self.peer.connect(name)
        self.peer.sendall(struct.pack("i", rank))
        self.peer.sendall(bytes(4))  # what it sums, as from_unique_id_bytes does
        self.receive(torch.empty(4, dtype=torch.uint8))

    def receive(self, tensor):
        view = memoryview(tensor.view(-1).view(torch.uint8).numpy())
        while len(view):
            count = self.peer.recv_into(view)
            assert count > 0, "rank 0 has left"
            view = view[count:]

    def broadcast(self, tensor, src, stream=None):
        assert src == 0
        self.receive(tensor)

    def destroy(self):
        self.peer.close()

class Stream:
    def synchronize(self):
        pass

    def wait_event(self, event):
        pass

class Event:
    def record(self, stream):
        pass

def register():
    from vllm.distributed.weight_transfer import nccl_common, packed_tensor
    nccl_common.uid_init_process_group = lambda unique_id, rank, size, device: Group(unique_id, rank, size)
    packed_tensor._get_streams = lambda device, count: (Stream(),) * count
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.device_index = lambda index: contextlib.nullcontext()
    torch.cuda.current_stream = torch.accelerator.current_stream = lambda device=None: Stream()
    torch.Event = Event
    torch.Tensor.record_stream = lambda tensor, stream: None
    torch.cuda.stream = lambda stream: contextlib.nullcontext()
    from vllm.model_executor.layers import utils
    def plain(layer, remove_weight):
        layer.cpu_linear = torch.nn.functional.linear
    utils.dispatch_cpu_unquantized_gemm = plain
'''


def train(options, *values):
    return train_run.train(options.train, *values, TANDEM_EMULATED_GPUS="1", TANDEM_LOG="debug")


def digests(server):
    answer = server.post("/collective_rpc", {"method": "compute_weight_checksums"})
    assert len(answer["results"]) == 1, answer
    return answer["results"][0]


def digests_of_a_server_of(options, directory, log):
    options.serve_option = []
    server = vllm_server.Server(options, directory, log)
    try:
        return digests(server)
    finally:
        server.stop()


def check(options, backend, folder, made, log):
    options.serve_option = ["--weight-transfer-config", '{"backend":"%s"}' % backend, "--no-enable-chunked-prefill",
                            "--logprobs-mode", "processed_logprobs", "--enable-scale-out"]
    server = vllm_server.Server(options, made, log)
    try:
        before = digests(server)
        for rate in options.rates:
            name = f"{backend}-{rate}"
            said = train(options, f"output={folder}", f"name={name}", f"model.path={made}", "sft.steps=0",
                         f"grpo.steps={options.steps}", f"train.lr={rate}", f"engine.url={server.url.replace('http', 'vllm')}")
            apart = json.loads((folder / name / "summary.json").read_text())["logprob_max_abs_diff"]
            assert apart < 1e-3, apart
            assert server.weight_version() == str(options.steps + 1) and not server.paused(), said
            yield name, before, digests(server), said, apart
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", required=True, help="the command")
    parser.add_argument("--train", required=True, help="tandem-train, of a build with tests")
    parser.add_argument("--tokenizer", required=True, help="a directory with one")
    parser.add_argument("--backends", nargs="*", default=["sparse_nccl", "nccl"])
    parser.add_argument("--rates", nargs="*", default=["1e-3", "1e-8"], help="of learning: the lower, the fewer elements change")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--port", type=int, default=30416)
    options = parser.parse_args()
    options.model, options.dtype = None, "float32"
    with tempfile.TemporaryDirectory() as name, \
            open(pathlib.Path(tempfile.gettempdir()) / "vllm_nccl.log", "w") as log:
        folder = pathlib.Path(name)
        train(options, f"output={folder}", "name=made", "sft.steps=20", "grpo.steps=0", "model.heads=2", "model.kv_heads=1",
              "model.head_dim=32", "model.context=128", "model.tie_embeddings=false")
        with plugin.in_workers(folder, "joins_emulated", JOINS):
            for backend in options.backends:
                for run, before, after, said, apart in check(options, backend, folder, folder / "made" / "checkpoint", log):
                    options.port += 1
                    wanted = digests_of_a_server_of(options, folder / run / "checkpoint", log)
                    options.port -= 1
                    assert after.keys() == wanted.keys() and after != before, run
                    differ = [one for one in wanted if wanted[one] != after[one]]
                    assert not differ, (run, differ)
                    sent = re.findall(r"(\d+) elements were sent", said)
                    print(f"  {run}: {len(wanted)} parameters bit-equal to a fresh server's, log-probs to {apart:.1e}"
                          + (f"; elements sent: {', '.join(sent)}" if sent else ""), flush=True)
    print("  ok")


main()
