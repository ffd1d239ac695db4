#!/usr/bin/env python3
"""Trains small tokenizers of each kind with Hugging Face `tokenizers` and writes, for each, tokenizer.json and
what `tokenizers` makes of lines of mixed text: tests/golden/data/tokenizer/NAME/{tokenizer.json,lines.json}.

    tests/golden/make_tokenizer.py [--out DIR] [--vocabulary 400] [--lines 60]       needs tokenizers 0.23

With --out elsewhere and more lines: directories for compare_tokenizer.py.
"""
import argparse
import json
import pathlib

import tokenizer_lines
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ADDED = [AddedToken("<|end|>", special=True, normalized=False), AddedToken("<|start|>", special=True, normalized=False),
         AddedToken("<tool>", special=False, normalized=False), AddedToken("<mask>", special=True, lstrip=True, normalized=False),
         AddedToken("<pad>", special=True, rstrip=True, normalized=False), AddedToken("WORD", single_word=True, normalized=True),
         AddedToken("Über", normalized=True)]


def byte_level(vocabulary, name, pre, normalizer=None, post=None, ignore_merges=False, added=ADDED):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, show_progress=False, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(tokenizer_lines.make_lines(800, 12345), trainer)
    tokenizer.add_tokens(list(added))
    if post:
        tokenizer.post_processor = post(tokenizer)
    return tokenizer


def metaspace(vocabulary, normalizer, pre, decoder, post):
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizer, pre, decoder
    special = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=vocabulary + 256, show_progress=False, special_tokens=special, limit_alphabet=150)
    # Words only: a SentencePiece vocabulary has no merges across spaces.
    words = [" " + word for line in tokenizer_lines.make_lines(800, 12345) for word in line.split() if len(word) < 30]
    tokenizer.train_from_iterator(words, trainer)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if not token["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_tokens(list(ADDED[:4]))
    if post:
        bos = tokenizer.token_to_id("<s>")
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", bos)])
    return tokenizer


def bos_and_eos(tokenizer):
    bos, eos = tokenizer.token_to_id("<|start|>"), tokenizer.token_to_id("<|end|>")
    return processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|start|> $A <|end|>", pair="<|start|> $A $B", special_tokens=[("<|start|>", bos), ("<|end|>", eos)])])


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def tokenizers_of(v):
    P, N, D = pre_tokenizers, normalizers, decoders
    mark = "▁"
    yield "gpt2", byte_level(v, "gpt2", P.ByteLevel(add_prefix_space=False))
    yield "gpt2_prefix", byte_level(v, "gpt2_prefix", P.ByteLevel(add_prefix_space=True))
    yield "qwen2", byte_level(v, "qwen2", split(QWEN), N.NFC())
    yield "llama3", byte_level(v, "llama3", split(LLAMA3), None, bos_and_eos, ignore_merges=True)
    yield "smollm", byte_level(v, "smollm", P.Sequence([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False)]))
    yield "deepseek", byte_level(v, "deepseek", P.Sequence([P.Split(Regex(r"\p{N}{1,3}"), "isolated"), P.Split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
                                 P.Split(Regex(DEEPSEEK), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]))
    yield "llama2", metaspace(v, N.Sequence([N.Prepend(mark), N.Replace(" ", mark)]), None,
                              D.Sequence([D.Replace(mark, " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)]), True)
    yield "metaspace_first", metaspace(v, None, P.Metaspace(prepend_scheme="first", split=False),
                                       D.Sequence([D.Replace(mark, " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)]), True)
    yield "metaspace_always", metaspace(v, N.NFKC(), P.Metaspace(prepend_scheme="always"), D.Metaspace(), False)
    yield "words", byte_level(v, "words", P.Sequence([P.WhitespaceSplit(), P.Punctuation("merged_with_previous"), P.Digits(), P.ByteLevel(use_regex=False)]),
                              N.Sequence([N.NFD(), N.Lowercase(), N.StripAccents(), N.Strip()]), added=ADDED[:2])
    yield "whitespace", byte_level(v, "whitespace", P.Sequence([P.Whitespace(), P.Split("e", "merged_with_next"), P.Split(Regex("[aio]"), "contiguous"),
                                   P.Split(Regex("t+"), "removed", invert=False), P.Split(Regex(r"\w"), "merged_with_previous", invert=True), P.ByteLevel(use_regex=False)]),
                                   N.Sequence([N.NFKD(), N.Replace(Regex(r"\d{2,}"), "#"), N.Replace("ll", "L")]), added=ADDED[:2])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=pathlib.Path(__file__).parent / "data" / "tokenizer", type=pathlib.Path)
    parser.add_argument("--vocabulary", type=int, default=400)
    parser.add_argument("--lines", type=int, default=60)
    arguments = parser.parse_args()
    for name, tokenizer in tokenizers_of(arguments.vocabulary):
        folder = arguments.out / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        lines = [line for line in tokenizer_lines.make_lines(200 + arguments.lines, 7, added) if len(line) < 200][:arguments.lines]
        golden = []
        for line in lines:
            ids = tokenizer.encode(line).ids
            golden.append({"text": line, "ids": ids, "plain": tokenizer.encode(line, add_special_tokens=False).ids,
                           "all": tokenizer.decode(ids, skip_special_tokens=False), "skip": tokenizer.decode(ids)})
        for row in golden:  # what follows from the others is left out
            row.pop("plain") if row["plain"] == row["ids"] else None
            row.pop("skip") if row["skip"] == row["all"] else None
            row.pop("all") if row["all"] == row["text"] else None
        (folder / "lines.json").write_text(json.dumps(golden, ensure_ascii=False, separators=(",", ":")) + "\n")
        print(name, tokenizer.get_vocab_size(), sum(f.stat().st_size for f in folder.iterdir()))


if __name__ == "__main__":
    main()
