#!/usr/bin/env python3
"""Writes common/tokenizer/newer_characters.cpp: characters that the regular expressions of Hugging Face
`tokenizers` (Oniguruma) know and that Debian 12's PCRE2 does not, each with a character of the same general
category, script (as far as Han matters) and UTF-8 length to stand in for it.

    tests/golden/make_newer_characters.py > common/tokenizer/newer_characters.cpp

Needs: tokenizers 0.23, a C compiler and libpcre2-dev of the system that Tandem is built on.
"""
import pathlib
import subprocess
import sys
import tempfile

from tokenizers import Regex, pre_tokenizers

PROBE = r"""
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
int main(int n, char** a) {
    int e; size_t o; unsigned char b[4]; unsigned c;
    pcre2_code* p = pcre2_compile((PCRE2_SPTR)a[1], PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &e, &o, 0);
    pcre2_match_data* m = pcre2_match_data_create(1, 0);
    for (c = 1; c < 0x110000; c++) {
        int l = 1;
        if (c >= 0xd800 && c < 0xe000) continue;
        if (c < 0x80) b[0] = c;
        else if (c < 0x800) { l = 2; b[0] = 0xc0 | c >> 6; }
        else if (c < 0x10000) { l = 3; b[0] = 0xe0 | c >> 12; b[1] = 0x80 | (c >> 6 & 63); }
        else { l = 4; b[0] = 0xf0 | c >> 18; b[1] = 0x80 | (c >> 12 & 63); b[2] = 0x80 | (c >> 6 & 63); }
        if (l > 1) b[l - 1] = 0x80 | (c & 63);
        if (pcre2_match(p, b, l, 0, PCRE2_ANCHORED, m, 0) > 0) printf("%d\n", c);
    }
    return n != 2;
}
"""
CATEGORIES = "Lu Ll Lt Lm Lo Nd Nl No Mn Mc Me Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cf".split()
ALL = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]


def oniguruma(expression):
    removed = pre_tokenizers.Split(Regex(expression), "removed")
    return {c for c in ALL if not removed.pre_tokenize_str(chr(c))}


def main():
    with tempfile.TemporaryDirectory() as folder:
        source, probe = pathlib.Path(folder, "probe.c"), pathlib.Path(folder, "probe")
        source.write_text(PROBE)
        subprocess.run(["cc", "-O2", str(source), "-o", str(probe), "-lpcre2-8"], check=True)

        def pcre2(expression):
            run = subprocess.run([str(probe), expression], check=True, capture_output=True, text=True)
            return {int(c) for c in run.stdout.split()}

        han_here, han_there = pcre2(r"\p{sc:Han}"), oniguruma(r"\p{Han}")
        stand_ins = {0x180E: 0x2061}  # PCRE2's \s takes it for white space
        for category in CATEGORIES:
            here = pcre2(r"\p{%s}" % category)
            for c in oniguruma(r"\p{%s}" % category) - here:
                length = len(chr(c).encode())
                alike = (x for x in sorted(here) if len(chr(x).encode()) == length)
                stand_ins[c] = next(x for x in alike if (x in han_here) == (c in han_there))
            print(category, len(stand_ins), file=sys.stderr)

    ranges = []
    for c in sorted(stand_ins):
        if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == stand_ins[c]:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, stand_ins[c]])
    print("// Written by tests/golden/make_newer_characters.py: assigned after Unicode 14, which Debian 12's PCRE2 knows.")
    print('#include "common/tokenizer/newer_characters.h"\n\nnamespace tandem::tokenizer {\nnamespace {\n')
    print("// clang-format off\nconstexpr NewerCharacters kNewerCharacters[] = {")
    for start in range(0, len(ranges), 3):
        print("    " + " ".join("{0x%05X, 0x%05X, 0x%05X}," % tuple(r) for r in ranges[start:start + 3]))
    print("};\n// clang-format on\n\n}  // namespace\n")
    print("std::span<const NewerCharacters> newer_characters() { return kNewerCharacters; }\n")
    print("}  // namespace tandem::tokenizer")
    print(len(ranges), "ranges", file=sys.stderr)


if __name__ == "__main__":
    main()
