"""Machine code of CUDA objects: their kernels, a kernel's loops, and what a turn of its main loop issues.

A turn is the path through the loop's body that a warp takes when there is nothing special to do: of all paths with
the most products, then the most copies, the shortest. So what only masked tiles, ragged ends or moved maxima need is not
counted, wherever the compiler put it.
"""

import collections
import pathlib
import re
import subprocess
import sys

INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;")
PRODUCTS = ("HMMA", "HGMMA")


class Instruction:
    def __init__(self, address, guard, name, operands):
        self.address, self.guard, self.name, self.operands = address, guard, name, operands
        self.base = name.split(".")[0]

    def is_filler(self):
        """What never executes (`@!PT LDS RZ, [RZ]` beside copies)."""
        return self.guard == "!PT"

    def is_product(self):
        return self.base in PRODUCTS

    def product_shape(self):
        """(rows, columns, depth) of HGMMA.64x128x16…, HMMA.16816…"""
        if self.base == "HMMA":
            return 16, 8, 16
        return tuple(map(int, re.search(r"(\d+)x(\d+)x(\d+)", self.name).groups()))

    def reads_a_from_registers(self):
        """Of a warpgroup's product."""
        return re.match(r"R\d+, R\d+, gdesc", self.operands) is not None


class Kernel:
    def __init__(self, mangled, name, instructions):
        self.mangled, self.name, self.instructions = mangled, name, instructions

    def count(self, *bases):
        return sum(i.base in bases and not i.is_filler() for i in self.instructions)

    def registers(self):
        """As many as the highest that is named."""
        named = [int(r) for i in self.instructions for r in re.findall(r"\bR(\d+)\b", i.operands)]
        return max(named, default=-1) + 1


def tools():
    """The folder of cuobjdump and nvdisasm; the program ends with 77 where they are not."""
    script = pathlib.Path(__file__).with_name("tools.sh")
    found = subprocess.run([script], capture_output=True, text=True)
    if found.returncode != 0:
        print(found.stderr.strip(), file=sys.stderr)
        sys.exit(77)
    return found.stdout.strip()


def demangle(names):
    if not names:
        return []
    out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return [short_name(line) for line in out.splitlines()]


def short_name(name):
    """forward_mma_kernel<ForwardShapeOf<128, 4>> of void tandem::…::forward_mma_kernel<…>(…)."""
    name = re.sub(r"\(anonymous namespace\)::|\btandem::(?:\w+::)*|^void ", "", name)
    depth = 0
    for at, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return name[:at].replace("> >", ">>")
    return name.replace("> >", ">>")


