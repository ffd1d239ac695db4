"""A trainer without PyTorch: numpy's arrays go to a tandem-engine. What scripts/wheel_check.sh runs where the wheel was
installed; needs numpy."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

import tandem_sync

CONFIG = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", hidden_size=32, intermediate_size=72,
              num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=8, vocab_size=101,
              rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=128, torch_dtype="float32",
              tie_word_embeddings=True)
LAYER = {"self_attn.q_proj": (32, 32), "self_attn.k_proj": (16, 32), "self_attn.v_proj": (16, 32),
         "self_attn.o_proj": (32, 32), "mlp.gate_proj": (72, 32), "mlp.up_proj": (72, 32), "mlp.down_proj": (32, 72),
         "input_layernorm": (32,), "post_attention_layernorm": (32,)}
SHAPES = {"model.embed_tokens.weight": (101, 32), "model.norm.weight": (32,),
          **{f"model.layers.0.{name}.weight": shape for name, shape in LAYER.items()}}


def write_model(folder):
    Path(folder, "config.json").write_text(json.dumps(CONFIG))
    header, at = {}, 0
    for name, shape in SHAPES.items():
        size = 4 * int(numpy.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    Path(folder, "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(at))


def main():
    engine = os.environ.get("TANDEM_ENGINE", os.path.join(os.path.dirname(sys.executable), "tandem-engine"))
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder)
        ready = Path(folder, "ready")
        process = subprocess.Popen([engine, "serve", "--model", folder, "--listen", "127.0.0.1:0", "--ready-file", str(ready),
                                    "--die-with-parent"], stdout=subprocess.DEVNULL)
        try:
            until = time.monotonic() + 60
            while not ready.exists() or not ready.read_text().strip():
                assert process.poll() is None and time.monotonic() < until, "tandem-engine did not start"
                time.sleep(0.05)
            random = numpy.random.default_rng(1)
            weights = {name: random.standard_normal(shape, "float32") for name, shape in SHAPES.items()}
            with tandem_sync.Session(engines=[ready.read_text().strip()]) as sync:
                try:
                    sync.publish(weights, config={**CONFIG, "rope_theta": 500000.0})
                    raise AssertionError("an engine of another rope_theta was not refused")
                except tandem_sync.SyncError as error:
                    assert "rope_theta is 500000.0" in str(error) and "10000.0" in str(error), error
                sync.publish(weights, config=folder)
                assert sync.compared
                report = sync.push(version=5)
                assert sync.check(), sync.first_mismatch()
                weights["model.norm.weight"] += 1
                assert sync.first_mismatch() == "model.norm.weight"
                assert sync.non_finite() is None
                assert sync.push(version=6).version == 6 and sync.check()
                weights["model.layers.0.mlp.down_proj.weight"][7, 3] = numpy.inf
                found = sync.non_finite()
                assert found == ("model.layers.0.mlp.down_proj.weight has 1 element that is infinite or NaN, the first in "
                                 "row 7"), found
        finally:
            process.kill()
            process.wait()
    print(f"{report.bytes} bytes from numpy to tandem-engine: they agree")


if __name__ == "__main__":
    main()
