"""Commands that print a message with advice, and what somebody who follows it types next."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tokmill.sources.streams import zstd


SAMPLES = Path(__file__).parents[2] / "data_samples"
STORY = "The river bends twice before it meets the sea, and the old ferry still crosses at noon. "
GIT_LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


class Step(NamedTuple):
    """A piece of advice. `said`: as it stands in the message; `typed`: '' if it is typed as said.

    An option is added to the command, a command of tokmill replaces it. A command of the shell is
    typed before the first one is repeated, with NEW_FILE in place of the input.
    """

    said: str
    typed: str = ""


class Case(NamedTuple):
    """A command, the files that it meets, and every piece of advice that it prints.

    TOK and CHAT in the command: a small tokenizer, and the one of the samples. Each step is tried
    in a new folder. `before`: commands that are run first.
    """

    name: str
    files: Mapping[str, str | bytes]
    command: str
    steps: tuple[Step, ...]
    before: tuple[str, ...] = ()


def lines(*rows: Any, n: int = 1) -> str:
    """Return JSON Lines, repeated `n` times."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows) * n


def chat(*turns: tuple[str, str], role: str = "role", content: str = "content") -> dict[str, Any]:
    """Return a record with messages."""
    return {"messages": [{role: name, content: text} for name, text in turns]}


PRETRAIN = "tokmill pretrain IN -t TOK -o out"
SFT = "tokmill sft IN -t CHAT -o out"
TEXTS = lines(*({"text": f"{STORY}{i}"} for i in range(20)))
CHATS = lines(chat(("user", "Who is there?"), ("assistant", "A ferry.")), n=20)


def pretrain(
    name: str,
    files: Mapping[str, str | bytes],
    *steps: str | Step,
    more: str = "",
    before: tuple[str, ...] = (),
) -> Case:
    return _case(name, files, PRETRAIN + more, steps, before)


def plan(name: str, files: Mapping[str, str | bytes], *steps: str | Step, more: str = "") -> Case:
    return _case(name, files, "tokmill plan IN -t TOK" + more, steps)


def sft(
    name: str,
    files: Mapping[str, str | bytes],
    *steps: str | Step,
    more: str = "",
    before: tuple[str, ...] = (),
) -> Case:
    return _case(name, files, SFT + more, steps, before)


def _case(
    name: str,
    files: Mapping[str, str | bytes],
    command: str,
    steps: tuple[str | Step, ...],
    before: tuple[str, ...] = (),
) -> Case:
    command = command.replace("IN", next(iter(files), "nothing"), 1)
    made = tuple(step if isinstance(step, Step) else Step(step) for step in steps)
    return Case(name, files, command, made, before)


FEATHER = pa.BufferOutputStream()
with pa.ipc.new_file(FEATHER, pa.schema([("text", pa.string())])) as _file:
    _file.write(pa.record_batch({"text": [STORY] * 3}))
LATIN = "Där går en gammal färja över sjön, på väg åt öster. Många är här nu.".encode("cp1252")
OBJECT = json.dumps({"text": STORY}, indent=1)
PYTHON = (
    "python3 -c 'import ast, json, sys; [print(json.dumps(ast.literal_eval(line))) for line in "
    "sys.stdin]'"
)

FILES = (
    pretrain(
        "no header",
        {"a.csv": "1,Once upon a time there was a ferry.\n" * 5},
        "--csv-header=no",
        Step("=yes", "--csv-header=yes --fields 'text=Once upon a time there was a ferry.'"),
    ),
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
)

