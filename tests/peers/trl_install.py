"""What `tandem_sync.trl.install` puts in place and takes away, without a server; needs TRL. Exit code 1 when anything is wrong."""
import importlib.metadata
import sys

import tandem_sync.trl as ours

assert not [name for name in sys.modules if name.split(".")[0] in ("trl", "torch", "transformers")], "imported at once"

true_version = importlib.metadata.version
for version in ("1.15.2", "0.29.0"):
    importlib.metadata.version = lambda name: version
    try:
        ours.install()
        sys.exit(f"TRL {version} was taken")
    except ours.InvalidError as error:
        assert version in str(error) and "1.16" in str(error), error
importlib.metadata.version = true_version

import trl.experimental.gold.gold_trainer as gold
import trl.generation.vllm_generation as generation
import trl.trainer.base_trainer as base
import trl.trainer.grpo_trainer as grpo

theirs, init = generation.VLLMGeneration, base._BaseTrainer.__init__
# As axolotl does it: a method of TRL's class is replaced before, and one after.
patched = []
theirs.generate, true_generate = lambda self: patched.append("generate"), theirs.generate
with ours.install() as first:
    assert ours.install() is first
    mine = generation.VLLMGeneration
    assert mine is not theirs and issubclass(mine, theirs)
    for module in (grpo, gold):
        assert module.VLLMGeneration is mine, module
    theirs.sync_weights, true_sync = lambda self: patched.append("sync"), theirs.sync_weights
    colocated = mine.__new__(mine)
    colocated.mode = "colocate"
    colocated.sync_weights()
    colocated.generate()
    assert patched == ["sync", "generate"], patched
    theirs.sync_weights = true_sync
theirs.generate = true_generate
for module in (generation, grpo, gold):
    assert module.VLLMGeneration is theirs, module
assert base._BaseTrainer.__init__ is init
first.uninstall()  # again: nothing happens
with ours.install() as second:
    assert second is not first and grpo.VLLMGeneration is not theirs
print("install: ok")
