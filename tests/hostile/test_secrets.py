"""Secrets of URLs and of the environment are nowhere in what a run writes and prints."""

from __future__ import annotations

import pytest

from tests.cli.conftest import SAMPLES
from tests.cli.conftest import tokmill as tokmill  # the fixture
from tokmill.errors import UsageError
from tokmill.settings.secrets import refuse_secrets

SECRET = "Zq7secretZq7"
URLS = (
    f"s3://me:{SECRET}@bucket/a.jsonl",
    f"s3:/{SECRET}@bucket/a.jsonl",
    f"https://host/a.jsonl?X-Amz-Signature={SECRET}",
    f"https://host/a.jsonl?x=1&X-Amz-Security-Token={SECRET}",
    f"gs://bucket/a.jsonl?access_token={SECRET}",
    f"az://c/a.jsonl?sv=1&sig={SECRET}",
)


@pytest.mark.parametrize("url", URLS)
def test_a_url_with_a_secret_is_refused_and_not_repeated(url):
    with pytest.raises(UsageError) as error:
        refuse_secrets(url, "--output")
    assert "--output: expected a URL without a user" in str(error.value)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "text", ["s3://bucket/a@b.jsonl", "a@b?token=1", "me@host:/x", "hf:me/data", "s3://b/x?v=1"]
)
def test_other_paths_are_taken(text):
    refuse_secrets(text, "--output")


@pytest.mark.parametrize("place", ["input", "tokenizer", "output"])
def test_no_command_prints_or_writes_a_secret_of_a_url(tokmill, tmp_path, place):
    given = {
        "input": str(SAMPLES / "records.jsonl"),
        "tokenizer": str(SAMPLES / "tokenizer"),
        "output": str(tmp_path / "out"),
    } | {place: URLS[0]}
    words = (given["input"], "-t", given["tokenizer"], "-o", given["output"])
    for verb in ("pretrain", "plan"):
        ended = tokmill(verb, *words)
        assert ended.code == 2
        assert SECRET not in ended.out + ended.err
    assert list(tmp_path.iterdir()) == []


def test_the_environment_is_in_no_file_of_a_dataset(tokmill, tmp_path, monkeypatch):
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "WANDB_API_KEY"):
        monkeypatch.setenv(name, SECRET)
    out, page = tmp_path / "out", tmp_path / "page.html"
    tokenizer = ("-t", SAMPLES / "tokenizer", "--engine", "tokenizers")
    shown = [
        tokmill("pretrain", SAMPLES / "records.jsonl", *tokenizer, "-o", out, "--workers", "1"),
        tokmill("inspect", out, "--html", page),
        tokmill("verify", out),
    ]
    assert [ended.code for ended in shown] == [0, 0, 0], shown
    assert all(SECRET not in ended.out + ended.err for ended in shown)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 4
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