HALF = {"title": STORY[:40], "abstract": STORY, "body": STORY}
OWN = """
import pyarrow as pa

from tokmill.sources.streams import zstd

def text(records):
    return pa.array([str(row) for row in records.to_pylist()])
"""
RENDERER = Step("--renderer=MODULE:FUNCTION", "--renderer=own:text")
RECORDS = (
    pretrain(
        "several texts",
        {"a.jsonl": lines(HALF, n=3)},
        "--template='{title}\\n{abstract}\\n{body}'",
        "--renderer=text --fields=text=abstract",
    ),
    pretrain(
        "a list", {"a.jsonl": lines({"body": [STORY], "x": "a word"}, n=3), "own.py": OWN}, RENDERER
    ),
    pretrain(
        "a list under text",
        {"a.jsonl": lines({"text": [STORY], "x": "a word"}, n=3), "own.py": OWN},
        Step(
            "--renderer=MODULE:FUNCTION",
            "tokmill pretrain a.jsonl -t TOK -o out --renderer=own:text",
        ),
        more=" --renderer text",
    ),
    pretrain(
        "one text of several",
        {"a.jsonl": lines({"body": STORY, "meta": {"x": [{"y": STORY}]}}, n=3)},
        "--renderer=text --fields=text=body",
    ),
    pretrain(
        "sections of other names",
        {"a.jsonl": lines({"name": "Ferry", "paragraphs": [{"body": STORY}] * 3}, n=3)},
        "--renderer=article --fields=section_content=body,sections=paragraphs,title=name",
    ),
    pretrain(
        "one record with a list",
        {"a.json": json.dumps({"data": [{"text": STORY}] * 3})},
        "--renderer=article --fields=section_content=text,sections=data",
        Step("jq -c '.data[]' FILE > NEW_FILE.jsonl", "jq -c '.data[]' a.json > NEW_FILE.jsonl"),
    ),
    pretrain(
        "chats",
        {"a.jsonl": CHATS},
        Step("tokmill sft", "tokmill sft a.jsonl -t CHAT -o out"),
        Step(
            "tokmill pretrain reads text",
            "tokmill pretrain a.jsonl -t TOK -o out --renderer=article --fields=section_title=role,sections=messages",
        ),
    ),
    pretrain(
        "questions",
        {"a.jsonl": lines({"prompt": "Who is there?", "completion": STORY}, n=3)},
        Step("tokmill sft", "tokmill sft a.jsonl -t CHAT -o out"),
        "--template='{prompt}\\n{completion}'",
    ),
    sft(
        "documents",
        {"a.jsonl": lines({"title": "Ferry", "summary": STORY, "sections": []}, n=3)},
        Step("tokmill pretrain", "tokmill pretrain a.jsonl -t TOK -o out"),
    ),
    pretrain(
        "no template",
        {"a.jsonl": TEXTS},
        Step("--template such as '{title}\\n{body}'", "--template '{text}'"),
        more=" --renderer template",
    ),
)
RUN = (
    Case(
        "no input",
        {"a.toml": "[input]\npaths = ['a.jsonl']\n", "a.jsonl": TEXTS},
        "tokmill pretrain -t TOK -o out",
        (Step("--config", "--config a.toml"),),
    ),
    Case(
        "no output",
        {"a.jsonl": TEXTS},
        "tokmill pretrain a.jsonl -t TOK",
        (Step("--output", "--output out"),),
    ),
    Case(
        "no tokenizer",
        {"a.jsonl": TEXTS},
        "tokmill pretrain a.jsonl -o out",
        (Step("--tokenizer", "--tokenizer TOK"),),
    ),
    pretrain(
        "other settings",
        {"a.jsonl": TEXTS},
        Step("--output", "--output other"),
        "--overwrite",
        more=" --dtype uint32",
        before=("tokmill pretrain a.jsonl -t TOK -o out",),
    ),
    pretrain(
        "sft there",
        {"a.jsonl": TEXTS},
        Step("--output", "--output other"),
        "--overwrite",
        before=("tokmill sft a.jsonl -t CHAT -o out --schema text",),
    ),
    Case(
        "no plan",
        {"a.jsonl": TEXTS},
        "tokmill run-part out --index 0 --of 1",
        (
            Step(
                "tokmill plan … --output out --write",
                "tokmill plan a.jsonl -t TOK --output out --write",
            ),
        ),
    ),
    pretrain(
        "foreign files",
        {"a.jsonl": TEXTS, "out/manifest.json": "{}"},
        Step("name an empty or new output", "tokmill pretrain a.jsonl -t TOK -o other"),
    ),
    pretrain(
        "rejects",
        {"a.jsonl": TEXTS + "{\n{}\n" * 40},
        Step("--max-reject-fraction", "--max-reject-fraction 1"),
    ),
    pretrain(
        "one broken", {"a.jsonl": TEXTS[:-9] + "\n"}, "--on-error=skip", more=" --on-error fail"
    ),
    pretrain(
        "a file of rejects",
        {"a.jsonl": TEXTS, "b.jsonl": '{"text": 1}\n'},
        "--max-reject-fraction=1",
        more=" b.jsonl",
    ),
)
LONG = lines(chat(("user", "Who is there?"), ("assistant", STORY * 20)), n=20)
CHATTED = (
    sft(
        "too long",
        {"a.jsonl": LONG},
        Step("--max-tokens", "--max-tokens 4000"),
        more=" --max-tokens 50",
    ),
    sft(
        "too short",
        {"a.jsonl": CHATS},
        Step("--min-tokens", "--min-tokens 2"),
        more=" --min-tokens 5000",
    ),
    sft(
        "untrained",
        {"a.jsonl": lines(chat(("user", "Hi"), ("assistant", "Ho")), n=3)},
        Step("--train", "--train content,reasoning,tool-calls --roles assistant"),
        Step("--roles", "--roles assistant"),
        Step("--turns", "--turns all --roles assistant"),
        more=" --roles system",
    ),
    sft(
        "unknown fields",
        {"a.jsonl": lines({"frage": "Who?", "antwort": STORY}, n=3)},
        Step("--fields=prompt=KEY,completion=KEY", "--fields=prompt=frage,completion=antwort"),
    ),
    sft(
        "unknown roles",
        {"a.jsonl": lines(chat(("kunde", "Who?"), ("laden", STORY)), n=3)},
        "--role-names=kunde=user,laden=assistant",
    ),
    sft(
        "system answers",
        {"a.jsonl": lines(chat(("user", "Who?"), ("system", STORY)), n=3)},
        "--role-names=system=assistant",
    ),
    sft(
        "single messages", {"a.jsonl": lines({"role": "user", "text": STORY}, n=3)}, "--schema=text"
    ),
    sft(
        "rendered",
        {
            "a.jsonl": lines(
                {
                    "text": "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\nA dog.<|im_end|>\n"
                },
                n=3,
            )
        },
        "--rendered-text=parse",
        "--rendered-text=text",
        Step(
            "tokmill pretrain --control-tokens-in-text=parse",
            "tokmill pretrain a.jsonl -t CHAT -o out --control-tokens-in-text=parse",
        ),
    ),
    sft(
        "wrong field",
        {"a.jsonl": CHATS},
        Step("--fields=messages=turns", "--fields=messages=messages"),
        more=" --fields=messages=turns",
    ),
    sft(
        "preferences",
        {"a.jsonl": lines({"prompt": "Who?", "chosen": STORY, "rejected": "None."}, n=3)},
        "--fields completion=chosen",
    ),
    sft(
        "preferences beside",
        {
            "a.jsonl": lines(
                {"prompt": "Who?", "completion": STORY, "chosen": STORY, "rejected": "None."}, n=3
            )
        },
        "--ignore-keys chosen,rejected",
    ),
    sft(
        "good and bad",
        {"a.jsonl": lines({"prompt": "Who?", "completion": STORY, "label": True}, n=3)},
        "--ignore-keys label",
    ),
    sft(
        "two schemas",
        {"a.jsonl": CHATS + lines({"prompt": "Who?", "completion": STORY}, n=20)},
        "--schema mixed",
        more=" --schema messages",
    ),
    sft(
        "history",
        {"a.jsonl": lines({"prompt": "Who?", "completion": STORY, "history": "an essay"}, n=3)},
        "--ignore-keys history",
    ),
    sft(
        "one role",
        {"a.jsonl": CHATS + lines(chat(("pilot", "Who?"), ("assistant", STORY)), n=20)},
        "--role-names pilot=user",
    ),
    sft(
        "images",
        {
            "a.jsonl": lines(
                chat(("user", "Who?"), ("assistant", STORY)) | {"images": ["a.png"]}, n=3
            )
        },
        "--ignore-keys images",
    ),
    sft(
        "rows",
        {"a.jsonl": CHATS},
        Step("--max-tokens to 64 or less", "--max-tokens 64"),
        more=" --packing 64 --max-tokens 100",
    ),
)


