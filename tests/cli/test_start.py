"""The modules that a command imports: each costs every run about a millisecond."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.cli.conftest import SAMPLES

NOT_OF_PRETRAINING = (
    "IPython", "jinja2", "psutil", "pyarrow.csv", "pyarrow.dataset", "pyarrow.parquet",
    "rich", "sentencepiece", "tokmill.bill.full_bill", "tokmill.bill.host_ram", "tokmill.chat",
    "tokmill.cli.bill", "tokmill.cli.sft", "tokmill.dataset.packs", "tokmill.executors.processes",
    "tokmill.loader", "tokmill.page.report", "tokmill.run.forecast",
    "tokmill.trainers", "torch", "transformers",
)  # fmt: skip


@pytest.fixture
def imports(tmp_path, tokenizer_dir):
    """Return the modules that a command on JSON Lines imports, in order."""

    def run(verb: str, *words: str) -> list[str]:
        command = [sys.executable, "-X", "importtime", "-m", "tokmill", verb, *words]
        command += ["-t", str(tokenizer_dir), "-o", str(tmp_path / "out"), "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-900:]
        return re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", done.stderr, re.MULTILINE)

    return run


def named(modules: list[str], packages: tuple[str, ...]) -> list[str]:
    return [one for one in modules if any(f"{one}.".startswith(f"{p}.") for p in packages)]


def test_pretraining_imports_only_what_it_uses(imports):
    found = imports("pretrain", str(SAMPLES / "records.jsonl"))
    assert "tokmill.recipes.pretrain" in found
    assert named(found, NOT_OF_PRETRAINING) == []


def test_pretraining_on_parquet_imports_its_reader(imports):
    found = imports("pretrain", str(SAMPLES / "records.parquet"))
    assert named(found, NOT_OF_PRETRAINING)[0].startswith("pyarrow.parquet")
