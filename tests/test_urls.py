"""URLs of stores are told from paths, and shown without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokmill.errors import UsageError
from tokmill.urls import (
    check_output,
    is_store,
    local_path,
    refuse_store,
    shown_place,
    store_url,
)


@pytest.mark.parametrize("url", ["s3://bucket/a/b", "gs://bucket", "memory://a/b", "file:///a/b"])
def test_a_url_is_found_again_in_the_path_that_was_made_of_it(url):
    assert is_store(url)
    assert store_url(url) == url
    assert store_url(Path(url)) == url
    assert shown_place(Path(url)) == url
    with pytest.raises(UsageError, match="documents are read from a disk"):
        refuse_store(Path(url))


@pytest.mark.parametrize("path", ["out", "/a/b", "a:b", "C:/a", "a/s3://b", "out/s3:/b", "s3:b"])
def test_paths_are_no_urls(path):
    assert not is_store(path)
    assert store_url(path) == store_url(Path(path)) == ""
    assert shown_place(Path(path)) == path.replace("//", "/")
    refuse_store(Path(path))


@pytest.mark.parametrize(
    ("place", "path"),
    [("file:///a/b", "/a/b"), ("LOCAL:///a", "/a"), ("/a/b", "/a/b"), ("s3://a/b", "s3://a/b")],
)
def test_the_path_of_a_url_of_this_machine(place, path):
    assert local_path(place) == path


def test_a_directory_whose_name_has_a_colon_is_an_output():
    for place in ("out", "./s3:/bucket", "C:/data", "a:b", "/a/s3:/b", "s3://bucket/name"):
        check_output(place)
