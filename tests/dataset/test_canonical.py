from __future__ import annotations

import json

import pytest

from tokmill.dataset.checksum import (
    Digest,
    FileEntry,
    canonical_json,
    json_chunks,
    manifest_sha256,
    sha256_hex,
)


def test_canonical_json_does_not_depend_on_the_order_of_keys():
    assert canonical_json({"b": [1, 2], "a": "猫"}) == b'{"a":"\\u732b","b":[1,2]}\n'
    assert canonical_json({"a": "猫", "b": [1, 2]}) == canonical_json({"b": [1, 2], "a": "猫"})


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, b"{\n}\n"),
        (
            {"b": [1, 2], "a": {"y": [{}], "x": None}},
            b'{\n"a":{"x":null,"y":[{}]},\n"b":[1,2]\n}\n',
        ),
        (
            {"rows": [{"b": 1, "a": "\n"}, {}], "none": []},
            b'{\n"none":[],\n"rows":[\n{"a":"\\n","b":1},\n{}\n]\n}\n',
        ),
        ({"rows": [[1], []], "z": "猫"}, b'{\n"rows":[\n[1],\n[]\n],\n"z":"\\u732b"\n}\n'),
    ],
)
def test_a_key_and_a_row_have_a_line_of_their_own(data, expected):
    laid_out = b"".join(json_chunks(data))
    assert laid_out == expected
    assert json.loads(laid_out) == data
    assert laid_out.replace(b"\n", b"") + b"\n" == canonical_json(data)


def test_the_sum_of_a_manifest_leaves_out_itself_alone():
    manifest = {"b": 1, "a": 2}
    expected = sha256_hex(b'{"a":2,"b":1}\n')
    assert manifest_sha256(manifest) == expected
    assert manifest_sha256({**manifest, "sha256": "anything"}) == expected
    assert manifest_sha256({**manifest, "a": 3}) != expected


OF_ABC = {
    "blake3": "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
    "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
}
"""Of the three bytes `abc`: the published test vectors."""


@pytest.mark.parametrize("algorithm", OF_ABC)
def test_a_digest_is_that_of_all_bytes_however_they_come(algorithm):
    digest = Digest(algorithm)
    digest.update(b"ab")
    digest.update(memoryview(b"c"))
    assert digest.entry("a") == FileEntry("a", 3, algorithm, OF_ABC[algorithm])


def test_a_large_file_comes_in_chunks():
    rows = [{"text": "x" * 1000}] * 5000
    chunks = list(json_chunks({"rows": rows}))
    assert len(chunks) > 3
    assert max(map(len, chunks)) < 2 << 20
    assert json.loads(b"".join(chunks)) == {"rows": rows}
