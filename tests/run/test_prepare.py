from __future__ import annotations

from tokmill.run.prepare import large_text_notes
from tokmill.settings.schema import InputSettings
from tokmill.sources.slices import SourceFile


def file(path: str, n_bytes: int, kind: str = "text") -> SourceFile:
    return SourceFile(path, kind, "", n_bytes, 0, "")


SPLIT = "--text-separator='\\n\\n' splits at empty lines"


def test_a_large_text_file_that_becomes_one_document_is_noted():
    files = [file("a.txt", 100), file("books.txt", 3_400_000), file("b.jsonl", 9_000_000, "jsonl")]
    assert large_text_notes(files, InputSettings()) == [
        f"books.txt, 3.4 MB, becomes one document: {SPLIT}"
    ]


def test_of_several_large_text_files_the_first_is_named():
    files = [file(f"{i}.txt", 1 << 20) for i in range(3)]
    assert large_text_notes(files, InputSettings()) == [
        f"0.txt, 1.05 MB, and 2 other large text files become one document each: {SPLIT}"
    ]


def test_text_that_is_small_or_is_split_is_not_noted():
    assert large_text_notes([file("a.txt", (1 << 20) - 1)], InputSettings()) == []
    large = [file("a.txt", 1 << 20)]
    assert large_text_notes(large, InputSettings(text_separator="\n")) == []
