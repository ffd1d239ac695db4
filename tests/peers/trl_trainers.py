"""TRL's trainers on CPU cores against a real vLLM, synced by tandem_sync.trl: GRPO on one rank, on two by DDP and FSDP2, with
an adapter, RLOO, AsyncGRPO, each into vLLM without our plug-in and, with --plugin, into its workers.

A run is right when TRL's own largest difference between the server's log-probs and the trainer's stays below 1e-5 at every
step, the server says that it has the last version, and its log-probs of a fixed text are the trainer's model's to 1e-5. Without
pushes after the first that difference must exceed 0.1. With --kills N a trainer is killed N times at a random moment and
resumed: versions go on, and no step sees a mixture. Exit code 1 when anything is wrong.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import plugin
from server_process import ServerProcess

HERE = pathlib.Path(__file__).resolve().parent
FSDP2 = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP"}
RUNS = {  # name: arguments of trl_run.py, ranks, environment
    "grpo": (["grpo"], 1, {}),
    "grpo, DDP": (["grpo"], 2, {}),
    "grpo, FSDP2": (["grpo", "--fsdp2"], 2, FSDP2),
    "grpo, adapter": (["grpo", "--peft"], 1, {}),
    "rloo": (["rloo"], 1, {}),
    "async": (["async"], 1, {}),
}
MAKE_MODEL = """
import pathlib, sys, torch, trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
vocabulary = {token: i for i, token in enumerate(["<pad>", "<eos>", "<bos>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}
tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")
tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]})
tokenizer.eos_token = "<|im_end|>"
# One of TRL's own, as its asynchronous trainer wants it.
tokenizer.chat_template = (pathlib.Path(trl.__file__).parent / "chat_templates/qwen3.jinja").read_text()
tokenizer.save_pretrained(sys.argv[1])
torch.manual_seed(0)
config = Qwen3Config(vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=32, max_position_embeddings=512, tie_word_embeddings=False,
                     eos_token_id=tokenizer.eos_token_id, pad_token_id=0, bos_token_id=2)
Qwen3ForCausalLM(config).float().save_pretrained(sys.argv[1])
"""


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", required=True, help="with vLLM, TRL 1.16, accelerate, datasets, peft")
    parser.add_argument("--library", required=True, help="libtandem_sync.so")
    parser.add_argument("--only", action="append", help="a run, or 'control'; may be repeated: " + ", ".join(RUNS))
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--port", type=int, default=8124)
    plugin.add_options(parser)
    return parser.parse_args()


class Runs:
    def __init__(self, options, folder):
        self.options, self.folder, self.failed = options, folder, False
        self.python = f"{options.venv}/bin/python"
        self.model = str(folder / "model")
        self.url = f"http://127.0.0.1:{options.port}"
        os.environ |= {"TANDEM_SYNC_LIBRARY": str(pathlib.Path(options.library).resolve()), "ACCELERATE_USE_CPU": "true"}
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(plugin.PACKAGES), os.environ.get("PYTHONPATH")]))
        subprocess.run([self.python, "-c", MAKE_MODEL, self.model], check=True, capture_output=True)

    def serve(self):
        command = [f"{self.options.venv}/bin/vllm", "serve", self.model, "--served-model-name", "model", self.model, "--host",
                   "127.0.0.1", "--port", str(self.options.port), "--max-model-len", "256", "--enforce-eager", "--dtype",
                   "float32", "--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1", "--gpu-memory-utilization",
                   "0.1", *(plugin.VLLM_ARGUMENTS if self.options.plugin else [])]
        return ServerProcess(command, self.url, open(self.folder / "server.log", "a"))

    def start(self, name, more=()):
        arguments, ranks, environment = RUNS[name]
        launch = [self.python] if ranks == 1 else [self.python, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks)]
        output = self.folder / name.replace(", ", "-")
        self.log = open(self.folder / (output.name + ".log"), "w+")
        return subprocess.Popen([*launch, str(HERE / "trl_run.py"), *arguments, "--model", self.model, "--url", self.url,
                                 "--output", str(output), *more], env=os.environ | environment, stdout=self.log,
                                stderr=subprocess.STDOUT, start_new_session=True)

    def report(self, process, limit=300):
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        self.log.seek(0)
        lines = [line for line in self.log if line.startswith("REPORT ")]
        if not lines:
            sys.exit(f"a run failed: {self.log.name}")
        return json.loads(lines[-1][7:])

    def expect(self, what, holds):
        print(what + ("" if holds else ": WRONG"), flush=True)
        self.failed = self.failed or not holds

    def check(self, name, report):
        text, right = f"{name}: {report['steps']} steps", report["served"] == str(report["version"])
        if report["differences"]:  # RLOO and AsyncGRPO do not say it
            most = max(report["differences"])
            right = right and most < 1e-5
            text += f", log-probs differ by {most:.1e} at most"
        if "text" in report:
            right = right and report["text"] < 1e-5
            text += f", of a fixed text by {report['text']:.1e}"
        if report["ratios"]:
            right = right and abs(report["ratios"][0] - 1) < 1e-6  # a mean in float32
            text += f", first ratio {report['ratios'][0]}"
        self.expect(f"{text}; version {report['version']}, the server says {report['served']}", right)

    def control(self):
        report = self.report(self.start("grpo", ["--skip"]))
        most = max(report["differences"][1:])
        self.expect(f"without pushes after the first: log-probs differ by {most:.2f}", most > 0.1)

    def kills(self):
        moments = random.Random(1)
        version = 0
        for number in range(1, self.options.kills + 1):
            output = self.folder / "grpo"
            shutil.rmtree(output, ignore_errors=True)
            trainer = self.start("grpo", ["--steps", "400", "--save-steps", "1"])
            while not list(output.glob("checkpoint-*/tandem_sync.json")):
                if trainer.poll() is not None:
                    self.report(trainer)
                time.sleep(0.05)
            time.sleep(moments.uniform(0, 1.5))
            os.killpg(trainer.pid, signal.SIGKILL)
            trainer.wait()
            step = max(int(path.name.rpartition("-")[2]) for path in output.glob("checkpoint-*"))
            report = self.report(self.start("grpo", ["--steps", str(step + 4), "--save-steps", "1", "--resume"]))
            self.check(f"kill {number}, resumed at step {step}", report)
            self.expect(f"  versions went on from {version} to {report['version']}", report["version"] > version)
            version = report["version"]

    def all(self):
        subprocess.run([self.python, str(HERE / "trl_install.py")], check=True)
        wanted = self.options.only or ["control", *RUNS]
        for name in wanted:
            server = self.serve()  # each with the model's own weights, and no version
            try:
                self.control() if name == "control" else self.check(name, self.report(self.start(name)))
            finally:
                server.stop()
        if self.options.kills:
            server = self.serve()
            try:
                self.kills()
            finally:
                server.stop()
        if self.failed:
            sys.exit(f"FAILED; logs are in {self.folder}")
        shutil.rmtree(self.folder)
        print("ok")


if __name__ == "__main__":
    options = parsed()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trl."))
    plugin.use(options, folder)
    Runs(options, folder).all()
