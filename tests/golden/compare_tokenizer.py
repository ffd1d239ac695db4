#!/usr/bin/env python3
"""Compares `tandem-engine tokenize` with Hugging Face `tokenizers`, both ways, on lines of mixed text.

    tests/golden/compare_tokenizer.py DIR... [--lines 10000] [--seed 0] [--engine build/release/bin/tandem-engine]

DIR holds tokenizer.json. Encodes every line with and without special tokens, decodes the ids with and without
them; also every single character of Unicode with --characters. Exit code 1 on the first difference.
"""
import argparse
import json
import subprocess
import sys
import time

import tokenizer_lines
from tokenizers import Tokenizer


def ours(arguments, directory, items, *flags):
    lines = "\n".join(json.dumps(item) for item in items) + "\n"
    command = [arguments.engine, "tokenize", "--model", directory, "--json", *flags]
    run = subprocess.run(command, input=lines, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {run.returncode}: {run.stderr}")
    out = [json.loads(line) for line in run.stdout.split("\n")[:-1]]
    assert len(out) == len(items), (len(out), len(items))
    return out


def compare(what, inputs, expected, found):
    differences = [i for i in range(len(inputs)) if expected[i] != found[i]]
    for i in differences[:5]:
        print(f"  {what} differs: {inputs[i]!r:.300}\n    theirs {expected[i]!r:.300}\n    ours   {found[i]!r:.300}")
    print(f"  {what}: {len(inputs) - len(differences)} of {len(inputs)} equal")
    return len(differences)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+")
    parser.add_argument("--lines", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--characters", action="store_true", help="also every character of Unicode by itself and in context")
    parser.add_argument("--engine", default="build/release/bin/tandem-engine")
    arguments = parser.parse_args()
    failures = 0
    for directory in arguments.directories:
        reference = Tokenizer.from_file(directory + "/tokenizer.json")
        reference.no_truncation()
        reference.no_padding()
        added = [token.content for token in reference.get_added_tokens_decoder().values()]
        lines = tokenizer_lines.make_lines(arguments.lines, arguments.seed, added)
        if arguments.characters:
            every = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
            lines += ["a%s" % c for c in every] + [" %s %s9" % (c, c) for c in every]
        print(f"{directory}: {len(lines)} lines, vocabulary of {reference.get_vocab_size()}")
        for special, flags in ((True, []), (False, ["--no-special-tokens"])):
            start = time.time()
            expected = [reference.encode(line, add_special_tokens=special).ids for line in lines]
            their_seconds = time.time() - start
            found = ours(arguments, directory, lines, *flags)
            failures += compare(f"encode, special tokens {special}", lines, expected, found)
            texts = [reference.decode(ids, skip_special_tokens=not special) for ids in expected]
            found = ours(arguments, directory, expected, "--decode", *flags)
            failures += compare(f"decode, special tokens {special}", expected, texts, found)
        print(f"  (tokenizers: {their_seconds:.2f} s)")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
