"""`tandem-sync push` of a directory into one server, for scripts that look at what it brings."""
import json
import os
import subprocess
import sys


def command(program, directory, to, *more):
    return [program, "push", "--model", str(directory), "--to", to, "--json", *more]


def run(program, directory, to, *more, **environment):
    """A push as it ended, successful or not."""
    return subprocess.run(command(program, directory, to, *more), env={**os.environ, **environment}, capture_output=True,
                          text=True, timeout=300)


def succeed(program, directory, to, *more, **environment):
    done = run(program, directory, to, *more, **environment)
    if done.returncode != 0:
        sys.exit(f"a push failed with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def report(out):
    """What a push wrote of its one server."""
    return json.loads(out)["servers"][0]
