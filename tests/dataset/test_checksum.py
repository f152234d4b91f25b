from __future__ import annotations

import json

import pytest

from tokmill.dataset.checksum import Digest, FileEntry

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


@pytest.mark.parametrize("algorithm", OF_ABC)
def test_a_file_entry_names_the_algorithm_of_its_sum_and_reads_back(algorithm):
    entry = FileEntry("a", 3, algorithm, "ff")
    assert entry.as_json() == {"name": "a", "bytes": 3, algorithm: "ff"}
    assert FileEntry.from_json(json.loads(json.dumps(entry.as_json()))) == entry


@pytest.mark.parametrize(
    ("sums", "n"), [({}, 0), ({"md5": "ff"}, 0), ({"blake3": "ff", "sha256": "ff"}, 2)]
)
def test_an_entry_without_one_known_sum_is_refused(sums, n):
    with pytest.raises(ValueError, match=f"^a: expected one sum, blake3 or sha256, found {n}$"):
        FileEntry.from_json({"name": "a", "bytes": 3, **sums})
