"""A short run of tandem-train on the quickstart's task, of one rank, for a script that looks at what it pushes."""
import os
import subprocess


def train(program, *values, **environment):
    """What it wrote on both streams; fails where it does. values: of its configuration."""
    command = [program, "examples/quickstart/quickstart.toml"]
    for value in ["evaluate_every=0", "mesh.dp=1", "mesh.cp=1", "grpo.prompts=8", "held_out=16", *values]:
        command += ["--set", value]
    run = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout + run.stderr
