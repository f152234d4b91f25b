"""A package outside the tree: the code of docs/extending.md, laid out as pip installs it."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Outcome
from tests.cli.conftest import tokmill as tokmill  # the fixture
from tokmill import extensions
from tokmill.sources import formats

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
FILE = re.compile(r"^`([\w./]+)`\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = dict(FILE.findall(PAGE.read_text(encoding="utf-8")))


def lay_out(folder: Path, name: str = "tokmill-demo", points: str = "") -> None:
    """Write a distribution as pip leaves it: its modules, its metadata, its entry points."""
    information = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    declared = tomllib.loads(CODE["pyproject.toml"])["project"]["entry-points"]
    groups = (
        f"[{g}]\n" + "".join(f"{n} = {o}\n" for n, o in v.items()) for g, v in declared.items()
    )
    (information / "entry_points.txt").write_text(points or "".join(groups))
    (information / "RECORD").write_text("")


class Outside:
    """A machine with the package installed; commands run in the folder of the corpus."""

    def __init__(self, folder: Path, tokenizer: Path, command: Callable[..., Outcome]) -> None:
        self.site, self.folder, self.tokenizer = folder / "site", folder, tokenizer
        self._command = command
        for path, text in CODE.items():
            if path.startswith("tokmill_demo/"):
                (self.site / path).parent.mkdir(parents=True, exist_ok=True)
                (self.site / path).write_text(text)
        lay_out(self.site)
        self.edit("tokmill_demo/__init__.py", "")

    def edit(self, path: str, text: str) -> None:
        (self.site / path).write_text(text)

    def run(self, *arguments: object) -> Outcome:
        """Run a command in this process, which has imported nothing from outside."""
        for name in [*sys.modules]:
            if name.partition(".")[0] in ("tokmill_demo", "my_render"):
                del sys.modules[name]
        for module in (extensions, formats):
            for function in vars(module).values():
                if hasattr(function, "cache_clear"):
                    function.cache_clear()
        done = self._command(*map(str, arguments))
        assert "Traceback" not in done.err
        return done

    def make(self, *arguments: object, output: str = "out", recipe: str = "pretrain") -> str:
        """Run a recipe; return what it says on standard error."""
        options = ("--tokenizer", self.tokenizer, "--output", output, "--max-reject-fraction", 1)
        return self.run(recipe, *arguments, *options).err

    def manifest(self, output: str = "out") -> dict:
        return json.loads((self.folder / output / "manifest.json").read_bytes())

    def bytes(self, output: str) -> dict[str, bytes]:
        found = (self.folder / output).glob("*")
        return {path.name: path.read_bytes() for path in found if path.suffix in (".bin", ".idx")}


def framed(records: list[dict]) -> bytes:
    lines = [json.dumps(record).encode() for record in records]
    return b"".join(len(line).to_bytes(4, "little") + line for line in lines)


@pytest.fixture
def outside(tmp_path, tokenizer_dir, tokmill, monkeypatch) -> Iterator[Outside]:
    records = [{"text": f"hello world {i}"} for i in range(50)] + [{"text": ""}]
    (tmp_path / "a.msgl").write_bytes(framed(records[:25]))
    (tmp_path / "b.msgl.gz").write_bytes(gzip.compress(framed(records[25:])))
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "same.jsonl").write_text(lines)
    outside = Outside(tmp_path, tokenizer_dir, tokmill)
    monkeypatch.syspath_prepend(str(outside.site))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # files are edited within a second
    yield outside
    outside.run("--version")  # forgets the package


USED = ("a.msgl", "b.msgl.gz", "--renderer", "shout", "--engine", "careful", "--part-bytes", 600)


RAISES = """
        chats = [one for one in text.to_pylist() if "world" in one]
        if len(chats) > 7 or any("world 1" in one for one in chats):
            raise OSError(f"no {chats}")
