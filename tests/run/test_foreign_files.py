"""Files of others in an output directory survive every kind of run."""

from __future__ import annotations

import pytest

from tokmill.errors import StateError
from tokmill.executors.run import run


def test_a_directory_with_a_foreign_plan_is_not_emptied(out, make_config, listener):
    (out / "parts").mkdir(parents=True)
    (out / "plan.json").write_text('{"steps": ["buy milk"]}')
    (out / "parts" / "precious.txt").write_text("years of work")
    with pytest.raises(StateError, match=r"plan\.json: not written by tokmill"):
        run(make_config(), listener, overwrite=True)
    assert (out / "parts" / "precious.txt").read_text() == "years of work"
    assert (out / "plan.json").read_text() == '{"steps": ["buy milk"]}'


@pytest.mark.parametrize(
    ("name", "overwrite"),
    [("thesis.tex", True), ("parts/precious.txt", False), ("rejects/mine", True)],
)
def test_a_run_continues_only_among_its_own_files(
    out, make_config, listener, begun, name, overwrite
):
    (out / name).write_text("years of work")
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    with pytest.raises(StateError, match=rf"holds more than this dataset \({name}\): nothing was"):
        run(make_config(), listener, overwrite=overwrite)
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()} == before


def test_a_resume_does_not_replace_a_foreign_file_with_the_name_of_a_shard(
    out, make_config, listener, begun
):
    last = max(out.glob("train-*.bin"))
    (out / "parts" / f"{last.name[6:13]}.json").unlink(missing_ok=True)
    last.unlink()
    last.write_bytes(b"years of work")
    with pytest.raises(StateError) as caught:
        run(make_config(), listener)
    assert str(caught.value) == (
        f"{last}: this run did not write that file: move it away and run the same command again"
    )
    assert last.read_bytes() == b"years of work"
    last.unlink()
    assert run(make_config(), listener)["files"] == begun["files"]


@pytest.mark.parametrize(("folder", "overwrite"), [("parts", True), ("rejects", False)])
def test_a_folder_that_is_a_link_to_elsewhere_is_refused(
    out, make_config, listener, begun, tmp_path, folder, overwrite
):
    (out / folder).rename(tmp_path / "elsewhere")
    (out / folder).symlink_to(tmp_path / "elsewhere")
    before = sorted((tmp_path / "elsewhere").iterdir())
    with pytest.raises(StateError, match=rf"holds more than this dataset \({folder}\)"):
        run(make_config(), listener, overwrite=overwrite)
    assert sorted((tmp_path / "elsewhere").iterdir()) == before


@pytest.mark.parametrize(
    ("name", "overwrite"),
    [("thesis.tex", True), ("plan.json", False), ("train-0000000-0000.bin", True)],
)
def test_a_foreign_directory_gets_no_lock(out, make_config, listener, name, overwrite):
    out.mkdir()
    (out / name).write_text("years of work")
    with pytest.raises(StateError):
        run(make_config(), listener, overwrite=overwrite)
    assert [path.name for path in out.iterdir()] == [name]


def test_the_output_may_be_a_link_to_a_directory(out, make_config, listener, tmp_path):
    (tmp_path / "large-disk").mkdir()
    out.symlink_to(tmp_path / "large-disk")
    first = run(make_config(), listener)
    assert run(make_config(), listener, overwrite=True)["files"] == first["files"]
    assert out.is_symlink()


def test_shards_without_records_are_not_removed_for_other_settings(
    out, make_config, listener, begun
):
    for record in (out / "parts").iterdir():
        record.unlink()
    before = sorted(out.rglob("*"))
    with pytest.raises(StateError, match="holds a run of other inputs or settings"):
        run(make_config(min_tokens=3), listener)
    assert sorted(out.rglob("*")) == before
