"""Files of other kinds, formats and encodings than their names say."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile

import pyarrow as pa

from tests.cli.advice.case import (
    STORY,
    TEXTS,
    Case,
    Step,
    lines,
    plan,
    pretrain,
)
from tokmill.sources.streams import zstd

FEATHER = pa.BufferOutputStream()
with pa.ipc.new_file(FEATHER, pa.schema([("text", pa.string())])) as _file:
    _file.write(pa.record_batch({"text": [STORY] * 3}))
LATIN = "Där går en gammal färja över sjön, på väg åt öster. Många är här nu.".encode("cp1252")
OBJECT = json.dumps({"text": STORY}, indent=1)
PYTHON = (
    "python3 -c 'import ast, json, sys; [print(json.dumps(ast.literal_eval(line))) for line in "
    "sys.stdin]'"
)


def packed(ending: str, command: str) -> Case:
    """A packed file, which is unpacked by a command."""
    typed = f"{command} a.jsonl{ending} && mv a.jsonl NEW_FILE.jsonl"
    return pretrain(
        f"packed as {ending}", {f"a.jsonl{ending}": PACKED[ending]}, Step(command, typed)
    )


def archive(mode: str) -> bytes:
    """Return a tar archive with `a.jsonl`."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as tar:
        member = tarfile.TarInfo("a.jsonl")
        member.size = len(TEXTS)
        tar.addfile(member, io.BytesIO(TEXTS.encode()))
    return made.getvalue()


def zipped() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr("a.jsonl", TEXTS)
    return made.getvalue()