def read(tools, what, file, architecture):
    """cuobjdump's answer; the program ends where it cannot read the file."""
    done = subprocess.run([f"{tools}/cuobjdump", what, "-arch", architecture, file], capture_output=True, text=True,
                          env={"PATH": f"{tools}:/usr/bin:/bin"})
    if done.returncode != 0:
        raise SystemExit(f"cuobjdump {what} {file}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def kernels(tools, file, architecture):
    """The kernels of an object or a cubin for one architecture, as sm_90a."""
    found = []
    for part in re.split(r"^\s*Function : ", read(tools, "-sass", file, architecture), flags=re.M)[1:]:
        mangled, _, body = part.partition("\n")
        instructions = [Instruction(int(m[1], 16), m[2] or "", m[3], m[4])
                        for m in map(INSTRUCTION.match, body.splitlines()) if m]
        found.append((mangled.strip(), instructions))
    return [Kernel(mangled, name, instructions)
            for (mangled, instructions), name in zip(found, demangle([mangled for mangled, _ in found]))]


def registers(tools, file, architecture):
    """Of each kernel, by mangled name: as many as a thread begins with. None where a file has nothing for an architecture."""
    found = re.findall(r"Function (\w+):\s*REG:(\d+)", read(tools, "-res-usage", file, architecture))
    return {mangled: int(count) for mangled, count in found}


def ptx(tools, file, architecture):
    """The PTX that the compiler turned into a file's machine code for an architecture."""
    text = read(tools, "-ptx", file, architecture)
    begin = text.find("\n.version ")
    if begin < 0:
        raise SystemExit(f"{file}: no PTX for {architecture}")
    return text[begin:].partition("\nFatbin ")[0]


class Block:
    """Instructions that are only entered at the first and left at the last."""

    def __init__(self, instructions):
        self.instructions = instructions
        self.next = []  # indices of blocks


def targets(instruction):
    """Addresses that a branch may go to."""
    if instruction.base in ("BRA", "BRX", "JMP") or instruction.name == "BRA.DIV":
        return [int(a, 16) for a in re.findall(r"\b0x([0-9a-f]+)\b", instruction.operands)]
    return []


def goes_on(instruction):
    """May the instruction behind this one be next?"""
    if instruction.base in ("EXIT", "RET", "BRX", "JMP", "KILL"):
        return bool(instruction.guard)
    if instruction.base == "BRA":
        conditional = instruction.guard not in ("", "PT", "UPT") or "," in instruction.operands
        return conditional
    return True


def blocks(kernel):
    code = kernel.instructions
    begins = {code[0].address} if code else set()
    for at, instruction in enumerate(code):
        begins.update(targets(instruction))
        if (targets(instruction) or not goes_on(instruction)) and at + 1 < len(code):
            begins.add(code[at + 1].address)
    found, index = [], {}
    for instruction in code:
        if instruction.address in begins:
            index[instruction.address] = len(found)
            found.append(Block([]))
        found[-1].instructions.append(instruction)
    for at, block in enumerate(found):
        last = block.instructions[-1]
        if last.guard != "!PT":
            block.next += [index[a] for a in targets(last) if a in index]
        if goes_on(last) and at + 1 < len(found):
            block.next.append(at + 1)
    return found


def reachable(graph):
    """Blocks in reverse postorder from the entry."""
    order, seen, stack = [], {0}, [(0, iter(graph[0].next))]
    while stack:
        at, following = stack[-1]
        for to in following:
            if to not in seen:
                seen.add(to)
                stack.append((to, iter(graph[to].next)))
                break
        else:
            order.append(at)
            stack.pop()
    return order[::-1]


class Loop:
    def __init__(self, head, body):
        self.head, self.body = head, body  # block indices


def loops(graph):
    """Natural loops, one a head, the smallest first."""
    if not graph:
        return []
    order = reachable(graph)
    before = collections.defaultdict(list)
    for at in order:
        for to in graph[at].next:
            before[to].append(at)
    dominators = {at: set(order) for at in order}
    dominators[0] = {0}
    changed = True
    while changed:
        changed = False
        for at in order[1:]:
            now = set.intersection(*(dominators[b] for b in before[at])) | {at}
            changed, dominators[at] = changed or now != dominators[at], now
    found = {}
    for at in order:
        for head in graph[at].next:
            if head not in dominators[at]:
                continue
            body, stack = {head, at}, [at]
            while stack:
                here = stack.pop()
                if here != head:
                    stack += [b for b in before[here] if b not in body]
                    body.update(before[here])
            found.setdefault(head, set()).update(body)
    return sorted((Loop(head, body) for head, body in found.items()), key=lambda l: len(l.body))


class Turn:
    """Instructions of a turn; `rolled` holds the turns of loops within it that have products and run more often."""

    def __init__(self, instructions=(), rolled=()):
        self.instructions, self.rolled = list(instructions), list(rolled)

    def __add__(self, other):
        return Turn(self.instructions + other.instructions, self.rolled + other.rolled)

    def all(self):
        return self.instructions + [i for turn in self.rolled for i in turn.all()]

    def count(self, *bases):
        return sum(i.base in bases for i in self.all())

    def rank(self):
        """Products first, then matrices loaded for them, then copies: the more the better. Then the fewer instructions."""
        return self.count(*PRODUCTS), self.count("LDSM"), self.count("LDGSTS"), -len(self.all())


def loops_within(loop, all_loops):
    """The loops right below a loop, by their heads."""
    found = {}
    for other in reversed(all_loops):  # the largest first
        if other.body < loop.body and other.head != loop.head and not any(other.head in o.body for o in found.values()):
            found[other.head] = other
    return found


def turn_of(graph, loop, all_loops):
    """The turn of a loop, see above. A loop within it is one step of the path: its own turn."""
    within = loops_within(loop, all_loops)
    step_of = {block: head for head, inner in within.items() for block in inner.body}

    def following(step):
        if step not in within:
            return [step_of.get(to, to) for to in graph[step].next]
        body = within[step].body
        return [step_of.get(to, to) for block in body for to in graph[block].next if to not in body]

    def taken_at(step):
        if step not in within:
            return Turn(i for i in graph[step].instructions if not i.is_filler())
        turn = turn_of(graph, within[step], all_loops)
        return Turn((), [turn]) if turn.count(*PRODUCTS) else turn

    # The best path from each step to the loop's end, depth first; None where there is none.
    best, entered, stack = {}, set(), [(loop.head, False)]
    while stack:
        step, done = stack.pop()
        if done:
            paths = [Turn()] if loop.head in following(step) else []
            paths += [best[to] for to in following(step) if to != loop.head and best.get(to)]
            best[step] = taken_at(step) + max(paths, key=Turn.rank) if paths else None
        elif step not in entered:
            entered.add(step)
            stack.append((step, True))
            stack += [(to, False) for to in following(step) if to in loop.body and to not in entered]
    return best[loop.head] or Turn()


def main_loop(kernel, products):
    """The turn of the smallest loop with a tile's products; of that with the most, where a loop within it is rolled."""
    graph = blocks(kernel)
    all_loops = loops(graph)
    turns = [turn_of(graph, loop, all_loops) for loop in all_loops]
    for turn in turns:
        if turn.count(*PRODUCTS) >= products:
            return turn
    return max(turns, key=lambda turn: turn.count(*PRODUCTS), default=Turn())


def issued(turn, products):
    """[(instruction, times) …] of a turn, if its rolled loops run as often as `products` products need."""
    straight, rolled = turn.instructions, [i for t in turn.rolled for i in t.all()]
    in_rolled = sum(i.is_product() for i in rolled)
    times = max(1.0, (products - sum(i.is_product() for i in straight)) / in_rolled) if in_rolled else 1
    return [(i, 1) for i in straight] + [(i, times) for i in rolled]