def packed(ending: str, command: str) -> Case:
    """A packed file, which is unpacked by a command."""
    stored = PACKED[ending]
    after = " > " if command.endswith("-dc") else ""
    unpacked = {"-dk": "a.jsonl"}.get(command[-3:], "a.jsonl")
    typed = f"{command} a.jsonl{ending} && mv {unpacked} NEW_FILE.jsonl{after}"
    return pretrain(f"packed as {ending}", {f"a.jsonl{ending}": stored}, Step(command, typed))


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
OTHERS = (
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
    plan(
        "no such field",
        {"a.jsonl": TEXTS},
        Step("--keep=ulr", "tokmill plan a.jsonl -t TOK --keep text"),
        more=" --keep ulr",
    ),
    pretrain(
        "export there",
        {"a.jsonl": TEXTS},
        "--overwrite",
        Step("name another output", "--output other"),
        before=(
            "tokmill pretrain a.jsonl -t TOK -o made",
            "tokmill export made --to nanogpt -o out",
        ),
    ),
    sft(
        "two kinds",
        {"a.jsonl": CHATS, "b.jsonl": lines({"frage": "Who?", "antwort": STORY}, n=3)},
        Step(
            '--source=\'paths = ["b.jsonl"], fields = {prompt = "KEY", completion = "KEY"}\'',
            'tokmill sft a.jsonl -t CHAT -o out --source=\'paths = ["b.jsonl"], fields = {prompt = "frage", completion = "antwort"}\'',
        ),
        more=" b.jsonl",
    ),
    sft(
        "short rows",
        {"a.jsonl": CHATS},
        Step("--min-tokens to 64 or less", "--min-tokens 4"),
        Step("--packing", "--packing 512 --min-tokens 20"),
        more=" --packing 64 --min-tokens 100",
    ),
    sft(
        "window of one",
        {"a.jsonl": CHATS},
        Step("--max-tokens", "--max-tokens 64"),
        more=" --too-long window --max-tokens 1",
    ),
    sft(
        "overlap",
        {"a.jsonl": CHATS},
        Step("--max-tokens", "--max-tokens 64"),
        Step("--window-overlap", "--window-overlap 4"),
        more=" --too-long window --max-tokens 8 --window-overlap 9",
    ),
    sft(
        "rows in files",
        {"a.jsonl": CHATS},
        Step("--packing", "--packing 512"),
        Step("--packed-rows", "tokmill sft a.jsonl -t CHAT -o out"),
        more=" --packed-rows",
    ),
)
SAMPLE_TOKENIZER = (SAMPLES / "tokenizer" / "tokenizer.json").read_text(encoding="utf-8")
TOOLS = chat(("user", "Who is there?"), ("assistant", "A ferry.")) | {
    "tools": [
        {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {}}}
    ]
}
RANKS = "".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256))