PACKED = {
    ".tar.gz": archive("w:gz"), ".tgz": archive("w:gz"), ".tar": archive("w:"),
    ".tar.xz": archive("w:xz"), ".tar.bz2": archive("w:bz2"), ".zip": zipped(),
    ".tar.zst": zstd.compress(archive("w:")),
    ".xz": lzma.compress(TEXTS.encode()), ".bz2": bz2.compress(TEXTS.encode()),
}  # fmt: skip
FILES = (
    pretrain(
        "no header",
        {
            "a.csv": "1,Once upon a time there was a ferry.\n"
            + "2,The old ferry still crosses at noon.\n" * 5
        },
        "--csv-header=no",
        Step("=yes", "--csv-header=yes --fields 'text=Once upon a time there was a ferry.'"),
    ),
    pretrain(
        "escapes or backslashes",
        {"a.csv": 'id,text\n1,"he said \\"hi\\" and left"\n'},
        "--csv-escape='\\'",
        "--csv-escape=none",
    ),
    pretrain(
        "quotes or cells",
        {"a.csv": 'text,id\n"Yes" he said,1\n"No" she said,2\n'},
        "--csv-quote=none",
        "--csv-quote='\"'",
    ),
    pretrain(
        "open quote",
        {"a.csv": 'id,text\n1,A ferry.\n2,"No ferry.\n3,A river.\n'},
        "--csv-quote=none",
        "--on-unread=skip",
        Step("--overwrite", "--overwrite --on-unread=skip"),
    ),
    pretrain(
        "half a surrogate pair",
        {"a.jsonl": f'{{"text": "{STORY} \\ud800"}}\n'},
        "--on-bad-text=replace",
    ),
    pretrain("bad bytes", {"a.txt": STORY.encode() + b"\xff"}, "--on-bad-text=replace"),
    pretrain("delimiter", {"a.csv": f"id;text\n1;{STORY}\n"}, "--csv-delimiter=';'"),
    pretrain("latin", {"a.txt": LATIN}, "iconv -f CP1252 -t UTF-8 a.txt > NEW_FILE"),
    pretrain("array", {"a.jsonl": json.dumps([{"text": STORY}] * 3)}, "--format=array"),
    pretrain(
        "arrays",
        {"a.jsonl": lines([{"text": STORY}], n=3)},
        "jq -c '.[]' < a.jsonl > NEW_FILE.jsonl",
    ),
    pretrain(
        "strings", {"a.jsonl": lines(STORY, n=3)}, "jq -c '{text: .}' < a.jsonl > NEW_FILE.jsonl"
    ),
    pretrain(
        "arrays of strings",
        {"a.jsonl": lines([STORY, STORY], n=3)},
        """jq -c '{text: join("\\n")}' < a.jsonl > NEW_FILE.jsonl""",
    ),
    pretrain(
        "commas",
        {"a.jsonl": '{"text": "a ferry"},\n' * 3},
        "sed 's/,[[:space:]]*$//' < a.jsonl > NEW_FILE.jsonl",
    ),
    pretrain(
        "comments",
        {"a.jsonl": '{"text": "a ferry"} // one\n' * 3},
        "sed -E 's,\\}[[:space:]]*(//|#).*,},' < a.jsonl > NEW_FILE.jsonl",
    ),
    pretrain(
        "several objects on a line",
        {"a.jsonl": '{"text": "a ferry"} {"text": "a dog"}\n' * 3},
        "jq -c . < a.jsonl > NEW_FILE.jsonl",
    ),
    pretrain("objects over lines", {"a.jsonl": OBJECT * 3}, "jq -c . < a.jsonl > NEW_FILE.jsonl"),
    pretrain(
        "objects over lines, gzip",
        {"a.jsonl.gz": gzip.compress(OBJECT.encode() * 3)},
        "gzip -dc a.jsonl.gz | jq -c . > NEW_FILE.jsonl",
    ),
    pretrain(
        "dictionaries",
        {"a.jsonl": "{'text': 'a ferry'}\n" * 3},
        f"{PYTHON} < a.jsonl > NEW_FILE.jsonl",
    ),
    pretrain("prose", {"a.jsonl": f"{STORY}\n" * 3}, "--format=text"),
    pretrain("feather", {"a.feather": FEATHER.getvalue().to_pybytes()}, "--format=arrow"),
    pretrain("program", {"a.py": "print(1)\n"}, "--format=text"),
    pretrain("unknown ending", {"a.data": STORY}, Step("--format", "--format=text")),
    plan("records named as text", {"a.txt": TEXTS}, "--format=text"),
    pretrain(
        "long text",
        {"a.txt": f"{STORY}\n" * 20},
        Step("--text-separator", "--text-separator '\\n'"),
        Step("--max-record-bytes", "--max-record-bytes 10000"),
        more=" --max-record-bytes 1000",
    ),
    pretrain(
        "cut off",
        {"a.jsonl": TEXTS[:-9]},
        "--on-unread=skip",
        Step("--overwrite", "--overwrite --on-unread=skip"),
    ),
    plan("cut off, planned", {"a.jsonl": TEXTS[:-9]}, "--on-unread=skip"),
    pretrain(
        "keep of text",
        {"a.txt": STORY},
        Step("--keep", "tokmill pretrain a.txt -t TOK -o out"),
        more=" --keep url",
    ),
    *(
        packed(ending, command)
        for ending, command in {
            ".tar.gz": "tar -xzf",
            ".tgz": "tar -xzf",
            ".tar.zst": "tar --zstd -xf",
            ".tar": "tar -xf",
            ".tar.xz": "tar -xJf",
            ".tar.bz2": "tar -xjf",
            ".zip": "unzip",
            ".xz": "xz -dk",
            ".bz2": "bunzip2 -k",
        }.items()
    ),
    pretrain("xz under another name", {"a.jsonl": PACKED[".xz"]}, "xz -dc < a.jsonl > NEW_FILE"),
    pretrain(
        "bzip2 under another name", {"a.jsonl": PACKED[".bz2"]}, "bunzip2 -c < a.jsonl > NEW_FILE"
    ),
    pretrain(
        "objects over lines, zstd",
        {"a.jsonl.zst": zstd.compress(OBJECT.encode() * 3)},
        "zstd -dc a.jsonl.zst | jq -c . > NEW_FILE.jsonl",
    ),
    pretrain(
        "tokens",
        {"train.bin": bytes([5, 0, 6, 0, 0, 0]), "train.idx": b""},
        Step("tokmill import", "tokmill import . --from nanogpt -t TOK -o out"),
    ),
    pretrain(
        "settings",
        {"a.toml": "[input]\npaths = ['a.jsonl']\n", "a.jsonl": TEXTS},
        Step("--config", "tokmill pretrain --config a.toml -t TOK -o out"),
    ),
    plan("a book", {"a.txt": f"{STORY}\n\n" * 12000}, "--text-separator='\\n\\n'"),
)
