"""What a session is given by mistake ends in an exception that names it, and harms neither the process nor the engine."""

import os
import sys

import numpy
import torch

import tandem_sync
import tiny

NORM, UP = "model.norm.weight", "model.layers.0.mlp.up_proj.weight"


def refused(text, call, kind=tandem_sync.InvalidError):
    try:
        call()
    except kind as error:
        if text in str(error):
            return
        raise AssertionError(f"'{error}' does not say '{text}'") from error
    raise AssertionError(f"not refused: {text}")


def weights(model, sync):
    whole = dict(model.named_parameters())
    for name, tensor, text in (
            (NORM, torch._neg_view(torch.ones(32)), "resolve_neg"), (NORM, torch.ones(64)[::2], "not contiguous"),
            (UP, torch.ones(72, 32).to_sparse(), "not contiguous"), (NORM, torch.ones(32, device="meta"), "on meta"),
            (NORM, torch.ones(32, dtype=torch.complex64), "complex64")):
        refused(text, lambda: sync.publish({**whole, name: tensor}))
        refused(f"'{name}'", lambda: sync.publish({**whole, name: tensor}))
    refused("masked", lambda: sync.publish({**whole, NORM: numpy.ma.ones(32, "float32")}))
    refused("a zero byte", lambda: sync.publish([(NORM + "\0.other", torch.ones(32))]))
    for items in ([torch.ones(1)], [(NORM, torch.ones(32), 1)], {1: torch.ones(32)}):
        refused("pairs of a name and a tensor", lambda: sync.publish(items))


def versions(model, sync):
    sync.publish(model)
    for version in (0, -1, 1 << 63, (1 << 64) + 500):
        refused(f"version {version} is not between", lambda: sync.push(version=version))
    refused("'str' object", lambda: sync.push(version="11"), TypeError)
    if sync.push(version=11).version != 11:
        raise AssertionError("a good version was not taken")


def under_way(model, sync):
    sync.publish(model)
    push = sync.push(version=12, wait=False)
    for call in (lambda: sync.push(version=13), lambda: sync.publish(model), lambda: sync.adopt(model), sync.check):
        refused("call its wait first", call)
    push.wait()


def closed(model, sync):
    sync.publish(model)
    push = sync.push(version=13, wait=False)
    sync.close()
    if not push.done():
        raise AssertionError("a push outlived its session")
    push.abort()
    try:
        push.wait()
    except tandem_sync.Error as error:
        if "the session was closed" not in str(error):
            raise
    for call in (lambda: sync.push(version=14), lambda: sync.publish(model), lambda: sync.adopt(model), sync.check):
        refused("the session is closed", call)


def reconnected(model, sync, url):
    sync.publish(model)
    sync.push(version=14)
    refused("nothing listens there", lambda: sync.reconnect(["http://127.0.0.1:9"]), tandem_sync.SyncError)
    refused("reconnect failed", lambda: sync.push(version=15))
    sync.reconnect([url], rollback=True)
    if sync.push(version=3).version != 3 or not sync.check():
        raise AssertionError("a session did not go on with an engine that it is given again")
    sync.reconnect([url])  # and does not go back unasked
    refused("version 2", lambda: sync.push(version=2), tandem_sync.Error)
    sync.close()
    refused("closed", lambda: sync.reconnect([url]))


def forked(model, sync):
    sync.publish(model)
    child = os.fork()
    if child == 0:
        try:
            refused("after a fork", lambda: sync.push(version=1000))
            sync.close()
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1] != 0:
        raise AssertionError("the child failed")
    sync.push(version=15)


def main():
    torch.manual_seed(0)
    model = tiny.Tiny()
    with tiny.engine(model) as (url, _):
        for options, text in (({"bucket_bytes": -1}, "buckets of"), ({"depth": -1}, "depth of -1")):
            refused(text, lambda: tandem_sync.Session(engines=[url], **options))
        for case in (weights, versions, under_way, closed, lambda *both: reconnected(*both, url), forked):
            with tandem_sync.Session(engines=[url], deadline=10, rollback=True) as sync:
                case(model, sync)
    print(f"torch {torch.__version__}: misuse: ok")


if __name__ == "__main__":
    sys.exit(main())
