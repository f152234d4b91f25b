"""Texts such as have broken encoders; every run compares engines and conversions on them."""

from __future__ import annotations

_RUNS = [character * n for character in " \n\ta0中é." for n in (1, 2, 3, 4, 7, 8, 16, 33, 130)]

# Every byte of UTF-8: all of ASCII, all continuation bytes, all leading bytes.
_BYTES = [*range(0xC0), *range(0xC0, 0x800, 0x40), *range(0x800, 0xD800, 0x1000)]
_BYTES += [0xD000, 0xE000, 0xF000, *range(0x10000, 0xE0000, 0x40000), 0x100000]

_WORDS = [
    "",
    "Hello world",
    "  leading and trailing  ",
    "tab\tand\ttabs\t\t and  double",
    "line\nline\r\nline\rline\n\n\nend\n",
    " \n \n",
    "\n \t\r\n x",
    "I'm you're he'd we'll they've it's don't I'M DON'T L'été",
    "’s ’ll ‘quoted’ “double”",
    "123 1234 12345 1,234,567.89 ３.１４ ²³¼ Ⅷ ①",
    "CamelCase snake_case kebab-case SCREAMING_CASE x1y2z3",
    "def f(x):\n    return x  # comment\n\n\nclass A:\n\tpass\n",
    '<html><body class="a">&amp;&#x4e2d;</body></html>',
    "https://example.org/a?b=c&d=%20#e user@example.org",
    "$E = mc^2$ \\frac{a}{b} \\\\ {{name}}",
    "中文：维基百科，自由的百科全书。",
    "日本語のテキスト、カタカナ ｶﾀｶﾅ 한국어 텍스트",
    "한글",
    "ﬁ ﬂ ㎏ Å Å Å K ℌ",
    "café café naïve Ａｂｃ１２３",
    "עברית العربية ١٢٣ हिन्दी ไทย ภาษา ਪੰਜਾਬੀ",
    "ÀÉÎÕÜß straße İstanbul ıI ſ",
    "👍 👍🏽 👨‍👩‍👧‍👦 🇨🇳 ❤️ ☃ 𝔘𝔫𝔦 𠜎𠜱",
    "zero\u200bwidth\u200cjoin\u200der\ufeffbom\u2060 soft\u00adhyphen",
    "\u00a0nbsp\u2003em\u3000ideographic\u2028line\u2029para\u0085nel\u000bvt\u000cff",
    "nul\x00bell\x07esc\x1b[0m del\x7f",
    "replacement \ufffd private \ue000\uf8ff noncharacter \ufdd0",
    "\u202eright to left\u202c combining a\u0301\u0302\u0303\u0304\u0305\u0306",
    "▁ ▁▁ _ ▁a Ġ Ċ Ġa",
    "<s> </s> <unk> <pad> <bos> <eos> <0x0A> <0xE4>",
    "a<s>b</s>c <s></s>",
    "<|endoftext|> <|im_start|>user\nhi<|im_end|> <|begin_of_text|><|eot_id|>",
    "[CLS] [SEP] [MASK] [UNK] <extra_id_0>",
    "<|endoftext|",
    "|>",
    "<|",
    "<",
    "</s",
    "<s >",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
    # Likely to break rewritten and cached tokenizers: equal scores, graphemes across split points,
    # unusual ends of words, characters with a new or case-folded class.
    ":----------: |---|----| ==== ..... ~~~~~~ x----y aaaa----aaaa",
    "a中\u0301国\u0308 ﬀ¨x ´y\u3000z中▁文 x▁y\u3000 ▁z 中 国，中",
    "a\x1cb\x0bc\u1680d \x1c e\x85f \u2003\x1c\u2003",
    "``quoted'' `` x``y «x» ‹y› ‟z",
    "\u1112\u1161\u11ab ก\u0e33 क\u094dष \u0600 1 🇨🇳🇳🇨 👍🏽x ｶ\uff9e ﾊ\uff9f",
    "it'ſelf 'ſe 'ſo 'K ΑΣ ΑΣΑ ǅ ŉ ẞ",
    "x\U0001ccf1\U00010d41 ꟍ\ua7daa \u1c89\u088f \u061d\u166d\u2e5d 1\U0001e5f12",
    "1 a1  2b22 c333  4444 -5.55e55 6",
    "The quick brown fox 敏捷的棕色狐狸 быстрая лиса",
    "".join(map(chr, _BYTES)),
    "a" * 3000,
    "中" * 1500,
    "ab " * 1200,
]


def hostile_texts(control: list[str]) -> list[str]:
    """Return the texts, and control token strings inside words, spaces and lines."""
    framed = [
        frame.format(token)
        for token in control[:64]
        for frame in ("{}", "a{}b", " {} ", "x\n{}\ny", "{0}{0}", "中{}文")
    ]
    return _RUNS + _WORDS + framed
