"""Short texts on which encoders have been seen to part; an engine must agree on every one."""

from __future__ import annotations

_RUNS = [character * n for character in " \n\ta0中é." for n in (1, 2, 3, 4, 7, 8, 16, 33, 130)]

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
    "The quick brown fox 敏捷的棕色狐狸 быстрая лиса",
    "a" * 3000,
    "中" * 1500,
    "ab " * 1200,
]


def hostile_texts(control: list[str]) -> list[str]:
    """Give the texts, with the tokenizer's own control strings inside words, spaces and lines."""
    framed = [
        frame.format(token)
        for token in control[:64]
        for frame in ("{}", "a{}b", " {} ", "x\n{}\ny", "{0}{0}", "中{}文")
    ]
    return _RUNS + _WORDS + framed
