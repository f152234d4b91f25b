"""Commands read a dataset in an object store as they read one in a directory, without a copy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tokmill as api
from tokmill.bill.on_disk import on_disk
from tokmill.dataset.reader import read_manifest
from tokmill.urls import store_url

READ = [
    ("audit",),
    ("report",),
    ("report", "--model", "gpt2", "--gpu", "RTX 4090"),
    ("inspect", "--sample", "5"),
    ("inspect", "--document", "3", "--ids", "--tokens"),
    ("inspect", "--seed", "7", "--sample", "2"),
    ("inspect", "--json", "--split", "val"),
    ("inspect", "--row", "2"),
    ("stats",),
    ("stats", "--json"),
]
"""What reads a dataset and prints."""


def told(outcome, place: str) -> str:
    """What a command printed, without the place and the free space of a disk."""
    assert outcome.code == 0, outcome.err
    text = outcome.out.replace(place, "PLACE")
    return re.sub(r"; [0-9.,]+ [A-Za-z]+ free|\"free_bytes\": [^,\n]*|fits [^\n]*", "", text)


@pytest.mark.parametrize("arguments", READ, ids=" ".join)
def test_what_a_command_prints_is_what_it_prints_of_a_directory(
    arguments, pieces, uploaded, tokmill
) -> None:
    url = uploaded(pieces.directory)
    name, *options = arguments
    here = tokmill(name, pieces.directory, *options)
    there = tokmill(name, url, *options)
    assert told(there, url) == told(here, str(pieces.directory))


@pytest.mark.parametrize("dataset", ["pieces", "chats"])
def test_a_report_takes_one_request(dataset, request, uploaded, faults, tokmill) -> None:
    directory = request.getfixturevalue(dataset).directory
    url = uploaded(directory)
    before = faults.counts["requests"]
    assert tokmill("report", url).code == 0
    assert faults.counts["requests"] - before == 1
    sizes = {path.name: path.stat().st_size for path in directory.rglob("*") if path.is_file()}
    found = on_disk(Path(url), api.open(url).manifest)
    assert found.bill.n_bytes == sum(sizes.values()) - sizes.get(".lock", 0)


@pytest.mark.parametrize("command", ["inspect", "report"])
def test_a_page_is_that_of_the_directory(command, chats, uploaded, tokmill, tmp_path) -> None:
    url = uploaded(chats.directory)
    pages = [tmp_path / "here.html", tmp_path / "there.html"]
    assert tokmill(command, chats.directory, "--html", pages[0]).code == 0
    assert tokmill(command, url, "--html", pages[1]).code == 0
    here, there = (re.sub(r"[0-9.]+ [KMGT]?i?B", "", page.read_text()) for page in pages)
    assert there.count("<p") == here.count("<p")
    assert url in there


EXPORTS = {
    "pieces": ("nanogpt", "megatron", "datasets", "olmo-core", "torchtitan", "litdata"),
    "chats": ("trl", "megatron", "llama-factory", "megatron-bridge", "skyrl"),
}


@pytest.mark.parametrize(
    ("dataset", "trainer"), [(name, one) for name, own in EXPORTS.items() for one in own]
)
def test_an_export_has_the_files_of_one_from_a_directory(
    dataset, trainer, request, uploaded, tokmill, tmp_path
) -> None:
    directory = request.getfixturevalue(dataset).directory
    url = uploaded(directory)
    here, there = tmp_path / "here" / "x", tmp_path / "there" / "x"
    for place, output in ((directory, here), (url, there)):
        outcome = tokmill("export", place, "--to", trainer, "--output", output)
        assert outcome.code == 0, outcome.err
    assert files(there) == files(here)


def files(directory: Path) -> dict[str, bytes]:
    """The files of an export, but its record and what names its own path."""
    return {
        path.name: path.read_bytes().replace(str(directory).encode(), b"")
        for path in directory.rglob("*")
        if path.is_file() and path.name != "tokmill-export.json"
    }


@pytest.mark.parametrize("options", [{}, {"shuffle": 3}, {"dedup": True}, {"shard_tokens": 5_000}])
@pytest.mark.parametrize("dataset", ["pieces", "chats"])
def test_a_mix_of_a_store_is_that_of_a_directory(
    dataset, options, request, uploaded, tmp_path
) -> None:
    directory = request.getfixturevalue(dataset).directory
    url = uploaded(directory)
    here, there = (
        api.mix([place], output=tmp_path / name, progress=False, **options)
        for place, name in ((directory, "here"), (url, "there"))
    )
    files = [dataset.manifest["files"] for dataset in (there, here)]
    shards = [[one for one in own if one["name"].startswith(("train", "val"))] for own in files]
    assert shards[0] == shards[1]
    assert there.verify().problems == ()


@pytest.mark.parametrize(
    ("damage", "arguments"),
    [
        ("bin", ("stats",)),
        ("idx", ("stats",)),
        ("bin", ("export", "--to", "nanogpt")),
        ("bin", ("mix",)),
        ("bin", ("mix", "--shuffle", "1")),
    ],
)
def test_a_damaged_object_is_an_error_that_names_it(
    damage, arguments, pieces, uploaded, tokmill, tmp_path
) -> None:
    import boto3

    url = uploaded(pieces.directory)
    key = url.removeprefix("s3://bucket/")
    name = f"{pieces.manifest['shards'][0]['name']}.{damage}"
    data = bytearray((pieces.directory / name).read_bytes())
    data[len(data) // 2] ^= 1
    boto3.client("s3").put_object(Bucket="bucket", Key=f"{key}/{name}", Body=bytes(data))
    output = () if arguments[0] == "stats" else ("--output", tmp_path / "x")
    outcome = tokmill(arguments[0], url, *arguments[1:], *output)
    assert outcome.code == 1, outcome.err
    assert f"{url}/{name}: " in outcome.error


@pytest.mark.parametrize("scheme", ["s3", "s3a", "gs", "az", "abfs", "abfss", "adl"])
def test_a_path_made_of_a_url_is_the_url_again(scheme) -> None:
    assert store_url(Path(f"{scheme}://bucket/a/b") / "c.bin") == f"{scheme}://bucket/a/b/c.bin"


def test_a_store_without_a_dataset_is_one_line(url, tokmill) -> None:
    for command in ("report", "inspect", "stats"):
        assert tokmill(command, url).error.startswith(f"{url}: not a tokmill dataset: no manifest")
    with pytest.raises(api.TokmillError, match=f"^{url}: not a tokmill dataset"):
        read_manifest(Path(url))


def test_a_store_that_fails_now_and_then_is_read(pieces, uploaded, faults, tokmill) -> None:
    url = uploaded(pieces.directory)
    expected = tokmill("stats", pieces.directory).out
    faults.share = 0.02
    assert tokmill("stats", url).out.replace(url, "") == expected.replace(str(pieces.directory), "")
