"""Blocks are encoded before `ready` returns; nothing is written before that."""

from __future__ import annotations

import pytest

from tokmill.errors import StorageError
from tokmill.executors import processes
from tokmill.recipes.pretrain import PretrainRecipe
from tokmill.run.part import run_part


@pytest.fixture
def plan(tmp_path, configure, plan_of, write_rows):
    """A plan of one part with several blocks; each document is a commit."""
    source = write_rows(tmp_path / "in.jsonl", [{"text": f"hello {i}"} for i in range(40)])
    return plan_of(configure(tmp_path / "out", source, shard_tokens=1, batch_bytes=200))


def files(directory) -> list[str]:
    return [str(path) for path in directory.rglob("*") if path.is_file()]


def test_a_block_is_encoded_before_ready_and_nothing_is_written(plan, tmp_path, run_alone):
    recipe, encoded = PretrainRecipe(plan.spec), []
    process = recipe.process

    def observed(blocks):
        encoded.append(len(blocks))
        return process(blocks)

    recipe.process = observed
    seen = []

    def ready() -> None:
        seen.append((bool(encoded), files(tmp_path / "out")))

    record = run_part(plan.spec, plan.parts[0], lambda: recipe, lambda _: None, ready=ready)
    assert seen[0] == (True, [])
    assert record.counts().documents == 40
    assert files(tmp_path / "out")


@pytest.mark.parametrize("error", [KeyboardInterrupt, StorageError, RuntimeError])
def test_an_error_of_ready_stops_the_part_without_a_file(plan, tmp_path, error):
    def ready() -> None:
        raise error("not ready")

    heard = []
    with pytest.raises(error, match="not ready"):
        run_part(
            plan.spec,
            plan.parts[0],
            lambda: PretrainRecipe(plan.spec),
            heard.append,
            checkpoint_s=0,
            ready=ready,
        )
    assert heard == []
    assert files(tmp_path / "out") == []


def test_worker_processes_get_no_part_before_ready(plan, tmp_path):
    seen = []
    found = processes.run_parts(
        plan.spec, plan.parts, seen.append, 2, lambda: seen.append(files(tmp_path / "out"))
    )
    assert [record.part for record in found] == [0]
    assert seen[0] == []
    assert sum(progress.documents for progress in seen[1:]) == 40
