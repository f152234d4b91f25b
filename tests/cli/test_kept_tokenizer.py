"""A dataset keeps its tokenizer: it is decoded wherever it stands; saved again, it is the same."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library
from tokenizers.decoders import Fuse
from tokenizers.processors import TemplateProcessing

import tokmill as package
from tests.cli.conftest import write_lines
from tokmill.dataset.checksum import digest_of_chunks, json_chunks, manifest_sha256

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

packed = zstd.compress

TEXTS = ["hello world", "the cat", "the hat 123", "hello there"]
TEMPLATE = "{% for m in messages %}{{ '<tool>' + m.content + '<eos>' }}{% endfor %}"
CHAT = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "hello"}]}
KINDS = ("pretrain", "sft", "mix of chats", "mix in shares", "import")


@pytest.fixture(scope="module")
def handed(tmp_path_factory, tokenizer_dir) -> Path:
    """Datasets made with relative paths in a folder that is gone, with the tokenizer."""
    made, handed = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("handed")
    shutil.copytree(tokenizer_dir, made / "tok")
    write_lines(made / "a.jsonl", [{"text": text} for text in TEXTS])
    (made / "t.jinja").write_text(TEMPLATE)
    write_lines(made / "c.jsonl", [CHAT] * 3)
    quiet = {"tokenizer": "tok", "progress": False}
    before = Path.cwd()
    os.chdir(made)
    try:
        package.pretrain("a.jsonl", output="pretrain", **quiet)
        package.sft("c.jsonl", output="sft", template="t.jinja", **quiet)
        package.mix(["sft"], output="mix of chats", progress=False)
        package.mix({"pretrain": 1.0}, tokens=10, output="mix in shares", progress=False)
        package.open("pretrain").export("nanogpt", "exported")
        package.import_dataset("exported", trainer="nanogpt", output="import", **quiet)
    finally:
        os.chdir(before)
    for kind in KINDS:
        shutil.copytree(made / kind, handed / kind)
    shutil.rmtree(made)
    return handed


def saved_again(directory: Path, place: Path) -> Path:
    """Save a tokenizer as `save_pretrained` does: other bytes, the same ids."""
    shutil.copytree(directory, place)
    library = Library.from_file(str(place / "tokenizer.json"))
    library.post_processor = TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 0)])
    library.enable_truncation(5)
    library.enable_padding(pad_id=0)
    library.decoder = Fuse()
    content = json.loads(library.to_str())
    content["model"] |= {"continuing_subword_prefix": "", "end_of_word_suffix": ""}
    (place / "tokenizer.json").write_text(json.dumps(content, indent=1))
    return place


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_is_decoded_where_its_tokenizer_is_not(tokmill, handed, tmp_path, kind):
    where = handed / kind
    assert "hello" in tokmill("inspect", where).out
    assert "hello" in tokmill("stats", where, "--json").out or kind != "pretrain"
    assert package.open(where).text(0)
    page = tmp_path / "page.html"
    assert tokmill("report", where, "--html", page).code == 0
    assert "hello" in page.read_text()
    checked = tokmill("verify", where)
    assert checked.code == 0
    assert "not decoded" not in checked.out + checked.err
    mixed = tokmill("mix", where, "-o", tmp_path / "mixed")
    assert mixed.code == 0
    assert "hello" in tokmill("inspect", tmp_path / "mixed").out


def test_a_token_of_a_template_that_is_gone_is_still_a_control_token(tokmill, handed):
    for kind in ("sft", "mix of chats"):
        assert "‹<tool>›" in tokmill("inspect", handed / kind, "-n", "0").out


def test_the_loader_finds_tokens_by_name_where_the_tokenizer_is_not(handed):
    source = package.loader.documents(
        handed / "pretrain", fim_rate=1.0, fim_tokens=["<bos>", "<|im_start|>", "<tool>"]
    )
    assert len(source) == len(TEXTS)


@pytest.mark.parametrize("kind", ["pretrain", "sft"])
def test_a_tokenizer_that_was_saved_again_continues_appends_and_mixes(
    tokmill, tokenizer_dir, tmp_path, kind
):
    again = saved_again(tokenizer_dir, tmp_path / "again")
    rows = [CHAT] if kind == "sft" else [{"text": "hello world"}]
    path = write_lines(tmp_path / "a.jsonl", rows * 3)
    (tmp_path / "t.jinja").write_text(TEMPLATE)
    extra = ["--template", tmp_path / "t.jinja"] if kind == "sft" else []
    words = [kind, path, *extra, "-q"]
    assert tokmill(*words, "-t", tokenizer_dir, "-o", tmp_path / "one").code == 0
    before = (tmp_path / "one/manifest.json").read_bytes()
    assert tokmill(*words, "-t", again, "-o", tmp_path / "one").code == 0
    assert (tmp_path / "one/manifest.json").read_bytes() == before
    assert tokmill(*words, "-t", again, "-o", tmp_path / "two").code == 0
    assert tokmill("mix", tmp_path / "one", tmp_path / "two", "-o", tmp_path / "both").code == 0
    for name in ("one", "two", "both"):
        for copy in (again, tokenizer_dir):
            assert "hello" in tokmill("inspect", tmp_path / name, "-t", copy).out
            assert tokmill("verify", tmp_path / name, "-t", copy).code == 0


def test_an_array_is_finished_with_a_tokenizer_that_was_saved_again(
    tokmill, tokenizer_dir, good, tmp_path
):
    again, out = saved_again(tokenizer_dir, tmp_path / "again"), tmp_path / "out"
    words = ["plan", good, "-o", out, "--write"]
    assert tokmill(*words, "-t", tokenizer_dir).code == 0
    assert tokmill(*words, "-t", again).code == 0
    assert tokmill("run-part", out, "--index", "0", "--of", "1").code == 0
    assert tokmill("finish", out).code == 0
    assert tokmill("pretrain", good, "-t", again, "-o", out).code == 0


@pytest.fixture
def other(tokenizer_dir, tmp_path) -> Path:
    """A tokenizer with a normalizer and a control token more."""
    place = tmp_path / "other"
    shutil.copytree(tokenizer_dir, place)
    content = json.loads((place / "tokenizer.json").read_text())
    content["normalizer"] = {"type": "NFC"}
    content["added_tokens"][-1]["content"] = "<call>"
    (place / "tokenizer.json").write_text(json.dumps(content))
    return place


def test_tokenizers_that_differ_are_told_apart_by_key(
    tokmill, tokenizer_dir, other, good, tmp_path
):
    one, two = tmp_path / "one", tmp_path / "two"
    assert tokmill("pretrain", good, "-t", tokenizer_dir, "-o", one).code == 0
    assert tokmill("pretrain", good, "-t", other, "-o", two).code == 0
    messages = [
        tokmill("pretrain", good, "-t", other, "-o", one).error,
        tokmill("mix", one, two, "-o", tmp_path / "mixed").error,
        tokmill("inspect", one, "-t", other).error,
    ]
    n_ids = json.loads((one / "manifest.json").read_bytes())["tokenizer"]["vocab_size"]
    told = (
        f"added_tokens: <tool> is {n_ids - 1} there, absent here (and 1 more); "
        "normalizer: none there, NFC here"
    )
    for message in messages:
        assert told in message
        assert "sha256" not in message


def test_a_token_that_the_template_names_is_compared(tokmill, tokenizer_dir, tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [CHAT])
    (tmp_path / "t.jinja").write_text(TEMPLATE.replace("'<tool>'", "bos_token"))
    words = ["sft", path, "--template", tmp_path / "t.jinja", "-o", tmp_path / "out"]
    config = {"eos_token": "<eos>", "bos_token": "<bos>"}
    for name, bos in (("one", "<bos>"), ("two", "<|im_start|>")):
        shutil.copytree(tokenizer_dir, tmp_path / name)
        values = json.dumps(config | {"bos_token": bos})
        (tmp_path / name / "tokenizer_config.json").write_text(values)
    made = tokmill(*words, "-t", tmp_path / "one")
    refused = tokmill(*words, "-t", tmp_path / "two")
    assert "the tokens that the chat template names" in refused.error
    assert made.code == 0


DAMAGES = {
    "no file": (None, "keeps no tokenizer"),
    "other bytes": (b"AAAA", "is damaged"),
    "nothing": (b"", "is damaged"),
    "cut": (packed(b"{}\0{}\0")[:-1], "is damaged"),
    "two parts": (packed(b"{}\0{}"), "is damaged"),
    "a list": (packed(b"[]\0{}\0"), "is damaged"),
    "nested": (packed(b"[" * 100_000 + b"\0{}\0"), "is damaged"),
    "no text": (packed(b'{"name":7}\0{}\0'), "is damaged"),
    "no UTF-8": (packed(b"{}\0\xff\0"), "is damaged"),
}


@pytest.mark.parametrize(("content", "told"), DAMAGES.values(), ids=DAMAGES)
def test_a_kept_tokenizer_that_is_damaged_is_one_line_and_a_named_one_helps(
    tokmill, handed, tokenizer_dir, tmp_path, content, told
):
    out = shutil.copytree(handed / "pretrain", tmp_path / "out")
    path = out / "tokenizer.zst"
    path.unlink()
    forged = json.loads((out / "manifest.json").read_bytes())
    entries = [entry for entry in forged["files"] if entry["name"] != "tokenizer.zst"]
    if content is not None:
        path.write_bytes(content)
        entries.append(digest_of_chunks([content], "blake3").entry("tokenizer.zst").as_json())
    forged["files"] = entries
    forged["sha256"] = manifest_sha256(forged)
    (out / "manifest.json").chmod(0o644)
    (out / "manifest.json").write_bytes(b"".join(json_chunks(forged)))
    assert told in tokmill("inspect", out).error
    assert "hello" in tokmill("inspect", out, "-t", tokenizer_dir).out
    page = tmp_path / "page.html"
    assert tokmill("report", out, "--html", page).code == 0
    assert "No documents are shown" in page.read_text()
    assert told in page.read_text()


def test_the_kept_tokenizer_of_another_dataset_is_refused(tokmill, handed, other, good, tmp_path):
    assert tokmill("pretrain", good, "-t", other, "-o", tmp_path / "other-out").code == 0
    out = shutil.copytree(handed / "pretrain", tmp_path / "out")
    (out / "tokenizer.zst").unlink()
    shutil.copy(tmp_path / "other-out/tokenizer.zst", out)
    assert "is not that of its manifest" in tokmill("inspect", out).error
