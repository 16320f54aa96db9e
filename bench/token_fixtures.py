"""Makes the vectors of the tokenizers with GPT-2's pre-tokenizer: SmolLM2's, rebuilt from its GGUF file, and a small
one trained on the texts. Needs the packages tokenizers 0.23.3 and gguf.

usage: token_fixtures.py FILE.gguf OUT      FILE.gguf is that of .deps/smollm2, OUT is bench/fixtures/hf/tokenizers
"""
import gzip
import json
import pathlib
import random
import sys
import unicodedata

import gguf
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

TEXTS = 3000
file, out = sys.argv[1], pathlib.Path(sys.argv[2])
assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
random.seed(38)


def smollm2():
    fields = gguf.GGUFReader(file).fields
    tokens, types, merges = (fields["tokenizer.ggml." + key].contents() for key in ("tokens", "token_type", "merges"))
    assert fields["tokenizer.ggml.pre"].contents() == "smollm"
    merges = [tuple(m.split(" ")) for m in merges]
    t = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, types) if kind == gguf.TokenType.CONTROL]
    t.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    return t, control


def gpt2(texts):
    t = tokenizers.Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=1200, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(texts, trainer)
    return t


WORDS = """the folder file move copy it's IT'S don't we'll we'Ll they've 'tis o'clock naïve café Ärger straße ſet 'ſ
Москва привет 東京 日本語 你好 한국어 العربية हिन्दी ไทย 🙂 👩‍👩‍👧 😀😀 e\u0301 A\u030a ﬁ Ⅻ ² ½ ٣٤ 一 1 12 1234567 3.14 0x1F 1e-7 v2.0
foo_bar(a=1) x[i]+=2; {"k": [1, 2]} <b>&amp;</b> // -- ... !? == != <|im_start|> <|im_end|> <|endoftext|> <tool_call>
https://example.org/a?b=c#d C:\\dir\\file.txt user@example.org $HOME ~/x #1 @2 %3 a1b2c3 1a2b 10km x² H₂O""".split()
GAPS = ["", " ", "  ", "   ", "\n", "\n\n", " \n", "\n ", "\t", "\r\n", " \t ", "\u00a0", "\u2003", "\u3000", "\u0085",
        "\u2028", "\u200b", "\ufeff", "\x1c", "\x0b", "\x00", "\x04", "\x06", "\x13\x14", "'", " '", "'s", "'S", "'LL"]
# Assigned in Unicode 14, so also in Go's tables and in the library's.
CHARACTERS = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Cs", "Co")]


def text(i):
    n = random.randint(1, 12)
    match i % 4:
        case 0:  # words with any space between them
            return "".join(random.choice(GAPS) + random.choice(WORDS) for _ in range(n)) + random.choice(GAPS)
        case 1:  # pieces without an order
            return "".join(random.choice(random.choice((GAPS, WORDS, "0123456789  abcXYZ'.,-_\n"))) for _ in range(2 * n))
        case 2:  # any characters
            return "".join(random.choice((*random.choices(CHARACTERS, k=3), " ", "1", "a", "'")) for _ in range(n))
    return " ".join(random.choice(WORDS) for _ in range(n))


texts = ["", "  123", "a\x04b", "th\x04e", " " * 300 + "x", "\n" * 300, "1" * 300, "a" * 2000, "ab " * 300, "ü" * 700]
texts += [text(i) for i in range(TEXTS - len(texts))]
large, control = smollm2()
small = gpt2(texts)


def plain(t, s):
    """The ids of s, of which nothing is an added token."""
    ids = []
    for word, _ in t.pre_tokenizer.pre_tokenize_str(s):
        ids += [token.id for token in t.model.tokenize(word)]
    return ids


def write(name, data):
    (out / (name + ".gz")).write_bytes(gzip.compress(data.encode(), 9, mtime=0))


write("smollm2.tokenizer.json", large.to_str())
write("gpt2_small.tokenizer.json", small.to_str())
for name, t in (("smollm2", large), ("gpt2_small", small)):
    lines = []
    for i, s in enumerate(texts):
        v = {"kind": "given" if i < 10 else "random %d" % (i % 4), "text": s, "ids": plain(t, s),
             "ids_with_specials_parsed": t.encode(s, add_special_tokens=False).ids}
        v["decoded"] = t.decode(v["ids_with_specials_parsed"], skip_special_tokens=False)
        skipped = t.decode(v["ids_with_specials_parsed"])
        if skipped != v["decoded"]:
            v["decoded_skip_special_tokens"] = skipped
        lines.append(json.dumps(v, ensure_ascii=False) + "\n")
    write(f"vectors_{name}.jsonl", "".join(lines))
print(len(texts), "texts;", len(control), "control tokens")
