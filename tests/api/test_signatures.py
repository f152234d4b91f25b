"""What a notebook, `help` and a type checker show of the Python face."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import tokmill
from tokmill.errors import UsageError
from tokmill.settings.names import by_keyword
from tokmill.settings.schema import PRETRAIN_SECTIONS, SFT_SECTIONS
from tokmill.settings.signature import IN_SIGNATURES

_PROJECT = Path(tokmill.__file__).parents[2]


@pytest.mark.parametrize(
    "package", [tokmill, tokmill.loader, tokmill.bill], ids=lambda p: p.__name__
)
def test_dir_lists_the_public_names_and_nothing_else(package):
    assert dir(package) == sorted(package.__all__)
    assert all(getattr(package, name) is not None for name in package.__all__)


@pytest.mark.parametrize(
    ("function", "sections"),
    [(tokmill.pretrain, PRETRAIN_SECTIONS), (tokmill.sft, SFT_SECTIONS)],
    ids=["pretrain", "sft"],
)
def test_a_signature_has_every_setting_with_its_type_and_default(function, sections):
    shown = inspect.signature(function).parameters
    for keyword, setting in by_keyword(sections).items():
        if setting.key not in IN_SIGNATURES:
            assert shown[keyword].default == (None if setting.is_optional else setting.default)
            assert shown[keyword].annotation
            assert f"\n    {keyword}: " in function.__doc__
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in shown.values())


FACES = [
    *(getattr(tokmill, name) for name in tokmill.__all__ if name != "TokmillError"),
    *(getattr(tokmill.bill, name) for name in tokmill.bill.__all__),
    *(getattr(tokmill.loader, name) for name in tokmill.loader.__all__),
    *(value for name, value in vars(tokmill.Dataset).items() if not name.startswith("_")),
]
NUMBERS = ("val_fraction", "min_tokens", "window_overlap", "metric_batches", "loader_workers")
NUMBERS += ("host_experts", "kv_block", "seed", "epoch", "rank", "workers", "fim_rate", "stream")
"""Parameters whose default 0 is a number as others are."""


@pytest.mark.parametrize("face", [face for face in FACES if inspect.isfunction(face)])
def test_what_is_not_given_is_none(face):
    for name, parameter in inspect.signature(face).parameters.items():
        default = parameter.default
        is_number = name in NUMBERS and not isinstance(default, str)
        if isinstance(default, str | int | float) and not isinstance(default, bool):
            assert is_number or default not in ("", 0, -1), name


EMPTY = {
    "pretrain": {"template": "", "strip_end": "", "where": "", "pattern": "", "output": ""},
    "sft": {"template_kwargs": "", "default_system": "", "date": "", "tokenizer": ""},
    "plan": {"gpu": "", "tokenizer": ""},
    "mix": {"shuffle": -1, "dedup": "", "where": "", "dtype": "", "output": ""},
    "verify": {"tokenizer": ""},
    "open": {"tokenizer": "", "split": ""},
    "stats": {"by": "", "tokenizer": ""},
}


@pytest.mark.parametrize(
    ("name", "keyword"), [(name, keyword) for name in EMPTY for keyword in EMPTY[name]]
)
def test_what_stands_for_nothing_is_no_value(name, keyword, pretrained):
    value = EMPTY[name][keyword]
    given = [pretrained.directory] if name in ("verify", "open", "stats") else ["a.jsonl"]
    with pytest.raises(UsageError) as caught:
        getattr(tokmill, name)(given[0], **{keyword: value})
    assert f"{keyword}: expected " in str(caught.value)
    assert f"found {value!r}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keyword", ["template", "where"])
def test_what_stands_for_nothing_is_no_value_of_a_source(keyword, tokenizer_dir, tmp_path):
    source = tokmill.Source("web", [{"text": "hello"}], **{keyword: ""})
    with pytest.raises(UsageError, match=f"^{keyword}: expected a value, found ''"):
        tokmill.pretrain(source, tokenizer=tokenizer_dir, output=tmp_path / "out")


def test_a_default_that_the_help_explains_is_a_value(monkeypatch, tmp_path):
    monkeypatch.setenv("TOKMILL_MAX_TOKENS", "3")
    rows = [{"text": "hello there " * 9}]
    settings = {"tokenizer": _PROJECT / "data_samples" / "tokenizer", "progress": False}
    made = tokmill.pretrain(rows, output=tmp_path / "a", max_tokens=0, workers=0, **settings)
    assert len(made) == 1


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("tokmill.pret", "pretrain"),
        ("tokmill.loader.wind", "windows"),
        ("tokmill.bill.train", "training"),
        ("tokmill.pretrain(val_", "val_fraction="),
        ("tokmill.sft(max_tok", "max_tokens="),
        ("tokmill.mix(shuf", "shuffle="),
        ("tokmill.bill.of(check", "checkpointing="),
    ],
)
def test_ipython_completes(typed, completed):
    pytest.importorskip("IPython", reason="needs the extra dev")
    from IPython.core.completer import IPCompleter, provisionalcompleter

    completer = IPCompleter(namespace={"tokmill": tokmill})
    with provisionalcompleter():
        offered = {offer.text for offer in completer.completions(typed, len(typed))}
    assert completed in offered


_CALLS = {
    'tokmill.pretrain("a.jsonl", tokenizer="t", output="o", val_fraction=0.1)': "",
    'tokmill.pretrain("a.jsonl", tokenizer="t", output="o", val_fracton=0.1)': "val_fracton",
    'tokmill.pretrain("a.jsonl", tokenizer="t", output="o", val_fraction="x")': "val_fraction",
    "tokmill.pack('o')": "length",
    "tokmill.pretrian('a.jsonl')": "pretrian",
    "tokmill.loader.window('o')": "window",
    "tokmill.bill.trainings('gpt2')": "trainings",
    'tokmill.open("o").texts(0)': "texts",
    'tokmill.read("a.jsonl", where=lambda record: record["n"] > 1, format=None)': "",
    'tokmill.read("a.jsonl", wher=print)': "wher",
    'tokmill.encode(tokmill.render("a.jsonl"), "t")': "",
    'tokmill.encode(["a"], "t", engin="reference")': "engin",
    'tokmill.encode(["a"], "t", threads="x")': "threads",
    "tokmill.Encoder()": "tokenizer",
    'tokmill.Encoder("t")(["a"]).to_pylists()': "to_pylists",
    'tokmill.open("o", split="")': "split",
    'tokmill.sft("a.jsonl", packing=None, date=None, where="my_filter:keep")': "",
}


def test_a_type_checker_finds_a_wrong_name_a_wrong_type_and_a_missing_argument(tmp_path):
    pytest.importorskip("mypy", reason="needs the extra dev")
    script = tmp_path / "calls_of_a_user.py"
    script.write_text("import tokmill\n" + "".join(f"{call}\n" for call in _CALLS))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(script)],
        cwd=_PROJECT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    # Messages that mypy has kept of an earlier run name the folder of that run.
    errors = [line for line in checked.stdout.splitlines() if ": error: " in line]
    for number, (call, word) in enumerate(_CALLS.items(), start=2):
        messages = [line for line in errors if f"/{script.name}:{number}:" in line]
        assert len(messages) == bool(word), (call, checked.stdout)
        assert not word or word in messages[0], (call, messages)


@pytest.mark.parametrize("name", ["eos_token", "dtype", "labels", "weights", "alignment"])
def test_an_import_refuses_an_empty_text_in_place_of_none(name, tokenizer_dir, tmp_path) -> None:
    rows = tmp_path / "a.jsonl"
    rows.write_text('{"input_ids": [5, 6, 0]}\n')
    with pytest.raises(UsageError, match=f"{name}: expected a text or None, found ''"):
        tokmill.import_dataset(
            rows,
            trainer="jsonl",
            output=tmp_path / "out",
            tokenizer=tokenizer_dir,
            **{name: ""},  # type: ignore[arg-type]
        )
