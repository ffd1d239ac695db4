#!/usr/bin/env python3
"""Writes prompts.jsonl: grade-school arithmetic in words, one or two steps with small numbers, from a fixed seed.

    python3 examples/smollm2/make_prompts.py > examples/smollm2/prompts.jsonl
"""

import json
import random

NAMES = ["Tom", "Anna", "Ben", "Mia", "Sam", "Lucy", "Omar", "Nina", "Leo", "Ada", "Kofi", "Yuki"]
THINGS = ["apples", "marbles", "books", "stickers", "pencils", "coins", "cookies", "shells", "cards", "eggs"]
ASK = " Answer with one number."
LINES = 640


def question(draw):
    """(text, answer)"""
    name, other = draw.sample(NAMES, 2)
    thing = draw.choice(THINGS)
    a, b, c = draw.randint(2, 12), draw.randint(2, 9), draw.randint(1, 5)
    small, large = sorted((a, a + b))
    return draw.choice([
        (f"{name} has {a} {thing} and gets {b} more. How many {thing} does {name} have now?", a + b),
        (f"{name} has {large} {thing} and gives {small} to {other}. How many {thing} are left?", large - small),
        (f"{name} has {a} {thing}. {other} has {b} {thing}. How many {thing} do they have together?", a + b),
        (f"There are {b} boxes with {c} {thing} in each box. How many {thing} are there in all?", b * c),
        (f"{name} had {a} {thing}, found {b} more and lost {c} of them. How many {thing} does {name} have?", a + b - c)
        if a + b > c
        else (f"{name} has {a} {thing} and gets {b} more. How many {thing} does {name} have now?", a + b),
    ])  # fmt: skip


def main():
    draw = random.Random(0)
    seen = {}
    while len(seen) < LINES:
        text, answer = question(draw)
        seen.setdefault(text, answer)
    for text, answer in seen.items():
        print(json.dumps({"prompt": text + ASK, "answer": str(answer)}))


if __name__ == "__main__":
    main()
