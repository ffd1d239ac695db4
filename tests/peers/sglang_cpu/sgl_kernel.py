"""Stands in for SGLang's package of compiled kernels, which has no wheel for CPUs: SGLang 0.5.23 imports names from it
while it starts. On a CPU without AMX it computes with PyTorch, and calls none of them: each raises, by its name.
"""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*arguments, **options):
        raise NotImplementedError(f"sgl_kernel.{name} was called, and this package has no kernels")

    return missing
