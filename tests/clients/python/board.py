"""verl's actors and rollout workers at the board, as coroutines: who owns a host's memory, who is late, what a later sync does to
an earlier one; and what an actor refuses to hand over. Without Ray, verl, torch: `tandem_sync.verl` itself runs in
tests/peers/verl_sync.sh."""
import asyncio
import importlib
import pathlib
import random
import sys
import types

import tandem_sync
from tandem_sync._board import Board


def expect(got, want):
    if got != want:
        sys.exit(f"got {got!r}, not {want!r}")


async def actor(board, number, rollouts, version, failure="", wait=5.0):
    await board.tell(number, [("w", (2,), "float32", "")], "host 0")
    told = await board.receivers(number, rollouts, wait)
    await board.settle(number, 0 if told["failure"] else version, told["failure"] or failure)
    return told


async def rollout(board, number, rank, rollouts, host, wait=5.0):
    told = await board.join(number, rank, rollouts, host, wait)
    if told["failure"]:
        return told
    if told["owner"] == rank:
        await board.serve(number, rank, {"local": f"{host} by {rank}"})
    return {**told, **await board.outcome(number, told["owner"], wait)}


async def together():
    """Each host's first worker owns, whatever order they come in; everybody hears the version and whose memory it is in."""
    moments = random.Random(1)
    board = Board()
    for number in range(1, 51):
        hosts = [f"host {moments.randrange(3)}" for _ in range(moments.randrange(1, 7))]
        everybody = [actor(board, number, len(hosts), 10 + number)]
        everybody += [rollout(board, number, rank, len(hosts), host) for rank, host in enumerate(hosts)]
        places = list(range(len(everybody)))
        moments.shuffle(places)
        tasks = {place: asyncio.create_task(everybody[place]) for place in places}
        told = [await tasks[place] for place in range(len(everybody))]
        owners = {host: hosts.index(host) for host in hosts}
        expect(told[0]["receivers"], [{"local": f"{host} by {rank}"} for host, rank in sorted(owners.items(), key=lambda o: o[1])])
        for rank, host in enumerate(hosts):
            got = told[1 + rank]
            expect((got["failure"], got["owner"], got["version"], got["address"], got["trainer"], got["layout"]),
                   ("", owners[host], 10 + number, {"local": f"{host} by {owners[host]}"}, "host 0", [("w", (2,), "float32", "")]))


async def failures():
    board = Board()
    told = await asyncio.gather(actor(board, 1, 3, 7, wait=0.1), rollout(board, 1, 1, 3, "a", 5.0))
    expect((told[0]["failure"], told[0]["late"]), ("rollout workers 0, 2 did not come within 0.1 s", True))
    expect(told[1]["failure"], "rollout workers 0, 2 did not come within 0.1 s")  # at once, by the actor's word
    told = await asyncio.gather(board.join(2, 0, 1, "a", 0.1), board.outcome(2, 0, 0.05))
    expect([one["failure"] for one in told], ["the trainer's first rank did not say what it sends within 0.1 s",
                                              "the trainer's push did not end within 0.05 s"])
    told = await asyncio.gather(actor(board, 3, 2, 7, "the disk is full"), *[rollout(board, 3, r, 2, "a") for r in range(2)])
    expect([one["failure"] for one in told], ["", "the disk is full", "the disk is full"])
    await board.tell(4, [], "a")
    await board.join(4, 0, 1, "a", 1.0)
    expect((await board.receivers(4, 1, 0.05))["failure"], "no receiver was opened by rollout worker 0 within 0.05 s")


async def overtaken():
    """The first word of a later sync ends what waits in an earlier one; late words of an earlier one change nothing."""
    board = Board()
    waiting = [asyncio.create_task(one) for one in (actor(board, 1, 2, 7, wait=60), rollout(board, 1, 0, 2, "a", 60))]
    await asyncio.sleep(0.01)
    told = await asyncio.gather(actor(board, 2, 1, 8), rollout(board, 2, 0, 1, "b"))
    expect((told[1]["version"], told[1]["address"]), (8, {"local": "b by 0"}))
    expect([(await one)["failure"] for one in waiting], ["a later sync has begun"] * 2)
    await board.settle(1, 7, "")
    await board.serve(1, 0, {"local": "of old"})
    told = await board.outcome(2, 0, 1.0)
    expect((told["failure"], told["version"], told["address"]), ("", 8, {"local": "b by 0"}))


class Tensor:
    def __init__(self, dimensions=2):
        self.dimensions = dimensions

    def dim(self):
        return self.dimensions


class Module:
    def __init__(self, parameters, **more):
        self.parameters = parameters
        self.__dict__ |= more

    def named_parameters(self, remove_duplicate):
        assert not remove_duplicate
        return list(self.parameters.items())

    def state_dict(self):
        return {**self.parameters, "rotary": Tensor(1)}


def hand_over():
    package = types.ModuleType("tandem_sync.verl")  # without its engine, which wants verl
    package.__path__ = [str(pathlib.Path(tandem_sync.__file__).parent / "verl")]
    sys.modules["tandem_sync.verl"] = package
    handover = importlib.import_module("tandem_sync.verl.handover")

    def refused(engine, *words):
        try:
            handover.shards(engine)
        except tandem_sync.InvalidError as error:
            expect([word for word in words if word not in str(error)], [])
        else:
            sys.exit(f"not refused: {words}")

    def engine(parameters, quantised=False, **more):
        return types.SimpleNamespace(module=Module(parameters, **more), _qat_enabled=quantised)

    embedding, weight = Tensor(), Tensor()
    items, aliases = handover.shards(engine({"embed.weight": embedding, "w": weight, "lm_head.weight": embedding}))
    expect([name for name, _ in items], ["embed.weight", "w", "rotary"])
    expect(aliases, {"lm_head.weight": "embed.weight"})
    refused(types.SimpleNamespace(module=[1]), "no module")
    refused(engine({"w": weight}, peft_config={}), "LoRA", "without checkpoint_manager_class")
    refused(engine({"q.lora_A.weight": weight}), "'q.lora_A.weight'", "model.lora.merge=True")
    refused(engine({"w": weight}, _checkpoint_conversion_mapping={"^a": "b"}), "Module", "converts")
    refused(engine({"w": weight}, quantised=True), "quantised")
    refused(engine({"_fsdp_wrapped_module.w": weight}), "FSDP1", "fsdp2")
    packed = {"model.layers.0.mlp.experts.down_proj": Tensor(3)}
    refused(engine(packed), "'model.layers.0.mlp.experts.down_proj'")
    items, _ = handover.shards(engine(packed, config=types.SimpleNamespace(model_type="gpt_oss")))
    expect(len(items), 2)
    ran = []
    weights = (ran.append(i) or (f"{'q.lora_B' if i == 1 else 'w'}.{i}", i) for i in range(4))
    try:
        list(handover.full_tensors(weights))
        sys.exit("an adapter's tensor was sent")
    except tandem_sync.InvalidError:
        handover.drain(weights)
    expect(ran, [0, 1, 2, 3])  # the others of the group have gathered with us


def main():
    for part in (together, failures, overtaken):
        asyncio.run(part())
    hand_over()
    print("ok")


if __name__ == "__main__":
    main()
