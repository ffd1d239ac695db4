"""Tandem inside a vLLM server: the weight-transfer backend `tandem`.

    vllm serve MODEL --weight-transfer-config '{"backend": "tandem"}'        # VLLM_SERVER_DEV_MODE=1
    tandem-sync push --model DIR --to vllm://HOST:PORT

vLLM finds `register` by the entry point vllm.general_plugins. Nothing of vLLM is imported before it calls.
"""


def register() -> None:
    """Called by vLLM in each of its processes, perhaps more than once."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    try:
        WeightTransferEngineFactory.register_engine("tandem", "tandem_sync.vllm.engine", "TandemWeightTransferEngine")
    except ValueError:  # it is there already
        pass
