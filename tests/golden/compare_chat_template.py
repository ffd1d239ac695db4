#!/usr/bin/env python3
"""Compares `tandem-engine tokenize --chat --text` with transformers' rendering of chat templates.

    tests/golden/compare_chat_template.py TEMPLATE.jinja... [--engine build/release/bin/tandem-engine]

Each template gets the conversations of chat_conversations.py. Equal: the same text, or both refuse. Exit code 1
where any differs; a template that we do not support counts as different.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from chat_conversations import CONVERSATIONS
from transformers.utils.chat_template_utils import _alias_reasoning_fields, _compile_jinja_template, _normalize_chat_messages

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}
TOKENIZER = {"version": "1.0", "added_tokens": [], "model": {
    "type": "BPE", "vocab": {"<s>": 0, "</s>": 1, "<unk>": 2}, "merges": []}}


def theirs(template, conversation):
    values = {"tools": None, "documents": None, "add_generation_prompt": True, **TOKENS, **conversation}
    try:
        values["messages"] = _alias_reasoning_fields(_normalize_chat_messages(values["messages"]))
        return template.render(**values)
    except Exception as error:
        return error


def ours(engine, directory, conversation):
    run = subprocess.run([engine, "tokenize", "--model", directory, "--chat", "--text"], capture_output=True,
                         input=json.dumps(conversation) + "\n", text=True)
    if run.returncode == 0:
        return json.loads(run.stdout)
    assert run.returncode == 2, (run.returncode, run.stderr)
    return ValueError(run.stderr.strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("templates", nargs="+")
    parser.add_argument("--engine", default="build/release/bin/tandem-engine")
    arguments = parser.parse_args()
    different = 0
    for path in arguments.templates:
        text = pathlib.Path(path).read_text()
        template = _compile_jinja_template(text)
        wrong, refused = [], 0
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, "tokenizer.json").write_text(json.dumps(TOKENIZER))
            pathlib.Path(directory, "tokenizer_config.json").write_text(json.dumps(TOKENS))
            pathlib.Path(directory, "chat_template.jinja").write_bytes(pathlib.Path(path).read_bytes())
            for number, conversation in enumerate(CONVERSATIONS):
                expected, found = theirs(template, conversation), ours(arguments.engine, directory, conversation)
                refused += isinstance(expected, Exception)
                if isinstance(expected, Exception) and isinstance(found, Exception):
                    continue
                if isinstance(expected, Exception) or isinstance(found, Exception) or expected != found:
                    wrong.append((number, expected, found))
        print(f"{pathlib.Path(path).name}: {len(CONVERSATIONS) - len(wrong)} of {len(CONVERSATIONS)} equal, {refused} refused")
        for number, expected, found in wrong[:2]:
            print(f"  conversation {number}:\n    theirs {expected!r:.600}\n    ours   {found!r:.600}")
        different += len(wrong)
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
