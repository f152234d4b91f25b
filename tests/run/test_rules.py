"""Rules that change defaults have a number: nothing mixes two of them without a word."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import tokmill
from tokmill.api.functions import finish, import_dataset, mix, pretrain, run_part, sft, write_plan
from tokmill.dataset import rules
from tokmill.dataset.checksum import json_chunks, manifest_sha256
from tokmill.dataset.plan_file import plan_fingerprint
from tokmill.errors import StateError

ROWS = [{"text": f"hello world {i}"} for i in range(40)]
CHATS = [
    {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
] * 9
HISTORY = dict(rules.HISTORY)
__all__ = ["tokmill"]


@pytest.fixture
def settings(tmp_path, write_rows, tokenizer_dir):
    write_rows(tmp_path / "in.jsonl", ROWS)
    return {"tokenizer": tokenizer_dir, "output": tmp_path / "out", "part_bytes": 200}


def newest(*names: str) -> dict[str, list[int]]:
    """Return the numbers of rules of this tokmill."""
    return {name: [len(HISTORY[name])] for name in names}


def without_rules(path: Path) -> None:
    """Make a plan or a manifest one from before there were rules."""
    data = json.loads(path.read_bytes())
    del data["rules"]
    data = {k: v for k, v in data.items() if k not in ("fingerprint", "sha256")}
    is_plan = path.name == "plan.json"
    data |= (
        {"fingerprint": plan_fingerprint(data)} if is_plan else {"sha256": manifest_sha256(data)}
    )
    path.chmod(0o600)
    path.write_bytes(b"".join(json_chunks(data)))


def test_plan_and_manifest_hold_the_rules_of_their_kind(tmp_path, settings, write_rows):
    made = pretrain(tmp_path / "in.jsonl", **settings)
    plan = json.loads((tmp_path / "out/plan.json").read_bytes())
    assert made.manifest["rules"] == plan["rules"] == newest("reading", "rendering")
    write_rows(tmp_path / "chats.jsonl", CHATS)
    made = sft(
        tmp_path / "chats.jsonl",
        tokenizer=settings["tokenizer"],
        output=tmp_path / "sft",
        template="plain",
    )
    assert made.manifest["rules"] == newest("reading", "chats")


@pytest.mark.parametrize("name", ["reading", "rendering"])
def test_a_run_under_another_rule_does_not_continue(tmp_path, settings, monkeypatch, name):
    write_plan(tmp_path / "in.jsonl", **settings)
    run_part(settings["output"], 0, 2)
    monkeypatch.setitem(rules.HISTORY, name, (*HISTORY[name], "in a newer way"))
    n = len(HISTORY[name])
    words = {"reading": "how text is read", "rendering": "how records are rendered"}[name]
    said = (
        f"holds a run that began under other rules: {words}: rule {n} ({HISTORY[name][-1]}), here "
        f"rule {n + 1} (in a newer way): choose another output"
    )
    for again in (
        lambda: pretrain(tmp_path / "in.jsonl", **settings),
        lambda: write_plan(tmp_path / "in.jsonl", **settings),
        lambda: run_part(settings["output"], 1, 2),
        lambda: finish(settings["output"]),
    ):
        with pytest.raises(StateError, match=re.escape(said)):
            again()
    made = pretrain(tmp_path / "in.jsonl", overwrite=True, **settings)
    assert made.manifest["rules"][name] == [n + 1]


def test_a_rule_of_chats_alone_stops_no_run_of_documents(tmp_path, settings, monkeypatch):
    pretrain(tmp_path / "in.jsonl", **settings)
    monkeypatch.setitem(rules.HISTORY, "chats", (*HISTORY["chats"], "in a newer way"))
    pretrain(tmp_path / "in.jsonl", **settings)


def test_a_plan_without_rules_has_the_first_ones(tmp_path, settings):
    pretrain(tmp_path / "in.jsonl", **settings)
    without_rules(tmp_path / "out/plan.json")
    with pytest.raises(StateError, match=r"how text is read: rule 1 \(as the first"):
        pretrain(tmp_path / "in.jsonl", **settings)


def test_a_mix_names_datasets_of_other_rules_and_keeps_all_numbers(
    tmp_path, settings, tokmill, monkeypatch
):
    pretrain(tmp_path / "in.jsonl", **settings)
    monkeypatch.setitem(rules.HISTORY, "rendering", (*HISTORY["rendering"], "in a newer way"))
    monkeypatch.chdir(tmp_path)
    pretrain("in.jsonl", **settings | {"output": "new"})
    n = len(HISTORY["rendering"])
    for planned in (("--plan",), ()):
        outcome = tokmill("mix", "out", "new", "-o", "mixed", *planned)
        said = (
            f"new: made under other rules: how records are rendered: rule {n + 1} (in a newer way)"
        )
        assert f"{said}, that of out rule {n} ({HISTORY['rendering'][-1]})" in outcome.err
    assert json.loads(Path("mixed/manifest.json").read_bytes())["rules"] == {
        **newest("reading"),
        "rendering": [n, n + 1],
    }
    assert mix(["mixed", "new"], output="again").manifest["rules"]["rendering"] == [n, n + 1]
    assert tokmill("verify", "mixed").code == 0
    assert f"how records are rendered: rule {n} (" in tokmill("report", "mixed").out
    assert (
        f"rules: reading {len(HISTORY['reading'])}, rendering {n} and {n + 1}\n"
        in tokmill("inspect", "mixed").out
    )


def test_a_dataset_without_rules_is_mixed_as_one_of_the_first(tmp_path, settings, tokmill):
    pretrain(tmp_path / "in.jsonl", **settings)
    pretrain(tmp_path / "in.jsonl", **settings | {"output": tmp_path / "old"})
    without_rules(tmp_path / "old/manifest.json")
    outcome = tokmill("mix", tmp_path / "out", tmp_path / "old", "-o", tmp_path / "mixed")
    assert outcome.code == 0
    assert "old: made under other rules: how text is read: rule 1 (as the first" in outcome.err


def test_an_import_reads_no_text_and_has_no_rules(tmp_path, settings, tokmill):
    made = pretrain(tmp_path / "in.jsonl", **settings)
    files = sorted(map(str, (tmp_path / "out").glob("*.bin")))
    where = {"tokenizer": settings["tokenizer"], "output": tmp_path / "imported"}
    imported = import_dataset(files, trainer="megatron", **where)
    assert imported.manifest["rules"] == {}
    outcome = tokmill("mix", tmp_path / "out", tmp_path / "imported", "-o", tmp_path / "mixed")
    assert outcome.code == 0
    assert "rules" not in outcome.err
    mixed = json.loads((tmp_path / "mixed/manifest.json").read_bytes())
    assert mixed["rules"] == made.manifest["rules"]
