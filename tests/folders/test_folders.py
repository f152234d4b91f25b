"""Twelve folders as people have them: one command, no option, right text or one clear line."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tokmill as library
from tests.cli.shapes import en, zh
from tests.folders.corpora import (
    BODIES,
    CHATS,
    CODE,
    ENGLISH,
    PAGES,
    TEXTS,
    WIKI,
    N,
    article,
    chats,
    dialogue,
    documents,
    formula,
    lines,
    packed,
    table,
    texts,
    trained,
)  # fmt: skip

Run = Callable[..., Any]


@pytest.fixture
def made(pretrain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `pretrain` on folders named from their parent; return documents and lines on reading."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[list[str], list[str]]:
        outcome = pretrain(*arguments, "--overwrite")
        assert outcome.code == 0, outcome.err
        return documents(tmp_path / "out"), reading_lines(outcome.err)

    return run


@pytest.fixture
def refused(pretrain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `pretrain` on what cannot be read; return its one line."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 3) -> str:
        outcome = pretrain(*arguments, "--overwrite")
        assert outcome.code == code, outcome.err
        return str(outcome.error)

    return run


def reading_lines(err: str) -> list[str]:
    """Return the lines that say how files are read, or which are not."""
    other = ("input:", "renderer:", "schema:", "first document", "warning", "validation")
    return [line for line in err.splitlines() if not line.startswith(other)]


# 1 to 4: renderers


def test_wiki_tables_of_pages_and_code_are_each_read_by_their_own_renderer(
    made: Run, tmp_path: Path
) -> None:
    for i in range(3):
        lines(tmp_path / f"wiki/{i}.jsonl", WIKI[2 * i : 2 * i + 2])
    table(tmp_path / "c4/a.parquet", [{**row, "timestamp": "2019-01-02"} for row in PAGES])
    lines(tmp_path / "code/a.jsonl", CODE)
    of_folder = {
        "wiki": [formula(row) for row in WIKI],
        "c4": texts(TEXTS),
        "code": texts(CODE, "content"),
    }
    said = {
        "wiki": "wiki/*.jsonl (3 files): encyclopedia: sections[].content ",
        "c4": "c4/a.parquet: text: text 100%; left out: url, timestamp",
        "code": "code/a.jsonl: text: content 100%; left out: path, lang",
    }
    for order in (["wiki", "c4", "code"], ["code", "wiki", "c4"]):
        found, named = made(*order)
        assert found == [text for folder in order for text in of_folder[folder]]
        assert [name.startswith(said[f]) for name, f in zip(named, order, strict=True)] == [
            True
        ] * 3


def test_each_file_of_articles_is_rendered_by_its_own_script(made: Run, tmp_path: Path) -> None:
    lines(tmp_path / "half/en.jsonl", ENGLISH)
    lines(tmp_path / "half/deep/zh.jsonl", WIKI)
    rendered = [*map(formula, WIKI), *map(article, ENGLISH)]
    assert Counter(made("half")[0]) == Counter(rendered)


def test_the_shares_are_named_before_the_run_and_after_it(
    pretrain: Run,
    tokmill: Run,
    tokenizer_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "in/a.jsonl", ENGLISH)
    lines(tmp_path / "in/b.jsonl", WIKI)
    run = pretrain("in")
    assert "warning" not in run.err
    assert "sections: article 58%, encyclopedia 42% of the bytes, by the script of each" in run.err
    said = "rendered by article 6 (50.0%), encyclopedia 6 (50.0%), by the script of each file"
    assert said in run.out
    planned = tokmill("plan", "in", "-t", tokenizer_dir)
    assert "article 50%, encyclopedia 50% of the documents, by the script of" in planned.out


def test_files_beyond_the_sample_are_named_after_the_run(
    pretrain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for i in range(200):
        lines(tmp_path / f"in/{i:03}.jsonl", WIKI[:1] if i == 101 else ENGLISH[:1])
    run = pretrain("in")
    assert "encyclopedia" not in run.err
    assert "rendered by article 199 (99.5%), encyclopedia 1 (0.5%)" in run.out


def test_kana_counts_as_han_and_hangul_does_not(made: Run, tmp_path: Path) -> None:
    section = {"title": "れきし", "content": "むかしむかしあるところにおじいさん"}
    kana = [{"title": "ねこ", "summary": "ねこはどうぶつです", "sections": [section]}] * N
    section = {"title": "역사", "content": "오래된 나룻배는 정오에 강을 건넌다"}
    hangul = [{"title": "강", "summary": "강물은 굽이친다", "sections": [section]}] * N
    lines(tmp_path / "ja/a.jsonl", kana)
    lines(tmp_path / "ko/a.jsonl", hangul)
    assert made("ja")[0] == [formula(kana[0])] * N
    assert made("ko")[0] == [article(hangul[0])] * N


# 5 and 6: chats


def test_three_formats_of_chats_train_the_replies_alone_in_any_order(
    sft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = chats(tmp_path / "in")
    said = {
        "alpaca": "in/alpaca.jsonl: schema alpaca",
        "sharegpt": "in/sharegpt.jsonl: schema conversations",
        "dialogue": "in/dialogue.jsonl: schema messages",
    }
    for order in (paths, paths[::-1]):
        names = [Path(path).stem for path in order]
        outcome = sft(*order, "--overwrite")
        assert outcome.code == 0, outcome.err
        assert trained(tmp_path / "out") == [text for n in names for text in CHATS[n][1]]
        assert reading_lines(outcome.err)[: len(names)] == [said[name] for name in names]


def test_a_file_in_which_the_system_answers_is_one_line_whose_option_works(
    sft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sgd = [dialogue(i, "SYSTEM") for i in range(N)]
    chats(tmp_path / "in", sgd=sgd)
    outcome = sft("in")
    assert outcome.code == 2
    assert outcome.error.startswith("first records of in/sgd.jsonl: no message is the assistant's")
    option = re.search("--source='.*'$", outcome.error)
    assert option is not None, outcome.error
    outcome = sft("in", *shlex.split(option[0]))
    assert outcome.code == 0, outcome.err
    replies = [text for name in sorted(CHATS) for text in CHATS[name][1]]
    assert Counter(trained(tmp_path / "out")) == Counter([*replies, *[en(7, i) for i in range(N)]])


# 7: one broken file


def binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 8)


def cut_off(path: Path) -> None:
    data = gzip.compress("".join(json.dumps({"text": en(40, i)}) for i in range(500)).encode())
    path.with_suffix(".jsonl.gz").write_bytes(data[: len(data) // 2])


def in_gbk(path: Path) -> None:
    lines(path, [{"text": zh(30, i)} for i in range(20)], "gbk")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (binary, "in/b.jsonl: holds binary data, expected jsonl: leave it out of the input"),
        (cut_off, "in/b.jsonl.gz: byte .*: gzip data ends before its end mark"),
        (in_gbk, "the first: in/b.jsonl:1 .* looks like GB18030 \\(.*\\); mend the records"),
    ],
)
def test_one_broken_file_is_one_line_that_names_it(
    pretrain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[Path], None], said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "in/a.jsonl", TEXTS)
    broken(tmp_path / "in/b.jsonl")
    outcome = pretrain("in")
    assert outcome.code in (2, 3)
    assert re.search(said, outcome.error), outcome.error


@pytest.mark.parametrize("broken", [binary, in_gbk])
def test_plan_names_a_broken_file_and_forecasts_the_rest(
    tmp_path: Path, tokmill: Run, tokenizer_dir: Path, broken: Callable[[Path], None]
) -> None:
    lines(tmp_path / "in/a.jsonl", TEXTS)
    broken(tmp_path / "in/b.jsonl")
    outcome = tokmill("plan", tmp_path / "in", "-t", tokenizer_dir, "--engine", "reference")
    assert re.search(rf"^documents +{N}$", outcome.out, re.M), outcome.out
    assert f"{tmp_path}/in/b.jsonl: " in outcome.error


# 8 and 9: nested, packed


def test_packed_files_of_two_schemas(made: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    packed(tmp_path / "in/a.jsonl.gz", PAGES)
    packed(tmp_path / "in/b.jsonl.zst", CODE)
    packed(tmp_path / "in/c.jsonl.gz", PAGES)
    assert made("in") == (
        texts(TEXTS) * 2 + texts(CODE, "content"),
        ["in/*.jsonl.gz (2 files): text: text 100%; left out: url",
         "in/b.jsonl.zst: text: content 100%; left out: path, lang"],
    )  # fmt: skip


# 10: more files than are looked at


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_file_that_was_not_looked_at_and_differs_is_an_error_that_names_it(
    refused: Run, tmp_path: Path, workers: str
) -> None:
    looked_at = {i * 100 // 64 for i in range(64)}
    other = next(i for i in range(50, 100) if i not in looked_at)
    for i in range(100):
        lines(tmp_path / f"in/{i:03}.jsonl", CODE[:2] if i == other else TEXTS[:2])
    assert refused("in", "--workers", workers) == (
        f"in/{other:03}.jsonl: no record can be read: expected any of text; found content, path, "
        "lang; it differs from the files of this folder whose first records were read before the "
        "run: give it its own [[source]], or leave it out"
    )


def test_many_files_of_two_schemas_in_turn(made: Run, tmp_path: Path) -> None:
    for i in range(70):
        lines(tmp_path / f"in/{i:03}.jsonl", CODE[:1] if i % 2 else TEXTS[:1])
    found, named = made("in")
    assert found == [TEXTS[0]["text"]] * 35 + [CODE[0]["content"]] * 35
    assert len(json.loads((tmp_path / "out/plan.json").read_bytes())["parts"]) == 2
    assert named == [
        "in/*.jsonl (35 files): text: text 100%",
        "in/*.jsonl (35 files): text: content 100%; left out: path, lang",
    ]


# 11: what stands beside data


@pytest.mark.parametrize("indent", [None, 2])
def test_an_empty_file_a_readme_and_a_description_beside_data_are_no_documents(
    made: Run, tmp_path: Path, indent: int | None
) -> None:
    lines(tmp_path / "in/data.jsonl", TEXTS)
    (tmp_path / "in/empty.jsonl").touch()
    (tmp_path / "in/README.md").write_text("# Data\n\nAbout it.\n")
    about = {"name": "corpus", "version": "1.0", "license": "MIT"}
    (tmp_path / "in/metadata.json").write_text(json.dumps(about, indent=indent))
    found, named = made("in")
    assert found == texts(TEXTS)
    assert named[0].startswith("ignored: 1 Markdown file (in/README.md): ")
    assert named[1] == (
        "ignored: in/metadata.json: one object, with no key of the others (name, version, "
        "license): to read it, name it"
    )
    found, _ = made("./in/metadata.json", "in/data.jsonl", "--fields", "text=text,text=name")
    assert found == ["corpus", *texts(TEXTS)]


def test_files_of_one_object_each_are_documents(made: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i, row in enumerate(PAGES):
        (tmp_path / f"in/{i}.json").write_text(json.dumps(row if i else TEXTS[0]))
    assert made("in")[0] == texts(TEXTS)


def test_a_description_beside_chats_is_no_chat(sft: Run, tmp_path: Path) -> None:
    lines(tmp_path / "in/a.jsonl", CHATS["sharegpt"][0])
    (tmp_path / "in/metadata.json").write_text('{"name": "corpus", "license": "MIT"}')
    assert sft(tmp_path / "in").code == 0
    assert trained(tmp_path / "out") == CHATS["sharegpt"][1]


# 12: several containers, several fields


def test_of_several_text_fields_the_first_that_is_there_is_taken(made: Run, tmp_path: Path) -> None:
    rows = [{"content": "B", "body": "C"}, {"text": "", "content": "B"}, {"body": "C"},
            {"body": "C", "content": "B", "text": "A"}]  # fmt: skip
    lines(tmp_path / "in.jsonl", rows)
    assert made("in.jsonl", "--fields", "text=text,text=content,text=body")[0] == [
        "B",
        "B",
        "C",
        "A",
    ]


def test_what_cannot_be_decided_is_one_line_whose_option_works(
    made: Run, refused: Run, tmp_path: Path
) -> None:
    rows = [{"title": en(9, i), "body": en(11, i)} for i in range(N)]
    lines(tmp_path / "in/a.jsonl", TEXTS)
    lines(tmp_path / "in/b.jsonl", rows)
    error = refused("in", code=2)
    option = error[error.index("--source") :]
    assert option == r"""--source='paths = ["in/b.jsonl"], template = "{title}\n{body}"'"""
    found, _ = made("in", *shlex.split(option))
    assert found == texts(TEXTS) + [f"{row['title']}\n{row['body']}" for row in rows]


def test_a_file_with_titles_beside_files_without_is_not_read_without_them(
    refused: Run, tmp_path: Path
) -> None:
    lines(tmp_path / "in/a.jsonl", [{"body": en(20, i)} for i in range(N)])
    lines(tmp_path / "in/b.jsonl", [{"title": en(4, i), "body": en(20, i)} for i in range(N)])
    assert refused("in", code=2).startswith("in/b.jsonl: the text is not in one field")


# Sources with settings of their own


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('paths = ["a.jsonl"]\nrol_names = {a = "user"}', "rol_names: unknown key; did you mean"),
        ('name = "x"\npaths = ["a.jsonl"]\n[[source]]\nname = "x"\npaths = ["b.jsonl"]',
         "two sources are named 'x': give each its own name"),
        ('name = "x"\npaths = ["a.jsonl"]\n[[source]]\nname = "y"\npaths = ["*.jsonl"]',
         "a.jsonl: in two sources, x and y: name it in one"),
        ('name = "x"\npaths = ["a.jsonl"]\nschema = "text"',
         "source x: schema is a setting of tokmill sft, this is tokmill pretrain"),
        ('name = "x"', "no paths: expected paths = [...], the inputs of the source"),
    ],
)  # fmt: skip
def test_a_wrong_source_is_one_line(refused: Run, tmp_path: Path, toml: str, said: str) -> None:
    lines(tmp_path / "a.jsonl", TEXTS)
    lines(tmp_path / "b.jsonl", TEXTS)
    (tmp_path / "run.toml").write_text(f"[[source]]\n{toml}\n")
    assert said in refused("--config", "run.toml", code=2)


def test_sources_of_toml_have_their_own_settings_and_come_behind_other_inputs(
    made: Run, tmp_path: Path
) -> None:
    lines(tmp_path / "a.jsonl", BODIES)
    lines(tmp_path / "b.jsonl", ENGLISH)
    (tmp_path / "run.toml").write_text(
        '[[source]]\nname = "a"\npaths = ["a.jsonl"]\ntemplate = "<{body}>"\n'
        '[[source]]\nname = "b"\npaths = ["b.jsonl"]\nrenderer = "encyclopedia"\n'
    )
    lines(tmp_path / "c.jsonl", TEXTS)
    found, _ = made("c.jsonl", "--config", "run.toml")
    assert found == [*texts(TEXTS), *[f"<{r['body']}>" for r in BODIES], *map(formula, ENGLISH)]


def framed(batch: pa.RecordBatch) -> pa.Array:
    """Render the column of whole records, each as JSON, as their keys."""
    return pa.array([",".join(json.loads(text)) for text in batch.column(0).to_pylist()])


def test_in_python_a_source_is_an_input_and_a_renderer_a_function(
    tmp_path: Path, tokenizer_dir: Path
) -> None:
    lines(tmp_path / "a.jsonl", CODE)
    lines(tmp_path / "b.jsonl", TEXTS)
    more = {"tokenizer": tokenizer_dir, "engine": "reference", "overwrite": True}
    out = tmp_path / "out"
    source = library.Source("a", tmp_path / "a.jsonl", fields={"text": "path"})
    library.pretrain(source, output=out, **more)
    assert documents(out) == texts(CODE, "path")
    library.pretrain([source, tmp_path / "b.jsonl"], output=out, **more)
    assert documents(out) == texts(TEXTS) + texts(CODE, "path")
    library.pretrain([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], output=out,
                     renderer=framed, **more)  # fmt: skip
    assert documents(out) == ["content,path,lang"] * N + ["text"] * N


# Runs of several readings


@pytest.fixture
def mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder that is read in four ways; return it."""
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "in/a.jsonl", TEXTS)
    lines(tmp_path / "in/b.jsonl", CODE)
    lines(tmp_path / "in/x/c.jsonl", ENGLISH)
    table(tmp_path / "in/x/d.parquet", BODIES)
    return tmp_path / "in"


