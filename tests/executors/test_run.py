from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tokmill.errors import RecordError, StateError, UsageError
from tokmill.executors.run import layout_of_work, run

ROWS = [{"text": f"hello {i} " * (i % 5 + 1)} for i in range(60)]


@pytest.fixture
def sources(tmp_path, write_rows):
    return [
        write_rows(tmp_path / "a.jsonl", ROWS),
        write_rows(tmp_path / "b.jsonl", [*ROWS[:20], b"{bad"]),
    ]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


SETTINGS = {"part_bytes": 700, "shard_tokens": 150, "max_reject_fraction": 1.0}


@pytest.fixture
def begun(out, sources, configure, listener):
    """A finished run whose last part and manifest are taken away: one that can be continued."""
    manifest = run(configure(out, *sources, **SETTINGS), listener)
    (out / "manifest.json").unlink()
    last = max((out / "parts").iterdir())
    last.unlink()
    return manifest


def test_a_run_tells_its_plan_and_every_record_and_gives_its_manifest(
    out, sources, configure, listener
):
    manifest = run(configure(out, *sources, **SETTINGS), listener)
    (plan,) = listener.plans
    assert len(plan.parts) > 3
    assert listener.n_done == [0]
    assert sum(progress.records for progress in listener.heard) == manifest["totals"]["records"]
    assert manifest["totals"]["records"] == 81
    assert json.loads((out / "manifest.json").read_bytes()) == manifest
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == ["parts", "rejects"]


def test_a_run_goes_on_where_it_was_stopped(out, sources, configure, listener, begun, files_of):
    again = run(configure(out, *sources, **SETTINGS), listener)
    n_parts = len(listener.plans[-1].parts)
    assert listener.n_done == [0, n_parts - 1]
    assert again["run"]["resumed_parts"] == n_parts - 1
    assert again["totals"] == begun["totals"]
    assert again["files"] == begun["files"]
    fresh = out.parent / "fresh"
    run(configure(fresh, *sources, **SETTINGS), listener)
    assert files_of(out) == files_of(fresh)


def test_a_finished_run_is_given_again_unchanged(out, sources, configure, listener):
    config = configure(out, *sources, **SETTINGS)
    first = run(config, listener)
    before = (out / "manifest.json").stat().st_mtime_ns
    assert run(config, listener) == first
    assert (out / "manifest.json").stat().st_mtime_ns == before


def test_stale_temporaries_are_removed_and_other_hidden_files_are_not(
    out, sources, configure, listener, begun
):
    stale = [
        out / ".train-0000000-0000.bin.1-ab.tmp",
        out / "parts" / ".x.tmp",
        out / "rejects" / ".y.tmp",
    ]
    for path in [*stale, out / ".notes"]:
        path.write_bytes(b"x")
    run(configure(out, *sources, **SETTINGS), listener)
    assert not any(path.exists() for path in stale)
    assert (out / ".notes").exists()


CHANGED_SETTINGS = [
    ({"shard_tokens": 151}, "output.shard_tokens was 150, is 151"),
    ({"val_fraction": 0.5}, "output.val_fraction was 0.0, is 0.5"),
    ({"min_tokens": 3}, "limits.min_tokens was 0, is 3"),
    ({"dtype": "uint32"}, "output.dtype was 'uint16', is 'uint32'"),
    ({"bos_token": "<bos>"}, "tokenizer.bos_token was '', is '<bos>'; bos_id was None, is 1"),
    ({"eos_token": "<bos>"}, "tokenizer.eos_token was '', is '<bos>'; eos_id was 0, is 1"),
    ({"template": "{text}!"}, "render.renderer was 'text', is 'template'; render.template"),
    ({"part_bytes": 701}, "output.part_bytes was 700, is 701"),
]


@pytest.mark.parametrize(("change", "expected"), CHANGED_SETTINGS)
def test_a_changed_setting_is_named(out, sources, configure, listener, begun, change, expected):
    before = sorted(out.rglob("*"))
    with pytest.raises(StateError) as caught:
        run(configure(out, *sources, **SETTINGS | change), listener)
    message = str(caught.value)
    assert message.startswith(f"{out}: holds a run of other inputs or settings: {expected}")
    assert message.endswith("choose another --output, or run with --overwrite to start anew")
    assert "\n" not in message
    assert sorted(out.rglob("*")) == before


def test_settings_of_speed_may_change(out, sources, configure, listener, begun):
    change = {"batch_bytes": 99, "threads": 2, "on_error": "skip", "max_reject_fraction": 0.5}
    assert run(configure(out, *sources, **SETTINGS | change), listener)["files"] == begun["files"]


