"""A tokenizer that names code of its own (`auto_map`) is read, and the code does not run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cli.conftest import SAMPLES
from tests.cli.conftest import tokmill as tokmill  # the fixture


def test_code_beside_a_tokenizer_does_not_run(tokmill, tmp_path: Path):
    planted = tmp_path / "tokenizer"
    shutil.copytree(SAMPLES / "tokenizer", planted)
    names = {"AutoTokenizer": ["planted.Slow", "planted.Fast"], "AutoConfig": "planted.Config"}
    for name in ("tokenizer_config.json", "config.json"):
        path = planted / name
        found = json.loads(path.read_bytes()) if path.exists() else {}
        path.write_text(json.dumps({**found, "auto_map": names, "trust_remote_code": True}))
    for name in ("planted.py", "__init__.py", "sitecustomize.py", "tokenizers.py", "planted.pkl"):
        (planted / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    words = ("-t", planted, "-o", tmp_path / "out", "--engine", "reference", "--workers", "1")
    ended = tokmill("pretrain", SAMPLES / "records.jsonl", *words)
    assert ended.code == 0, ended.err
    assert tokmill("verify", tmp_path / "out").code == 0
    assert not (tmp_path / "ran").exists()
