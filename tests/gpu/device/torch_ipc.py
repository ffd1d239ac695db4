"""The PyTorch side of torch_test.cpp: opens memory that Tandem exported, or exports its own.

    torch_ipc.py open HEX OFFSET COUNT    checks that int32 i lies at i, writes i + 1, prints "ok"
    torch_ipc.py share COUNT              prints "HEX OFFSET" of int32 3 * i, waits for a line, then checks for 5 * i
"""
import sys

import torch


def opened(handle, offset, count):
    # rebuild_cuda_tensor's arguments 6 to 14: the 64 raw bytes without a prefix, no reference counter, no event.
    storage = torch.UntypedStorage._new_shared_cuda(
        0, handle, count * 4, offset, b"/tandem_has_no_counter", 0, b"\0" * 64, False)
    return torch.tensor([], dtype=torch.int32, device="cuda").set_(storage, 0, (count,), (1,))


def main():
    torch.cuda.init()
    if sys.argv[1] == "open":
        handle, offset, count = bytes.fromhex(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
        tensor = opened(handle, offset, count)
        expected = torch.arange(count, dtype=torch.int32, device="cuda")
        assert torch.equal(tensor, expected), "torch reads other bytes than Tandem wrote"
        tensor += 1
        torch.cuda.synchronize()
        print("ok", flush=True)
        return
    count = int(sys.argv[2])
    tensor = torch.arange(count, dtype=torch.int32, device="cuda") * 3
    torch.cuda.synchronize()
    _, handle, _, offset, *_ = tensor.untyped_storage()._share_cuda_()
    print(handle[-64:].hex(), offset, flush=True)  # newer versions put two bytes before the handle
    sys.stdin.readline()
    torch.cuda.synchronize()
    assert torch.equal(tensor, torch.arange(count, dtype=torch.int32, device="cuda") * 5), "Tandem wrote elsewhere"
    print("ok", flush=True)


main()