def tokenizer(
    name: str, content: str, config: Mapping[str, str], *steps: str | Step, more: str = ""
) -> Case:
    files = {
        "a.jsonl": TEXTS,
        "tok/tokenizer.json": content,
        "tok/tokenizer_config.json": json.dumps(config),
    }
    return Case(
        name,
        files,
        f"tokmill pretrain a.jsonl -t tok -o out{more}",
        tuple(s if isinstance(s, Step) else Step(s) for s in steps),
    )


TOKENIZERS = (
    tokenizer(
        "one eos",
        SAMPLE_TOKENIZER,
        {},
        Step("--eos-token", "tokmill pretrain a.jsonl -t tok -o other --eos-token '<eos>'"),
    ),
    tokenizer(
        "two eos",
        SAMPLE_TOKENIZER.replace("<|im_start|>", "</s>"),
        {},
        Step("--eos-token", "--eos-token '</s>'"),
    ),
    tokenizer("unknown eos", SAMPLE_TOKENIZER, {"eos_token": "<end>"}, "--eos-token='<eos>'"),
    tokenizer(
        "wrong eos",
        SAMPLE_TOKENIZER,
        {},
        Step("--eos-token", "tokmill pretrain a.jsonl -t tok -o out --eos-token '<eos>'"),
        more=" --eos-token '<end>'",
    ),
    tokenizer(
        "wrong bos",
        SAMPLE_TOKENIZER,
        {},
        Step(
            "--bos-token",
            "tokmill pretrain a.jsonl -t tok -o out --eos-token '<eos>' --bos-token '<bos>'",
        ),
        more=" --eos-token '<eos>' --bos-token '<start>'",
    ),
    Case(
        "ranks",
        {"a.jsonl": TEXTS, "a.tiktoken": RANKS},
        "tokmill pretrain a.jsonl -t a.tiktoken -o out",
        (Step("--pattern", "--pattern gpt2 --eos-token 0"),),
    ),
)
ENDS = (
    sft(
        "no ends",
        {
            "a.jsonl": CHATS,
            "t.jinja": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}\n{% endfor %}",
        },
        "--train=+eos",
        "--train=-eot",
        more=" --template t.jinja",
    ),
    sft(
        "tools are not written",
        {
            "a.jsonl": lines(TOOLS, n=20),
            "t.jinja": "{% for m in messages %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}\n{% endfor %}",
        },
        Step("--template", "--template chatml"),
        Step("--ignore-keys=tool_calls", "--ignore-keys=tools"),
        more=" --template t.jinja",
    ),
    sft(
        "ends outside of what is trained",
        {
            "a.jsonl": CHATS,
            "t.jinja": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}<|im_end|>\n{% endfor %}",
        },
        "--train=+eot",
        more=" --template t.jinja",
    ),
    sft(
        "a role ends a turn",
        {
            "a.jsonl": lines(
                chat(
                    ("user", "Who?"), ("assistant", STORY), ("user", "No."), ("assistant", "Yes.")
                ),
                n=20,
            ),
            "t.jinja": "{% for m in messages %}<|im_start|>{{ m.role }}\n{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}<|im_start|>",
        },
        "--train=+next-role",
        more=" --template t.jinja",
    ),
)
CASES = FILES + RECORDS + RUN + CHATTED + OTHERS + TOKENIZERS + ENDS
NOT_FOLLOWED: Mapping[str, str] = {
    "header is longer than --max-record-bytes": "the limit is its own advice",
    "git lfs pull": "needs a server",
    "7z x": "nothing here packs such a file",
    "unrar x": "nothing here packs such a file",
    "lz4 -dk": "nothing here packs such a file",
    "take --format, or uninstall one": "needs two installed packages: tests/extensions",
    "run again with --overwrite when nothing writes to it": "a race: tests/sources",
    "standard input cannot be continued": "needs a pipe: tests/run",
    "leave --engine out to continue": "needs two engines: tests/run",
    "and there is room for": "needs a full disk",
    "install that version": "needs two versions",
    "its file system lacks": "needs another file system",
    "another run writes there too": "a race",
    "another run took this place over": "a race",
    "read it again with --on-unread=skip and --overwrite": "needs a pipe: tests/run",
    "no tokenizer is named": "the command line refuses it first",
}
"""Pieces of messages that are not met here, and why."""