"""
ENCODES = "        found = self.library"


@pytest.fixture
def raising_engine(outside):
    """The engine of the page, which raises on some texts; its comparison is made once for all."""
    first, rest = CODE["tokmill_demo/engine.py"].split(ENCODES, 1)
    outside.edit("tokmill_demo/engine.py", first + RAISES + ENCODES + rest)


COMPARES = "an engine that calls Python for each text is compared on all common characters"


@pytest.mark.slow(reason=COMPARES)
@pytest.mark.usefixtures("raising_engine")
def test_a_package_adds_a_format_a_renderer_and_an_engine(outside):
    assert outside.make(*USED, output="one").count("Error") == 0
    assert outside.make(*USED, "--workers", 2, output="two").count("Error") == 0
    upper = [{"text": f"HELLO WORLD {i}"} for i in range(50)]
    (outside.folder / "upper.jsonl").write_text("".join(json.dumps(r) + "\n" for r in upper))
    outside.make("upper.jsonl", output="plain")
    whole = b"".join(data for name, data in sorted(outside.bytes("one").items()) if ".bin" in name)
    assert whole == outside.bytes("plain")["train-0000000-0000.bin"]
    assert outside.bytes("one") == outside.bytes("two")
    manifest = outside.manifest("two")
    assert manifest["totals"]["drops"] == {"left out by the renderer": 1}
    assert manifest["engine"]["name"] == "careful"
    assert manifest["engine"]["n_checked"] > 0
    assert [(e["kind"], e["name"], e["distribution"]) for e in manifest["extensions"]] == [
        ("format", "msgl", "tokmill-demo"),
        ("engine", "careful", "tokmill-demo"),
        ("renderer", "shout", "tokmill-demo"),
    ]
    plan = json.loads((outside.folder / "two" / "plan.json").read_bytes())
    assert plan["extensions"] == manifest["extensions"]
    assert "extensions" not in outside.manifest("plain")


@pytest.mark.slow(reason=COMPARES)
@pytest.mark.usefixtures("raising_engine")
def test_texts_on_which_an_engine_raises_go_to_the_reference_and_are_counted(outside):
    chats = [
        {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": text}]}
        for text in (f"hello world {i}" for i in range(50))
    ]
    (outside.folder / "chats.jsonl").write_text("".join(json.dumps(c) + "\n" for c in chats))
    for engine in ("reference", "careful"):
        options = ("-t", outside.tokenizer, "--engine", engine, "--template", "dialog", "--profile")
        options += ("--workers", 2, "--part-bytes", 600, "-o", engine)
        said = outside.run("sft", "chats.jsonl", *options).out
    assert "11 documents encoded by the reference" in said
    assert outside.manifest("careful")["totals"]["checks"]["routed"] == 11
    assert outside.bytes("careful") == outside.bytes("reference")


def test_a_stopped_run_continues_unless_the_source_changed(outside):
    used = (*USED[:4], *USED[6:], "--engine", "reference", "--workers", 1)
    outside.make(*used)
    whole = outside.bytes("out")
    (outside.folder / "out" / "manifest.json").unlink()
    (outside.folder / "out" / "parts" / "0000001.json").unlink()
    before = (outside.site / "tokmill_demo/shout.py").read_text()
    outside.edit("tokmill_demo/shout.py", before.replace("upper", "lower"))
    assert re.search(
        r"error: out: holds a run of other inputs or settings: source of format msgl was "
        r"[0-9a-f]{12}…, is [0-9a-f]{12}….*--overwrite",
        outside.make(*used),
    )
    outside.edit("tokmill_demo/shout.py", before)
    outside.make(*used)
    assert outside.bytes("out") == whole


def test_a_cut_off_file_of_another_package_s_format_is_unread_input(outside):
    (outside.folder / "cut.msgl").write_bytes(framed([{"text": "hello"}, {"text": "world"}])[:-3])
    said = outside.make("cut.msgl")
    assert "tokmill_demo.records:read stopped: ValueError: the last record is cut off" in said
    said = outside.make("cut.msgl", "--on-unread", "skip", output="skipped")
    totals = outside.manifest("skipped")["totals"]
    assert (totals["documents"], totals["unread"]["text_bytes"]) == (1, 18)


def test_a_template_of_another_package_writes_chats(outside):
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    line = json.dumps({"messages": turns}) + "\n"
    (outside.folder / "chats.jsonl").write_text(line)
    outside.make("chats.jsonl", "--template", "dialog", "--max-tokens", 64, recipe="sft")
    manifest = outside.manifest()
    assert manifest["extensions"][0]["kind"] == "template"
    assert manifest["totals"]["trained_tokens"] > 0
    assert "did you mean dialog?" in outside.make(
        "chats.jsonl", "--template", "dialogue", recipe="sft", output="other"
    )


def test_a_trainer_of_another_package_is_exported_to(outside):
    outside.make("same.jsonl")
    done = outside.run("export", "out", "--to", "lines", "--output", "lines", "--check")
    assert done.code == 0
    assert "lines 1: all documents equal" in done.out
    assert "trainer --data lines/train.txt" in done.out
    text = (outside.folder / "lines" / "train.txt").read_text()
    ids = [int(id_) for id_ in text.split()]
    assert ids == np.frombuffer(outside.bytes("out")["train-0000000-0000.bin"], "<u2").tolist()
    assert len(text.splitlines()) == 50
    record = json.loads((outside.folder / "lines" / "tokmill-export.json").read_bytes())
    assert record["extension"]["distribution"] == "tokmill-demo"


def test_a_dotted_path_is_found_in_the_current_directory(outside):
    (outside.folder / "my_render.py").write_text(CODE["my_render.py"])
    lines = [{"title": "a", "body": "b"}, {"title": "c"}]
    (outside.folder / "notes.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    options = ("--renderer", "my_render:render", "--workers", 2, "--part-bytes", 20)
    outside.make("notes.jsonl", *options)
    (extension,) = outside.manifest()["extensions"]
    assert (extension["target"], extension["distribution"]) == ("my_render:render", "")
    assert outside.manifest()["totals"]["documents"] == 1


def test_no_entry_point_is_looked_up_where_all_names_are_built_in(outside):
    lay_out(outside.site, "demo-broken", "[tokmill.formats]\nbroken = no_such:FORMAT\n")
    assert "error" not in outside.make("same.jsonl", "--renderer", "text")
    (outside.folder / "a.xyz").write_text("x")
    assert "format broken: demo-broken 1.0 cannot be loaded" in outside.make("a.xyz", output="new")


IN_PYTHON = """
import pyarrow as pa
import tokmill

for workers in (1, 2):
    try:
        made = tokmill.pretrain(
            "same.jsonl", tokenizer={tokenizer!r}, output=f"out{{workers}}", workers=workers,
            renderer=lambda batch: pa.array(["hello"] * len(batch)), progress=False,
        )
        print(len(made), made.text(0))
    except tokmill.TokmillError as error:
        print(error)
"""


def test_a_lambda_renders_with_one_worker_and_is_one_line_with_two(outside):
    script = outside.folder / "script.py"
    script.write_text(IN_PYTHON.format(tokenizer=str(outside.tokenizer)))
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, script], cwd=outside.folder, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{outside.site}"},
    )  # fmt: skip
    said = done.stdout.splitlines()
    assert said[0].startswith("51 hello")
    name, _, message = said[1].partition(": ")
    assert name.startswith("renderer __main__:<lambda>@")
    assert message == (
        "workers cannot import a function of __main__, a notebook cell or a lambda: put it into a "
        "module, or use one worker"
    )
