"""The same GRPO steps three ways on the cores of this machine: tandem-train with its engine, TRL with its own generation, TRL with a
vLLM server that Tandem keeps in step. The model, prompts, samples a prompt, learning rate, temperature are the same; the model's
end token is one that it never says, so that all completions have the same length. bf16 products over weights in fp32.

In the peers' favour: vLLM and the trainer of TRL compute in turns, each with all cores; --batch is the largest that was faster for
TRL (8, 16, 32 were tried); the first step of each side does not count.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tests/peers"))
from server_process import ServerProcess  # noqa: E402

SIDES = ("tandem-train", "TRL", "TRL, vLLM, Tandem")
UNUSED = 3  # SmolLM2's <repo_name>


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", required=True, help="scripts/vllm_environment.sh VENV trl==1.16.0 accelerate datasets")
    parser.add_argument("--bin", required=True, help="folder of tandem-train, with libtandem_sync.so in ../lib")
    parser.add_argument("--model", required=True, help="SmolLM2's directory")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32, help="of each completion")
    parser.add_argument("--batch", type=int, default=16, help="completions that TRL computes at once")
    parser.add_argument("--only", action="append", choices=SIDES)
    parser.add_argument("--port", type=int, default=8132)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def endless(model, to):
    """The same model, whose end token is one that it does not say."""
    to.mkdir()
    for file in pathlib.Path(model).resolve().iterdir():
        if file.name in ("config.json", "generation_config.json"):
            (to / file.name).write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": UNUSED}))
        elif file.name == "tokenizer_config.json":
            (to / file.name).write_text(file.read_text().replace("<|im_end|>", "<repo_name>"))  # in the template, too
        else:
            (to / file.name).symlink_to(file)


class Sides:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.model, self.prompts = folder / "model", folder / "prompts.jsonl"
        endless(options.model, self.model)
        lines = (ROOT / "examples/smollm2/prompts.jsonl").read_text().splitlines()
        self.prompts.write_text("\n".join(lines[:options.prompts]) + "\n")
        self.held_out = folder / "held_out.jsonl"
        self.held_out.write_text(lines[-1] + "\n")
        self.python = f"{options.venv}/bin/python"

    def tandem_train(self):
        o = self.options
        keys = {"run.name": "compare", "run.output": self.folder / "runs", "model.path": self.model, "grpo.steps": o.steps + 1,
                "grpo.prompts": o.prompts, "grpo.samples": o.samples, "grpo.max_new_tokens": o.tokens, "grpo.evaluate_every": 0,
                "data.prompts": self.prompts, "data.held_out_file": self.held_out, "data.held_out": 1}
        sets = [word for key, value in keys.items()
                for word in ("--set", f"{key}={json.dumps(str(value)) if isinstance(value, pathlib.Path) else value}")]
        self.run("tandem-train", [f"{o.bin}/tandem-train", str(ROOT / "examples/smollm2/smollm2.toml"), *sets], {})
        metrics, = self.folder.glob("runs/**/metrics.jsonl")
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        return [{"seconds": line["ms"] / 1000, "generate": line["generate_ms"] / 1000, "sync": line["sync_ms"]["total"] / 1000,
                 "tokens": round(line["response_length_mean"] * o.prompts * o.samples), "reward": line["reward"],
                 "differs": line["logprob_max_abs_diff"]} for line in lines if line["phase"] == "grpo"]

    def trl(self, *more):
        o = self.options
        library = pathlib.Path(o.bin).resolve().parent / "lib/libtandem_sync.so"
        environment = {"PYTHONPATH": str(ROOT / "sync/python"), "TANDEM_SYNC_LIBRARY": str(library), "HF_HUB_OFFLINE": "1",
                       "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}
        log = self.run("trl", [self.python, str(HERE / "trl_grpo.py"), "--model", str(self.model), "--prompts", str(self.prompts),
                               "--steps", str(o.steps + 1), "--samples", str(o.samples), "--tokens", str(o.tokens), "--batch",
                               str(o.batch), "--output", str(self.folder / "trl"), *more], environment)
        return json.loads([line for line in log.splitlines() if line.startswith("STEPS ")][-1][6:])

    def trl_vllm(self):
        url = f"http://127.0.0.1:{self.options.port}"
        environment = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_TARGET_DEVICE": "cpu",
                       "VLLM_CPU_KVCACHE_SPACE": "1", "CUDA_VISIBLE_DEVICES": "", "VLLM_SERVER_DEV_MODE": "1",
                       "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        with open(self.folder / "vllm.log", "w") as log:
            server = ServerProcess(
                [f"{self.options.venv}/bin/vllm", "serve", str(self.model), "--served-model-name", "model", "--host",
                 "127.0.0.1", "--port", str(self.options.port), "--dtype", "bfloat16", "--max-model-len", "512",
                 "--gpu-memory-utilization", "0.1", "--enforce-eager", "--logprobs-mode", "processed_logprobs",
                 "--max-logprobs", "-1"],
                url, log, environment)
            try:
                return self.trl("--url", url)
            finally:
                server.stop()

    def run(self, name, command, environment):
        log = self.folder / f"{name}.log"
        with open(log, "w") as output:
            ended = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | environment)
        if ended.returncode != 0:
            sys.exit(f"{name} failed: {log}")
        return log.read_text()


def main():
    options = parsed()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="compare_rl."))
    sides = Sides(options, folder)
    measured = {}
    for name, measure in zip(SIDES, (sides.tandem_train, sides.trl, sides.trl_vllm)):
        if name not in (options.only or SIDES):
            continue
        print(f"{name}: {options.steps + 1} steps …", file=sys.stderr, flush=True)
        steps = measure()[1:]
        middle = {key: statistics.median(step.get(key, 0.0) for step in steps) for key in ("seconds", "generate", "sync", "tokens")}
        middle["train"] = middle["seconds"] - middle["generate"] - middle["sync"]
        middle |= {"rewards": [step["reward"] for step in steps], "differs": [step["differs"] for step in steps],
                   "least": min(step["seconds"] for step in steps), "most": max(step["seconds"] for step in steps)}
        measured[name] = middle
    if options.json:
        print(json.dumps(measured))
    else:
        cores = len(os.sched_getaffinity(0))
        print(f"{options.prompts} prompts × {options.samples} samples of {options.tokens} tokens, {cores} cores; medians of "
              f"{options.steps} steps, seconds\n")
        print(f"{'':<20}{'a step':>8} {'(least, most)':<16}{'generate':>9}{'train':>8}{'sync':>7}{'tokens/s':>10}{'ratio':>7}")
        ours = measured.get(SIDES[0])
        for name, one in measured.items():
            spread = f"({one['least']:.1f}, {one['most']:.1f})"
            print(f"{name:<20}{one['seconds']:>8.1f} {spread:<16}{one['generate']:>9.1f}{one['train']:>8.1f}{one['sync']:>7.2f}"
                  f"{one['tokens'] / one['seconds']:>10.1f}" + (f"{one['seconds'] / ours['seconds']:>7.2f}" if ours else ""))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
