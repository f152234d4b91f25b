"""Settings that name something of the data and match nothing: a warning that `-q` keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import SAMPLES, write_lines

CHAT = {
    "conversations": [{"from": "agent", "value": "hello"}, {"from": "user", "value": "hi"}],
    "reasoning": "x",
}
CHAT["conversations"].reverse()

CASES = [
    (("--ignore-keys", "reasonning"), "no 'reasonning' in the first records: did you mean reaso"),
    (("--ignore-keys", "zzzz"), "--ignore-keys: no 'zzzz' in the first records"),
    (("--role-names", "agnet=assistant,agent=assistant"), "no 'agnet' in the first records: did y"),
    (("--ignore-keys", "reasoning", "--role-names", "agent=assistant"), ""),
]


def warnings(outcome) -> list[str]:
    return [line for line in outcome.err.splitlines() if line.startswith("warning: ")]


@pytest.mark.parametrize(("words", "said"), CASES)
def test_keys_and_roles_of_chats_are_compared_with_the_first_records(
    tokmill, sft, tmp_path, words, said
):
    path = write_lines(tmp_path / "in.jsonl", [CHAT] * 5)
    words = ("--max-reject-fraction", "1", "--role-names", "agent=assistant", *words)
    named = ("-t", SAMPLES / "tokenizer", "--engine", "reference", "--recipe", "sft")
    for outcome in (tokmill("plan", path, *named, *words), sft(path, "-q", *words)):
        found = [line for line in warnings(outcome) if "first records" in line]
        assert len(found) == (1 if said else 0), outcome.err
        assert said in "".join(found)


def test_a_kept_field_that_no_record_has_is_a_warning_with_quiet(pretrain, good: Path):
    line, _ = warnings(pretrain(good, "--keep", "ulr", "-q"))
    assert line.startswith("warning: --keep=ulr: the first records have no value there")


# At the end of the sample and of the run: in all records

REPLY = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
BODY = {"text": "hello world"}
LATE = 60
"""Records; more than the first ones that are looked at before a run."""


def with_late(record: dict, late: dict) -> list[dict]:
    return [*[record] * LATE, late]


def of_reply(text: str) -> dict:
    return {"messages": [REPLY["messages"][0], {"role": "assistant", "content": text}]}


ALL_RECORDS = [
    # recipe, words, a record without what they name, one that has it, the end of the line
    ("pretrain", ("--keep", "ulr"), BODY, {**BODY, "ulr": "u"}, "has a value in 'ulr'"),
    ("pretrain", ("--keep", "m.u"), BODY, {**BODY, "m": {"u": 1}}, "has a value in 'm.u'"),
    ("pretrain", ("--strip-end", "<end>"), BODY, {"text": "hi<end> \n"}, "ends with '<end>'"),
    (
        "pretrain",
        ("--fields", "text=text,text=contnet"),
        BODY,
        {"contnet": "hi"},
        "has a value in 'contnet'",
    ),
    (
        "pretrain",
        ("--fields", "text=text,text=m.t"),
        BODY,
        {"m": {"t": "hi"}},
        "has a value in 'm.t'",
    ),
    (
        "pretrain",
        ("--fields", "title=hedline", "--renderer", "article"),
        {"title": "a", "summary": "hello"},
        {"hedline": "b", "summary": "hello"},
        "has a value in 'hedline'",
    ),
    ("pretrain", ("--template", "{titel}\n{text}"), BODY, {"titel": "hi"}, "value in 'titel'"),
    ("sft", ("--keep", "ulr"), REPLY, {**REPLY, "ulr": 3}, "has a value in 'ulr'"),
    ("sft", ("--ignore-keys", "lable"), REPLY, {**REPLY, "lable": "x"}, "has 'lable'"),
    (
        "sft",
        ("--role-names", "机器=assistant"),
        REPLY,
        {"messages": [REPLY["messages"][0], {"role": "机器", "content": "hi"}]},
        "has '机器'",
    ),
    (
        "sft",
        ("--role-names", "Meta=drop"),
        REPLY,
        {"messages": [{"role": "meta", "content": "hi"}]},  # nothing is left: a drop
        "has 'Meta'",
    ),
    (
        "sft",
        ("--weigh", "<thnk>.*?</thnk>=0.0"),
        REPLY,
        of_reply("<thnk>a</thnk>hello"),
        "matches '<thnk>.*?</thnk>'",
    ),
]


def about_all(outcome, where: str) -> list[str]:
    return [line for line in warnings(outcome) if f" of {where} " in line]


@pytest.mark.parametrize(("recipe", "words", "record", "late", "end"), ALL_RECORDS)
def test_a_name_that_no_record_has_is_a_warning_at_the_end_and_a_late_one_none(
    tokmill, tmp_path, recipe, words, record, late, end
):
    without = write_lines(tmp_path / "without.jsonl", [record] * (LATE + 1))
    having = write_lines(tmp_path / "having.jsonl", with_late(record, late))
    common = ("-t", SAMPLES / "tokenizer", "--engine", "reference", *words)
    limit = ("--max-reject-fraction", "1", "--workers", "1", "-q")
    outcome = tokmill(recipe, without, "-o", tmp_path / "a", *common, *limit)
    (line,) = about_all(outcome, "this run")
    assert line.startswith(f"warning: {words[0]}: no ")
    assert line.endswith(end)
    outcome = tokmill(recipe, having, "-o", tmp_path / "b", *common, *limit)
    assert outcome.code == 0
    assert about_all(outcome, "this run") == []
    if words[0] not in ("--keep", "--ignore-keys", "--role-names"):  # first records: see above
        (line,) = about_all(tokmill("plan", without, "--recipe", recipe, *common), "the sample")
        assert line.endswith(end)


def test_a_separator_that_stands_in_no_text_is_a_warning(tokmill, tmp_path):
    (tmp_path / "in").mkdir()
    for i, text in enumerate(["one\n\ntwo", "three"]):
        (tmp_path / f"in/{i}.txt").write_text(text)
    common = (tmp_path / "in", "-t", SAMPLES / "tokenizer", "--engine", "reference")
    for separator, n in (("=====", 1), ("\\n\\n", 0)):
        words = ("--text-separator", separator)
        planned = tokmill("plan", *common, *words)
        assert len(about_all(planned, "the sample")) == 0
        made = tokmill("pretrain", *common, *words, "-o", tmp_path / f"o{n}", "-q")
        assert len([line for line in warnings(made) if "divides no text file" in line]) == n
        assert len([line for line in warnings(planned) if "divides no text file" in line]) == n


def test_an_array_says_so_when_it_is_finished(tokmill, tmp_path):
    path, out = write_lines(tmp_path / "in.jsonl", [REPLY] * 3), tmp_path / "out"
    words = ("-t", SAMPLES / "tokenizer", "--engine", "reference", "--weigh", "zzz=0.0")
    assert tokmill("plan", path, "--recipe", "sft", *words, "-o", out, "--write").code == 0
    assert tokmill("run-part", out, "--index", "0", "--of", "1", "-q").code == 0
    assert len(about_all(tokmill("finish", out, "-q"), "this run")) == 1


def test_a_setting_of_one_source_is_compared_with_all_records_too(tokmill, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [REPLY] * 3)
    source = f'name = "web", paths = ["{path}"], ignore_keys = ["zzz"]'
    words = ("-t", SAMPLES / "tokenizer", "--engine", "reference", "-o", tmp_path / "o", "-q")
    outcome = tokmill("sft", "--source", source, *words)
    assert [line for line in about_all(outcome, "this run") if line.endswith("has 'zzz'")]
