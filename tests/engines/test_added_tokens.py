"""Added tokens where they meet normalizers, patterns, prefixes, flags and each other."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter

import pytest

import tokmill
import tokmill.engines.choose as module
from bench.parity import compare, own_bases
from tokmill.engines.added_tokens import AddedTokens, divide_added_tokens, for_engine
from tokmill.engines.choice import CharacterComparison
from tokmill.engines.choose import EngineRequest, choose_engine
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, is_installed
from tokmill.engines.routing import RoutedEngine, ids_of_each
from tokmill.errors import TokenizerError
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.tokenizer import load_tokenizer
from tokmill.tokenizer.tokenizer_json import replace_step, sequence

needs_fast_engines = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)

NFC, LOWERCASE = {"type": "NFC"}, {"type": "Lowercase"}
REMOVES = replace_step({"Regex": "e+"}, "")
SPLITS = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
RAW, NORMAL = {"normalized": False}, {"normalized": True}
LEFT, RIGHT, WORD = {"lstrip": True}, {"rstrip": True}, {"single_word": True}

MEETINGS = {
    "made of a compatibility ideograph": (
        "金",
        RAW,
        NFC,
        ["\uf90a x", "x\uf90a", "金", "a金\uf90a"],
    ),
    "made of one, normalized": ("金", NORMAL, NFC, ["\uf90a x", "x\uf90a", "金"]),
    "is what is changed": ("\uf90a", RAW, NFC, ["\uf90a x", "金"]),
    "is what is changed, normalized": ("\uf90a", NORMAL, NFC, ["\uf90a x", "金"]),
    "a mark": ("\u0301", RAW, NFC, ["\u0341", "e\u0301", "e\u0341", "é", "é\u0323", "x \u0301"]),
    "a mark, normalized": ("\u0301", NORMAL, NFC, ["\u0341", "e\u0301", "x\u0301", "é\u0323"]),
    "composed": ("é", RAW, NFC, ["e\u0301", "é", "é\u0323", "e\u0341", "ḗ", "e\u0323\u0301"]),
    "composed, normalized": ("é", NORMAL, NFC, ["e\u0301", "é", "é\u0323", "e\u0341"]),
    "decomposed": ("e\u0301", RAW, NFC, ["e\u0301", "é", "ae\u0301\u0323"]),
    "decomposed, normalized": ("e\u0301", NORMAL, NFC, ["e\u0301", "é", "e\u0341"]),
    "joined at its end": ("<a>", RAW, NFC, ["<a>\u0338", "<a>", "<a\u226f", "x<a>\u0301"]),
    "joined at its end, normalized": ("<a>", NORMAL, NFC, ["<a>\u0338", "<a>", "<a\u226f"]),
    "Hangul": ("가", RAW, NFC, ["\u1100\u1161", "가\u11a8", "각", "가"]),
    "marks move past it": ("x\u0323", NORMAL, NFC, ["x\u0301\u0323", "x\u0323"]),
    "a sign with another form": (";", RAW, NFC, ["a\u037eb", "a;b"]),
    "a letter with another form": ("K", RAW, NFC, ["\u212a", "K", "K\u0301"]),
    "lower case": ("word", NORMAL, LOWERCASE, ["Word", "word", "WORD"]),
    "lower case of a word": ("word", RAW, LOWERCASE, ["Word", "word", "WORD"]),
    "upper case": ("Word", RAW, LOWERCASE, ["Word", "word"]),
    "upper case, normalized": ("Word", NORMAL, LOWERCASE, ["Word", "word"]),
    "strips on the left": ("<a>", LEFT, None, ["x \u3000\n<a> y", "x\xa0<a>", "  <a>"]),
    "strips on the right": ("<a>", RIGHT, None, ["x <a>\u3000\n y", "<a>\x85y", "<a>\u2028"]),
    "single words": ("hel", WORD, None, ["hel hello", "hel_", "(hel)", "中hel", "hel\u0301"]),
    "white space": ("  ", RAW, None, ["a   b", "    ", "a  \n", "  hello", " \xa0 "]),
    "a contraction": ("'s", RAW, None, ["it's", "'s's", "it''s"]),
    "line breaks": ("\n\n", RAW, NFC, ["a\n\nb", "\n\n\n", "\n\u0301", "a\n\n\u0338x"]),
    "line breaks, normalized": ("a\n", NORMAL, NFC, ["a\nb", "\u0301a\n", "a\u0301\n"]),
    "a line break in lower case": ("\n", RAW, LOWERCASE, ["A\nB", "\n"]),
    "made by leaving out": ("wor", RAW, REMOVES, ["weor", "wor"]),
}


@pytest.fixture
def given(tokenizer_dir, tmp_path):
    """Load the tiny tokenizer with other added tokens, normalizer and pre-tokenizer."""

    def load(tokens, normalizer=None, pre_tokenizer=SPLITS):
        data = json.loads((tokenizer_dir / "tokenizer.json").read_text())
        plain = dict.fromkeys(("special", "normalized", "lstrip", "rstrip", "single_word"), False)
        data["added_tokens"] = [token for token in data["added_tokens"] if token["special"]]
        data["added_tokens"] += [
            {"id": id_, "content": content, **plain, **flags}
            for id_, (content, flags) in enumerate(tokens, 290)
        ]
        data["normalizer"], data["pre_tokenizer"] = normalizer, pre_tokenizer
        (tmp_path / "tokenizer.json").write_text(json.dumps(data))
        return load_tokenizer(TokenizerSettings(path=str(tmp_path), eos_token="<eos>"))

    return load


def compared(tokenizer, texts, name, control="text"):
    """Return the ids of an engine that was chosen as in a run, and those of the reference."""
    request = EngineRequest(tokenizer, name, control, 1, None, lambda _: ["hello world"] * 9)
    choice = choose_engine(request, has_continuations=False)
    if name == REFERENCE:
        return [ids.tolist() for ids in ids_of_each(request.load_reference(), texts)]
    engine = request.engines.load(
        choice.name, for_engine(tokenizer, choice.added), control_in_text=control
    )
    routed = RoutedEngine(engine, request.load_reference, choice.routes)
    reference = request.load_reference()
    return [[ids.tolist() for ids in ids_of_each(one, texts)] for one in (routed, reference)]


@pytest.fixture
def no_comparison(monkeypatch):
    """Engines are not compared on characters: their documents have none that differ."""
    monkeypatch.setattr(module, "known_comparison", lambda *_: CharacterComparison())


@needs_fast_engines
@pytest.mark.usefixtures("no_comparison")
@pytest.mark.parametrize(
    ("name", "meeting"),
    [
        (name, meeting)
        for meeting, (_, _, normalizer, _) in MEETINGS.items()
        for name in FAST_ENGINES
        if name == "fastokens" or normalizer in (None, NFC)  # gigatoken loads no others
    ],
)
def test_an_engine_gives_the_ids_of_the_reference_where_a_token_meets_a_normalizer_or_a_flag(
    given, name, meeting
):
    content, flags, normalizer, texts = MEETINGS[meeting]
    tokenizer = given([(content, flags)], normalizer)
    around = ["{}", "a{}b", " {} ", "{0}{0}", "中{}\u0301"]
    found, expected = compared(tokenizer, [*texts, *(a.format(content) for a in around)], name)
    assert found == expected


@needs_fast_engines
@pytest.mark.parametrize("control", ["text", "parse"])
@pytest.mark.parametrize(
    ("tokens", "texts"),
    [
        ([("<|a|>", {"special": True}), ("a|>x", {})], ["<|a|>x", "a|>x", "<|a|>", "<a|>x"]),
        ([("b c", RAW), ("a b", NORMAL)], ["a b c", "a b", "b c", "a b a b c"]),
        ([("ab", {}), ("abc", {}), ("bc", {})], ["abc", "abbc", "ababc", "xbcab"]),
        ([("<a>", {}), ("<a>b", RIGHT), (" <a>", LEFT)], ["  <a>b  c", " <a>", "<a>b"]),
        ([("x", {"single_word": True}), ("xy", {})], ["x xy xyz", "x_xy"]),
        ([("e\u0301", NORMAL), ("\u0301", RAW)], ["e\u0301", "é", "\u0301"]),
    ],
)
def test_tokens_that_overlap_get_the_ids_of_the_reference(given, tokens, texts, control):
    tokenizer = given(tokens, NFC)
    for name in FAST_ENGINES:
        found, expected = compared(tokenizer, texts, name, control)
        assert found == expected


@needs_fast_engines
@pytest.mark.usefixtures("no_comparison")
def test_a_prefix_is_put_before_each_piece_between_tokens(given):
    tokenizer = given([("<a>", {}), ("he", {})], NFC, {**SPLITS, "add_prefix_space": True})
    found, expected = compared(tokenizer, ["x<a>y", "<a> y", "the<a>he"], "gigatoken")
    assert found == expected


@needs_fast_engines
@pytest.mark.parametrize("name", ["reference", "gigatoken"])
def test_a_text_on_which_the_reference_itself_fails_is_an_error_of_one_line(given, name):
    """A token that takes white space after it, before white space that takes what is before."""
    tokenizer = given([("<a>", RIGHT), ("  ", LEFT)])
    found, expected = compared(tokenizer, ["<a> x", "a  b"], "gigatoken")
    assert found == expected
    with pytest.raises(TokenizerError, match=r"fails on the text that begins .y<a>   x. .*: leave"):
        compared(tokenizer, ["hello", "y<a>   x"], name)


def test_few_characters_are_routed_for_tokens_that_stand_for_themselves(given):
    tokens = [("<tool>", {}), ("金", {}), ("  ", NORMAL), ("llo", {})]
    added = divide_added_tokens(given(tokens, NFC), parse=False)
    assert added.given == (290, 291, 292, 293)
    assert added.routes.strings == ()
    codes = set(added.routes.characters.codes())
    assert codes >= {0x338, 0xF90A, 0x301}  # behind `>`, for 金, behind `o`
    assert not any(chr(code).isalnum() for code in codes - {0xF90A})


def test_without_a_normalizer_no_character_is_routed(given):
    added = divide_added_tokens(given([("金", {}), ("ab", NORMAL), ("x", LEFT)]), parse=False)
    assert added == AddedTokens.from_json({"given": [290, 291], "characters": [], "strings": ["x"]})


def test_special_tokens_are_found_by_an_engine_only_where_their_strings_are_parsed(given):
    tokenizer = given([])
    assert divide_added_tokens(tokenizer, parse=False) == AddedTokens()
    assert divide_added_tokens(tokenizer, parse=True).given == (0, 1, 2)


def test_tokens_with_flags_are_left_to_the_reference_up_to_a_number(given):
    many = given([(f"<{number}>", RIGHT) for number in range(300)])
    with pytest.raises(TokenizerError, match="300 of its added tokens have flags, or text "):
        divide_added_tokens(many, parse=False)


@pytest.mark.parametrize(
    ("normalizer", "reason"),
    [
        (REMOVES, "is found in normalized text, and which texts"),
        (sequence("normalizer", [{"type": "Prepend", "prepend": "hello"}]), "can be made of the"),
    ],
)
def test_an_engine_is_refused_where_it_is_unknown_what_becomes_a_token(given, normalizer, reason):
    with pytest.raises(TokenizerError, match=reason):
        divide_added_tokens(given([("hello", NORMAL)], normalizer), parse=False)


def test_only_marks_and_inner_letters_of_hangul_join_the_character_before_them():
    """A token that begins with another character is never joined to the text before it."""
    for code in range(0x30000):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and "<" not in parts[0]:
            second = chr(int(parts[1], 16))
            assert unicodedata.category(second)[0] == "M"
    assert unicodedata.normalize("NFC", "\u1100\u1161\u11a8") == "각"


@needs_fast_engines
def test_a_run_writes_the_ids_of_the_reference_for_text_that_becomes_an_added_token(
    given, tmp_path, write_rows
):
    tokenizer = given([("金", RAW)], NFC)
    texts = ["\uf90a x", "金 x", "hello", "e\u0301\uf90a"]
    source = write_rows(tmp_path / "in.jsonl", [{"text": text} for text in texts])
    written = {}
    for engine in ("gigatoken", REFERENCE):
        with tokmill.pretrain(
            source,
            tokenizer=tokenizer.name,
            eos_token="<eos>",
            output=tmp_path / engine,
            engine=engine,
            progress=False,
        ) as dataset:
            written[engine] = [dataset[i].tolist() for i in range(len(texts))]
    assert written["gigatoken"] == written[REFERENCE]
    assert 291 not in written[REFERENCE][0]


@needs_fast_engines
def test_generated_tokenizers_get_the_ids_of_the_reference_or_no_engine():
    """A few of those that `python -m bench.parity` makes, whose kinds the shipped table knows."""
    counts: Counter[str] = Counter()
    for number in (3, 4, 8, 9, 11):
        counts += compare(number, seed=1, count=300, bases=own_bases())
    assert counts["different"] == counts["other choice with a warm cache"] == 0
    assert counts["documents"] >= 2000
    assert 0 < counts["routed"] < counts["documents"]
