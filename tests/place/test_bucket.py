"""A prefix in a bucket, among the faults of a server."""

from __future__ import annotations

import pytest

from tokmill.dataset.checksum import digest_of
from tokmill.errors import StorageError, UsageError
from tokmill.place import bucket, open_place
from tokmill.stores import connections as stores


@pytest.fixture
def place(url):
    place = open_place(url)
    yield place
    place.close()


def once(kind: str, method: str, ending: str):
    """Return the fault `kind` for the first request of a method for a path, then none."""
    left = [kind]
    return lambda asked, path: (
        left.pop() if left and asked == method and path.endswith(ending) else ""
    )


def kept(place, name: str, content: bytes):
    """Write a file to `local`, and return its entry."""
    path = place.local / name
    path.write_bytes(content)
    with path.open("rb") as file:
        return digest_of(file, "blake3").entry(name)


def test_objects_are_created_written_listed_read_and_removed(place):
    assert place.entries() == {}
    assert place.create("a", [b"1", b"2"])
    assert place.create("a", [b"12"])
    assert not place.create("a", [b"3"])
    place.write("parts/b", b"123")
    stamp = place.stamp("parts/b")
    place.write("parts/b", b"45")
    assert place.stamp("parts/b") not in ("", stamp)
    assert place.entries() == {"a": 2, "parts/b": 2}
    assert (place.read("a"), bool(place.stamp("parts/b")), place.stamp("c")) == (b"12", True, "")
    for _ in range(2):
        place.remove("a")
    with pytest.raises(FileNotFoundError):
        place.read("a")
    assert place.stamp("a") == ""


@pytest.mark.parametrize("kind", ["error", "lost", "cut"])
@pytest.mark.parametrize(
    ("method", "act"),
    [
        ("PUT", lambda place: place.create("a", [b"1"])),
        ("GET", lambda place: place.read("b") == b"2"),
        ("HEAD", lambda place: place.stamp("b") != ""),
        ("POST", lambda place: place.remove("b") is None),
    ],
)
def test_a_request_that_fails_once_is_made_again(place, faults, kind, method, act):
    place.write("b", b"2")
    before = faults.counts[kind]
    faults.fails = once(kind, method, "")
    assert act(place)
    assert faults.counts[kind] == before + 1


@pytest.mark.parametrize(
    ("method", "kind"),
    [("PUT", "error"), ("PUT", "cut"), ("POST", "lost"), ("POST", "cut"), ("HEAD", "error")],
)
def test_a_large_file_is_uploaded_in_pieces_that_fail_alone(
    place, faults, monkeypatch, method, kind
):
    monkeypatch.setattr(bucket, "_CHUNK_BYTES", 6 << 20)
    content = bytes(range(256)) * (13 << 12) + b"rest"
    entry = kept(place, "big", content)
    faults.fails = once(kind, method, "/big")
    place.keep(entry, lambda: None)
    assert b"".join(place.chunks("big")) == content
    assert not place.differs(entry)
    assert not list(place.local.glob("big"))


def test_a_file_that_is_there_with_its_size_and_sum_is_not_sent_again(place, faults):
    entry = kept(place, "a", b"12345")
    place.keep(entry, lambda: None)
    kept(place, "a", b"12345")
    faults.fails = lambda method, path: "error" if method == "PUT" else ""
    place.keep(entry, lambda: None)
    faults.fails = None
    place.write("a", b"54321")  # another one of its size
    assert place.differs(entry)
    kept(place, "a", b"12345")
    place.keep(entry, lambda: None)
    assert place.read("a") == b"12345"


def test_what_a_killed_process_left_is_removed_by_the_next(url, tmp_path, monkeypatch):
    monkeypatch.setattr(bucket, "_LEFT_S", -1.0)
    (tmp_path / "tokmill-upload-dead").mkdir()
    (tmp_path / "tokmill-upload-link").symlink_to(tmp_path)
    alive, second = open_place(url), open_place(url)
    assert alive.local.exists()
    assert second.local.exists()
    assert alive.local.exists()
    assert not (tmp_path / "tokmill-upload-dead").exists()
    assert (tmp_path / "tokmill-upload-link").exists()


def test_a_server_that_always_fails_ends_in_one_line(place, faults, monkeypatch):
    monkeypatch.setattr(stores, "_TRIES", 2)
    monkeypatch.setattr(stores.time, "sleep", lambda _: None)
    monkeypatch.setattr(stores, "_RETRY_S", 0)
    faults.share = 1.0
    with pytest.raises(StorageError) as caught:
        open_place(f"{place.where}/new").read("a")  # a connection that does not try for minutes
    assert str(caught.value).startswith(f"{place.where}/new/a: ")
    assert "\n" not in str(caught.value)


def test_a_bucket_that_is_not_there_is_named(faults, tmp_path):
    with pytest.raises(StorageError, match=r"^s3://nobody/x/a: no such bucket: make it first"):
        open_place("s3://nobody/x").create("a", [b"1"])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nothing://me:secret@a/b", "expected a directory, or a place in an object store"),
        ("memory://a/b", "expected a directory, or a place in an object store"),
        ("s3://bucket", "expected a bucket and a name"),
        ("s3://", "expected a bucket and a name"),
    ],
)
def test_a_url_that_no_dataset_can_be_written_to_is_refused(url, message):
    with pytest.raises(UsageError, match=message) as caught:
        open_place(url)
    assert "secret" not in str(caught.value)


def test_credentials_and_endpoint_come_from_a_profile(server, tmp_path, monkeypatch):
    from os import environ

    address = environ["AWS_ENDPOINT_URL"]
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    config, secrets = tmp_path / "config", tmp_path / "credentials"
    config.write_text(f"[profile lab]\nregion = eu-west-1\nendpoint_url = {address}\n")
    secrets.write_text("[lab]\naws_access_key_id = key\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(secrets))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    place = open_place(f"s3://bucket/{tmp_path.name}")
    assert place.create("a", [b"1"])
    assert place.entries() == {"a": 1}
