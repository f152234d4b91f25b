"""Secrets of URLs and of the environment are nowhere in what a run writes and prints."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import SAMPLES
from tests.cli.conftest import tokmill as tokmill  # the fixture
from tokmill.errors import UsageError
from tokmill.urls import refuse_secrets, shown

SECRET = "Zq7secretZq7"
WITH_SECRETS = (
    f"s3://me:{SECRET}@bucket/a.jsonl",
    f"s3:/{SECRET}@bucket/a.jsonl",
    f"s3://AKIA:{SECRET}/b+c/d=@bucket/a.jsonl",
    f"s3://AKIA:8080/{SECRET}@bucket/a.jsonl",
    f"s3://:{SECRET}@bucket/a.jsonl",
    f"s3://AKIA:a@{SECRET}/b@bucket/a.jsonl",
    f"s3:///AKIA:{SECRET}@bucket/a.jsonl",
    f"S3://AKIA:{SECRET}/x@BUCKET/a.jsonl",
    f"simplecache::s3://u:{SECRET}@b/x",
    f"simplecache::s3:/u:{SECRET}@b/x",
    f"zip://a.csv::s3://u:{SECRET}/x@b/x.zip",
    f"zip://a@v1.csv::https://u:{SECRET}@host/x.zip",
    f"https://u:{SECRET}@host:8080/a@b",
    f"https://u:1x/{SECRET}@host/a",
    f"https://web/https://u:{SECRET}@host/a",
    f"hf://u:{SECRET}@datasets/me/name",
    f"file://u:{SECRET}@host/a",
    f"https://host/a.jsonl?X-Amz-Signature={SECRET}",
    f"https://host/a.jsonl?x=1&X-Amz-Security-Token={SECRET}",
    f"gs://bucket/a.jsonl?access_token={SECRET}",
    f"az://c/a.jsonl?sv=1&sig={SECRET}",
    *(
        f"https://h/f?{key}={SECRET}"
        for key in (
            "KEY", "apiKey", "auth", "code", "passwd", "jwt", "AWSAccessKeyId", "private-key",
            "client.secret", "X%2DAmz%2DSignature", "%6Bey", "a=1&v=2;token", "sas", "key2",
        )
    ),
    f"https://h/f#access_token={SECRET}",
    f"https://h?token={SECRET}",
)  # fmt: skip
WITHOUT = (
    "s3://bucket/a@b.jsonl", "a@b?token=1", "me@host:/x", "hf:me/data", "s3://b/x?v=1",
    "s3://bucket/path@v1/x", "s3://bucket/12:30@x", "hf://datasets/user/name@main/file",
    "hf://datasets/u/n@refs%2Fconvert", "hf://gpt2@main/tokenizer.json", "https://host:8080/a@b",
    "http://[::1]:8080/a@b", "http://[::1]/a@b", "webhdfs://host:50070/a@b", "file:///a:b@c/d",
    "abfs://container@account.dfs.core.windows.net/x", "zip://*.csv::s3://bucket/a@v1.zip",
    "simplecache::s3://bucket/a@v1", "s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/n/a@v1",
    "https://h/f?versionId=3", "https://h/f?download=true", "https://h/f?alt=media",
    "https://h/f?rev=3&keyword=a&monkey=b&design=c", "https://h/f?X-Amz-Date=1&author=me",
    "s3://bucket/key=5/part-?/token=6/x", "out/key=5&token", "memory://bucket/a", "",
)  # fmt: skip
PASSWORDS = st.text(string.ascii_letters + string.digits + "+/=:@%", min_size=12, max_size=40)


@pytest.mark.parametrize("url", WITH_SECRETS)
def test_a_url_with_a_secret_is_refused_and_not_repeated(url):
    with pytest.raises(UsageError) as error:
        refuse_secrets(url, "--output")
    assert "--output: expected a URL without a user" in str(error.value)
    assert SECRET not in str(error.value)
    assert SECRET not in shown(url)
    refuse_secrets(shown(url), "--output")


@pytest.mark.parametrize("text", WITHOUT)
def test_other_paths_are_taken(text):
    refuse_secrets(text, "--output")
    assert shown(text) == (text.partition("?")[0] if "://" in text else text)


@given(PASSWORDS)
@pytest.mark.parametrize(
    "form",
    [
        "s3://AKIA:{}@bucket/name", "simplecache::s3://AKIA:{}@bucket/name", "S3:/A:{}@bucket/name",
        "https://me:x{}@bucket/name", "https://bucket/name?key={}", "az://bucket/name?sv=1&sig={}",
    ],
)  # fmt: skip
def test_no_password_is_repeated_or_shown(form, password):
    url = form.format(password)
    with pytest.raises(UsageError) as error:
        refuse_secrets(url, "--output")
    assert password not in str(error.value)
    assert shown(url).partition(":/")[2].lstrip("/") == "bucket/name"
    assert password not in shown(url)


@pytest.mark.parametrize("place", ["input", "tokenizer", "output"])
def test_no_command_prints_or_writes_a_secret_of_a_url(tokmill, tmp_path, place):
    given = {
        "input": str(SAMPLES / "records.jsonl"),
        "tokenizer": str(SAMPLES / "tokenizer"),
        "output": str(tmp_path / "out"),
    } | {place: WITH_SECRETS[2]}
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
    tokenizer = ("-t", SAMPLES / "tokenizer", "--engine", "reference")
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


@pytest.mark.parametrize(
    "text",
    [
        "You help users of example.org. Shops: https://example.org/find?code=US",
        "{title}\nhttps://example.org/item?key={id}",
        "Ask http://help:desk or me@example.org",
        "az://container@account/name",
        "oci://bucket@namespace/name",
    ],
)
def test_a_text_in_which_a_url_stands_is_no_place(text):
    refuse_secrets(text, "default_system")
