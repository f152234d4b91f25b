"""Sizes and stamps, under the names that stores have for them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tokmill.errors import StorageError
from tokmill.stores.entries import entry_of
from tokmill.stores.store import Store

WRITTEN = datetime(2026, 11, 23, tzinfo=UTC)


@pytest.mark.parametrize(
    ("info", "stamp"),
    [
        ({"ETag": '"5d41"', "LastModified": WRITTEN}, "5d41"),
        ({"etag": "CJ==", "generation": "17"}, "CJ=="),
        ({"md5Hash": "Q2==", "updated": "2026"}, "Q2=="),
        ({"blob_id": "f00", "mtime": 1}, "f00"),
        ({"Last-Modified": "Mon"}, "Mon"),
        ({"created": WRITTEN}, str(WRITTEN.timestamp())),
        ({"ETag": None}, ""),
    ],
)
def test_the_most_exact_stamp_is_taken(info, stamp):
    assert entry_of({"size": 7, **info}, "x") == (7, stamp)


def test_an_object_of_unknown_size_is_refused():
    with pytest.raises(StorageError, match=r"^s3://b/n: the server does not state the size"):
        entry_of({"size": None}, "s3://b/n")


def test_a_listing_and_a_question_agree(tmp_path):
    pytest.importorskip("fsspec")
    for url in (f"memory://b/{tmp_path.name}", (tmp_path / "d").as_uri()):
        store = Store(url)
        store.write("folder/a", b"12")
        assert store.entries() == {"folder/a": store.entry("folder/a")}
        assert store.entry("folder") is None
        first = store.entry("folder/a")
        store.write("folder/a", b"34")
        assert store.entry("folder/a") != first