def test_a_changed_tokenizer_is_named(
    out, sources, configure, listener, begun, tokenizer_dir, tmp_path
):
    other = tmp_path / "other"
    other.mkdir()
    (other / "tokenizer_config.json").write_text('{"eos_token": "<eos>"}')
    data = json.loads((tokenizer_dir / "tokenizer.json").read_bytes())
    (other / "tokenizer.json").write_text(json.dumps(data))  # the same, with other white space
    with pytest.raises(StateError, match=r"settings: tokenizer_sha256 was \w{64}, is \w{64}: "):
        run(configure(out, *sources, path=str(other), **SETTINGS), listener)


def test_the_same_tokenizer_elsewhere_is_the_same(
    out, sources, configure, listener, begun, tokenizer_dir, tmp_path
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in tokenizer_dir.iterdir():
        (elsewhere / path.name).write_bytes(path.read_bytes())
    again = run(configure(out, *sources, path=str(elsewhere), **SETTINGS), listener)
    assert again["totals"] == begun["totals"]


def test_a_file_that_grew_is_named_with_both_sizes(out, sources, configure, listener, begun):
    before = sources[0].stat().st_size
    with sources[0].open("ab") as file:
        file.write(b'{"text": "one more"}\n')
    expected = rf"a\.jsonl has changed \({before} bytes before, {before + 21} now\)"
    with pytest.raises(StateError, match=expected):
        run(configure(out, *sources, **SETTINGS), listener)


def test_a_file_of_the_same_size_that_was_modified_is_named(
    out, sources, configure, listener, begun
):
    os.utime(sources[1], ns=(0, 0))
    with pytest.raises(StateError, match=r"b\.jsonl has changed \(it was modified\)"):
        run(configure(out, *sources, **SETTINGS), listener)


def test_a_removed_an_added_and_a_reordered_file_are_named(
    out, sources, configure, listener, begun, tmp_path, write_rows
):
    a, b = sources
    c = write_rows(tmp_path / "c.jsonl", ROWS[:3])
    for paths, expected in [
        ([a], f"{b} is gone"),
        ([a, b, c], f"{c} is new"),
        ([b, a], "the input files come in another order"),
    ]:
        with pytest.raises(StateError) as caught:
            run(configure(out, *paths, **SETTINGS), listener)
        assert f"settings: {expected}: choose another --output" in str(caught.value)


@pytest.mark.parametrize("ending", ["train-0000000-0000.bin", "train-0000001-0001.idx"])
@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_part_whose_file_is_gone_or_cut_is_made_anew(
    out, sources, configure, listener, files_of, ending, damage
):
    config = configure(out, *sources, **SETTINGS)
    manifest = run(config, listener)
    before = files_of(out)
    data = before[ending]
    (out / ending).unlink()
    if damage == "cut":
        (out / ending).write_bytes(data[:-1])
    again = run(config, listener)
    assert again["run"]["resumed_parts"] == len(listener.plans[0].parts) - 1
    assert again["files"] == manifest["files"]
    assert files_of(out) == before


def test_a_dataset_that_is_being_mended_has_no_manifest(out, sources, configure, listener):
    config = configure(out, *sources, **SETTINGS)
    run(config, listener)
    (out / "train-0000000-0000.bin").unlink()
    listener.progressed = lambda progress: stands.append((out / "manifest.json").exists())
    stands: list[bool] = []
    run(config, listener)
    assert stands
    assert not any(stands)


def test_a_plan_of_which_nothing_is_committed_gives_way_to_another(
    out, sources, configure, listener, begun
):
    for path in (out / "parts").iterdir():
        path.unlink()
    manifest = run(configure(out, *sources, **SETTINGS | {"min_tokens": 2}), listener)
    assert manifest["config"]["limits"]["min_tokens"] == 2
    listed = {entry["name"] for entry in manifest["files"]}
    found = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert found - listed == {"manifest.json", ".lock"}


@pytest.mark.parametrize("finished", [True, False])
def test_overwrite_starts_anew(out, sources, configure, listener, begun, files_of, finished):
    if finished:
        run(configure(out, *sources, **SETTINGS), listener)
    change = SETTINGS | {"part_bytes": 1 << 20, "shard_tokens": 0, "val_fraction": 0.2}
    run(configure(out, *sources, **change), listener, overwrite=True)
    assert listener.n_done[-1] == 0
    fresh = out.parent / "fresh"
    run(configure(fresh, *sources, **change), listener)
    assert files_of(out) == files_of(fresh)


def test_overwrite_takes_over_a_damaged_plan_and_a_newer_format(
    out, sources, configure, listener, begun
):
    for data in (b"{", b'{"format_version": 99}'):
        (out / "plan.json").unlink()
        (out / "plan.json").write_bytes(data)
        config = configure(out, *sources, **SETTINGS)
        with pytest.raises(StateError):
            run(config, listener)
        assert run(config, listener, overwrite=True)["files"] == begun["files"]


def test_overwrite_in_a_new_directory_is_a_run(out, sources, configure, listener):
    run(configure(out, *sources, **SETTINGS), listener, overwrite=True)
    assert (out / "manifest.json").exists()


@pytest.mark.parametrize("overwrite", [True, False])
def test_files_of_others_in_the_output_are_never_touched(
    out, sources, configure, listener, overwrite
):
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(StateError) as caught:
        run(configure(out, *sources), listener, overwrite=overwrite)
    assert str(caught.value) == (
        f"{out}: holds files but no plan of a run (thesis.tex, …): choose an empty or new directory"
    )
    assert (out / "thesis.tex").read_text() == "years of work"


def test_overwrite_beside_files_of_others_removes_nothing(out, sources, configure, listener, begun):
    (out / "thesis.tex").write_text("years of work")
    before = sorted(out.rglob("*"))
    with pytest.raises(StateError) as caught:
        run(configure(out, *sources, **SETTINGS), listener, overwrite=True)
    assert str(caught.value) == (
        f"{out}: holds more than the dataset to overwrite (thesis.tex, …): "
        "move that away, or choose another --output"
    )
    assert sorted(out.rglob("*")) == before


def test_another_version_of_the_engine_is_refused(out, sources, configure, listener, begun):
    plan = json.loads((out / "plan.json").read_bytes())
    installed = plan["engine"]["version"]
    plan["engine"]["version"] = "0.0.1"
    (out / "plan.json").unlink()
    (out / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(StateError) as caught:
        run(configure(out, *sources, **SETTINGS), listener)
    assert str(caught.value) == (
        f"the run in this directory began with tokenizers 0.0.1, installed is {installed}: "
        "install that version, or run with --overwrite to start anew"
    )


def test_a_plan_of_a_newer_format_is_refused_naming_both(out, sources, configure, listener, begun):
    plan = json.loads((out / "plan.json").read_bytes())
    (out / "plan.json").unlink()
    (out / "plan.json").write_text(json.dumps(plan | {"format_version": 2}))
    with pytest.raises(StateError, match=r"format version 2 is newer than version 1"):
        run(configure(out, *sources, **SETTINGS), listener)


def test_an_output_that_another_process_writes_to_is_refused(out, sources, configure, listener):
    out.mkdir()
    code = (
        "import sys; from pathlib import Path; from tokmill.storage import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, out], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StateError, match=r"out: another run is writing here"):
            run(configure(out, *sources), listener)
        holder.kill()
    # The system releases the lock of a dead process.
    run(configure(out, *sources, max_reject_fraction=1.0), listener)


def test_too_many_rejects_stop_the_run_and_a_higher_fraction_continues_it(
    out, configure, listener, tmp_path, write_rows
):
    source = write_rows(tmp_path / "a.jsonl", [*ROWS, *[b"{bad"] * 11])
    with pytest.raises(RecordError, match=r"^11 of 71 records were rejected \(11 "):
        run(configure(out, source), listener)
    assert not (out / "manifest.json").exists()
    manifest = run(configure(out, source, max_reject_fraction=0.2), listener)
    assert listener.n_done == [0, 1]
    assert sum(manifest["totals"]["rejects"].values()) == 11


def test_without_input_tokenizer_or_output_there_is_no_run(out, sources, configure, listener):
    for config, expected in [
        (configure(out), "no input"),
        (configure(out, *sources, path=""), "no tokenizer"),
        (configure(out, *sources, dir=""), "no output"),
    ]:
        with pytest.raises(UsageError, match=f"^{expected}: "):
            run(config, listener)
    assert not out.exists()


@pytest.mark.parametrize(
    ("workers", "threads", "n_parts", "expected"),
    [(0, 3, 9, (1, 3)), (4, 2, 9, (4, 2)), (4, 2, 3, (3, 2)), (4, 2, 0, (1, 2))],
)
def test_workers_are_at_most_the_parts(configure, out, workers, threads, n_parts, expected):
    config = configure(out, workers=workers, threads=threads)
    assert layout_of_work(config, n_parts) == expected


def test_threads_are_by_default_the_cores_shared_by_the_workers(configure, out):
    workers, threads = layout_of_work(configure(out, workers=2, threads=0), 9)
    assert workers * threads <= max(2, os.cpu_count())
    assert threads >= 1