def test_workers_threads_and_an_array_make_the_same_files(
    mixed: Path, tmp_path: Path, tokmill: Run, tokenizer_dir: Path, files_of: Run
) -> None:
    options = ("in", "-t", tokenizer_dir, "--engine", "reference", "-o")
    outs = [tmp_path / name for name in ("one", "two", "array")]
    assert tokmill("pretrain", *options, outs[0], "--threads", "1").code == 0
    assert tokmill("pretrain", *options, outs[1], "--workers", "2", "--threads", "2").code == 0
    assert tokmill("plan", *options, outs[2], "--write").code == 0
    for index in (1, 0):
        assert tokmill("run-part", outs[2], "--index", index, "--of", "2").code == 0
    assert tokmill("finish", outs[2]).code == 0
    one, two, array = map(files_of, outs)
    assert one == two
    assert one == array
    assert len(json.loads(one["plan.json"])["parts"]) == 4
    for words in (("verify",), ("inspect", "--sample", "9"), ("report",)):
        outcome = tokmill(*words, outs[0])
        assert outcome.code == 0, outcome.err
    for name in ("in/a.jsonl", "in/b.jsonl", "in/x/c.jsonl", "in/x/d.parquet"):
        assert name in outcome.out


def test_another_name_of_a_source_does_not_continue_a_run(made: Run, mixed: Path, pretrain: Run):
    made("--source", 'name = "a", paths = ["in/a.jsonl"]', "in")
    outcome = pretrain("--source", 'name = "b", paths = ["in/a.jsonl"]', "in")
    assert outcome.code == 6
    assert "source of in/a.jsonl was 'a', is 'b'" in outcome.error


def test_a_file_of_few_short_records_is_read_like_the_others_with_its_fields(
    made: Run, tmp_path: Path
) -> None:
    rows = [{"story": en(60, i), "note": en(3, i)} for i in range(N)]
    lines(tmp_path / "in/a.jsonl", rows)
    lines(tmp_path / "in/b.jsonl", [{"story": en(12, 1), "note": en(3, 2), "page": 7}])
    found, _ = made("in")
    assert found == [*(row["story"] for row in rows), en(12, 1)]


def test_sources_are_tables_and_not_names(refused: Run, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("source = ['a.jsonl']\n")
    assert refused("--config", "run.toml", code=2) == (
        "run.toml: input.sources: source 1: expected a table with paths = [...], found 'a.jsonl'"
    )
