"""Lines of mixed text from a seed: scripts, emoji, code, numbers, white space, control characters, special
tokens inside text, very long and empty lines. Shared by make_tokenizer.py and compare_tokenizer.py."""
import random

SENTENCES = [
    "The quick brown fox jumps over the lazy dog's back, doesn't it? I'LL SAY we've seen it: 'twas N'T so.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Ёлка, объём.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία· όλος ο κόσμος, ΣΟΦΟΣ σοφός.",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر ٠١٢٣٤٥٦٧٨٩ وَالشَّمْسِ",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה שָׁלוֹם",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश ०१२३ क्षत्रिय",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ๐๑๒",
    "我能吞下玻璃而不伤身体。天地玄黃,宇宙洪荒。第一百二十三章　“你好”",
    "いろはにほへと ちりぬるを カタカナ ガギグ ﾊﾝｶｸ 東京都2024年",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. 한글",
    "Příliš žluťoučký kůň úpěl ďábelské ódy; naïve café Å Å é ﬁ ﬂ ① ½ ² Ⅷ ǅ ß ẞ İ ı",
    "Tiếng Việt: Trời đất dung hoà, người người kính ngưỡng",
    "ქართული ენა, Հայերեն լեզու, አማርኛ ቋንቋ, ភាសាខ្មែរ, မြန်မာ, བོད་ཡིག, தமிழ் மொழி",
]
CODE = [
    "def f(x: int) -> str:\n    return f'{x:>10}'  # comment\n\n\tif not x:\n\t\tpass",
    "for (int i=0;i<n;++i){a[i]+=b[i]*2.5e-3f;} // TODO?\r\n#include <vector>",
    "SELECT * FROM t WHERE a<>'b' AND c>=10;", "https://www.example.org/a/b?x=1&y=%20z#frag user@mail.example.com",
    "{\"key\": [1, 2.0, null, true], \"s\": \"\\u00e9\\n\"}", "C:\\Users\\x\\file.txt ~/bin/run.sh --flag=1 $HOME `ls` || exit 1",
    "<html><body class=\"x\">&nbsp;</body></html> <s> </s> [INST] hi [/INST] <0x41> <unk> <|x|>",
]
EMOJI = ["😀", "👩‍👩‍👧‍👦", "👍🏽", "🇩🇪🇫🇷", "❤️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🤷🏿‍♀️", "☃", "1️⃣", "🫨", "✈︎"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n\n", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028", "\u0085",
          "\u180e", "\u1680", "\x0b", "\x0c", " \n ", "    \t  ", "\ufeff", "\u202f", "\r", "\u205f"]
CONTROL = ["\x00", "\x01", "\x1b[31m", "\x7f", "\x9f", "\u200d", "\u200e", "\u202e", "\ufffd", "\ufffe", "\U0010ffff", "\ue000"]
MARKS = ["e\u0301", "a\u0308\u0323", "o\u0302\u0301", "\u0301", "n\u0303", "\u1100\u1161\u11a8", "\u0915\u093c", "\u0344", "\u2126", "\u212b", "\uf900", "\ufb2c"]
NUMBERS = ["0", "7", "42", "1234567890", "3.14159", "1,000,000", "-17", "6.02e23", "0xDEADBEEF", "２０２４", "٤٢", "²³", "Ⅻ", "1/2", "99%"]
WORDS = "the of and to in is don't I'm we're they'll he'd you've IT'S O'Brien rock'n'roll state-of-the-art A.B.C. x_y_z camelCaseName HTTPServer".split()


def make_lines(count, seed, special=()):
    random_ = random.Random(seed)
    special = list(special) or ["<|endoftext|>"]

    def character():
        kind = random_.random()
        if kind < 0.3:
            return chr(random_.randrange(32, 127))
        if kind < 0.6:
            return chr(random_.randrange(0x80, 0x3000))
        if kind < 0.9:
            return chr(random_.choice([random_.randrange(0x3000, 0xD800), random_.randrange(0xE000, 0x10000)]))
        return chr(random_.randrange(0x10000, 0x110000 if kind < 0.92 else 0x32000))

    def part():
        kind = random_.randrange(15)
        if kind < 3:
            words = random_.choice(SENTENCES).split(" ")
            start = random_.randrange(len(words))
            return " ".join(words[start:start + random_.randrange(1, 8)])
        if kind == 3:
            code = random_.choice(CODE)
            start = random_.randrange(len(code))
            return code[start:start + random_.randrange(1, 40)]
        if kind == 4:
            return "".join(random_.choices(EMOJI, k=random_.randrange(1, 4)))
        if kind == 5:
            return "".join(random_.choices(SPACES, k=random_.randrange(1, 5)))
        if kind == 6:
            return random_.choice(CONTROL)
        if kind == 7:
            return "".join(random_.choices(MARKS, k=random_.randrange(1, 4)))
        if kind == 8:
            return random_.choice(NUMBERS)
        if kind == 9:
            return "".join(character() for _ in range(random_.randrange(1, 12)))
        if kind == 10:
            token = random_.choice(special)
            return random_.choice([token, token, " " + token + "  ", token[:-1], "a" + token + "b", token.upper()])
        if kind == 11:
            return random_.choice("ab!=-_.😀中 ") * random_.choice([2, 3, 5, 17, 60])
        return random_.choice(WORDS)

    lines = ["", " ", "\n", "  \n  ", "a", "😀" * 300, "x" * 5000, " " * 3000, "中文" * 2000, "a b " * 2500,
             "=" * 4000, "\u0301" * 400, "".join(SENTENCES) * 8, "\n".join(CODE) * 10, "1234567890" * 300]
    while len(lines) < count:
        joint = random_.choice(["", " ", " ", " "])
        lines.append(joint.join(part() for _ in range(random_.choice([1, 2, 3, 5, 8, 20]))))
    return lines[:count]
