"""Runs every example of the package's documentation against a tandem-engine, and sees that nothing public lacks one."""

import doctest
import inspect
import itertools
import sys

import torch

import tandem_sync
import tandem_sync._addresses
import tiny

MODULES = [m for name, m in sorted(sys.modules.items()) if name == "tandem_sync" or name.startswith("tandem_sync._")]


def without_example():
    """Public functions and classes whose docstring has no example, and methods that no example of their class calls."""
    for name in tandem_sync.__all__:
        thing = getattr(tandem_sync, name)
        if ">>>" not in (inspect.getdoc(thing) or ""):
            yield name
        if not inspect.isclass(thing):
            continue
        examples = (thing.__doc__ or "") + "".join(f.__doc__ or "" for f in vars(thing).values() if callable(f))
        for method, f in vars(thing).items():
            if method.startswith("_") or not callable(f):
                continue
            if not f.__doc__ or f".{method}(" not in examples:
                yield f"{name}.{method}"


def main():
    missing = list(without_example())
    if missing:
        sys.exit(f"no example in the documentation of {', '.join(missing)}")
    torch.manual_seed(0)
    model = tiny.Tiny()
    versions = itertools.count(10)  # above what the engine starts with
    tried = failed = 0
    with tiny.engine(model) as (url, _):
        for module in MODULES:
            names = {"tandem_sync": tandem_sync, "torch": torch, "ENGINE": url, "model": model,
                     "next_version": lambda: next(versions)}
            for test in doctest.DocTestFinder().find(module, extraglobs=names):
                outcome = doctest.DocTestRunner().run(test)
                tried, failed = tried + outcome.attempted, failed + outcome.failed
    print(f"torch {torch.__version__}: {tried} examples, {failed} failed")
    sys.exit(failed > 0 or tried < 40)


if __name__ == "__main__":
    main()
