from __future__ import annotations

import pytest

from tokmill.executors.run import run_parts
from tokmill.place import open_place
from tokmill.run.begin import Begun
from tokmill.run.output import records_of_parts


class StoppedError(Exception):
    pass


def test_a_run_stopped_at_any_report_goes_on_to_the_same_bytes(
    tmp_path, configure, plan_of, write_rows
):
    rows = [{"text": f"hello {i} " * (i % 5)} for i in range(40)]
    paths = [
        write_rows(tmp_path / "a.jsonl", [*rows, b"{bad"]),
        write_rows(tmp_path / "b.jsonl", rows[:3]),
        write_rows(tmp_path / "c.jsonl", rows[5:9]),
    ]
    settings = {"part_bytes": 350, "block_bytes": 300, "shard_tokens": 100, "val_fraction": 0.3}

    def run(name: str, most_reports: int | None = None) -> list[object]:
        config = configure(tmp_path / name, *paths, **settings)
        plan = plan_of(config)
        heard: list[object] = []

        def report(progress: object) -> None:
            if len(heard) == most_reports:
                raise StoppedError
            heard.append(progress)

        place = open_place(str(tmp_path / name))
        done, _ = records_of_parts(plan, place, place.entries())
        parts = [part for part in plan.parts if part.index not in done]
        run_parts(Begun(place, plan, 1), parts, report)
        return heard

    n_reports = len(run("unbroken"))
    want = {path.name: path.read_bytes() for path in files(tmp_path / "unbroken")}
    assert len(list((tmp_path / "unbroken" / "parts").iterdir())) > 4
    for k in range(0, n_reports, 3):
        name = f"stopped-{k}"
        with pytest.raises(StoppedError):
            run(name, k)
        assert not [path for path in files(tmp_path / name) if path.name.startswith(".")]
        done = [path for path in files(tmp_path / name) if len(path.name) == len("0000000.json")]
        parts = {path.stem for path in done}
        kept = {
            path: (path.stat().st_ino, path.stat().st_mtime_ns)
            for path in files(tmp_path / name)
            if parts & set(path.stem.split("-"))
        }
        run(name)
        assert {path.name: path.read_bytes() for path in files(tmp_path / name)} == want
        for path, stat in kept.items():
            assert (path.stat().st_ino, path.stat().st_mtime_ns) == stat


def files(directory):
    return [path for path in directory.rglob("*") if path.is_file()]
