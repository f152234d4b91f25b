"""Commands and options on pages that no other test runs: they exist, and those of format.md run."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

from tests.docs.conftest import Installed
from tests.docs.pages import PAGES, blocks, read
from tokmill.cli.main import COMMANDS, load_command

OF_OTHERS = {
    "docs/trainers/import.md": {"--append-eod"},
    "CONTRIBUTING.md": {"--strict", "--wording"},
    "docs/upgrading.md": {"--upgrade"},
    "docs/containers.md": {
        "--network", "--no-cache-dir", "--read-only", "--rm", "--tmpfs", "--user",
    },
    "docs/extending.md": {"--data"},
    "docs/trainers/ms-swift.md": {  # up to their first underscore
        "--attn", "--cached", "--max", "--padding", "--per", "--system", "--truncation", "--use",
    },
    "docs/trainers/megatron.md": {
        "--eod-mask-loss", "--make-vocab-size-divisible-by", "--per-split-data-args-path",
        "--reset-attention-mask", "--reset-position-ids", "--split",
        "--train-data-path",
    },
}  # fmt: skip
"""Options of other programs, by page."""

CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
BENCH = re.compile(r"python -m (bench\.\w+)")


def options() -> set[str]:
    commands = [load_command(name) for name in COMMANDS]
    found = {"--help", "--version", "--no-color"}
    for command in commands:
        for param in command.params:
            found |= {*param.opts, *param.secondary_opts}
    return found


def of_bench(page: str) -> set[str]:
    """Return the options on a page that its programs of bench have in their source."""
    modules = [importlib.util.find_spec(name) for name in {*BENCH.findall(read(page)), "bench"}]
    files = [Path(str(module.origin)) for module in modules if module is not None]
    sources = [path for file in files for path in (file, *file.parent.glob("*.py"))]
    return {name for path in sources for name in OPTION.findall(path.read_text(encoding="utf-8"))}


def test_every_option_on_a_page_exists() -> None:
    known = options()
    for page in PAGES:
        named = {name for code in CODE.findall(read(page)) for name in OPTION.findall(code)}
        unknown = named - known - OF_OTHERS.get(page, set())
        assert not unknown or unknown <= of_bench(page), page


def test_every_program_of_bench_on_a_page_exists() -> None:
    for page in PAGES:
        for name in BENCH.findall(read(page)):
            assert importlib.util.find_spec(name) is not None, (page, name)


def test_the_programs_of_the_format_run_in_a_directory_of_packed_chats(desk: Installed) -> None:
    programs = [block.text for block in blocks("docs/format.md") if block.language == "python"][:3]
    ends = "assert len(tokens) == len(mask) and rows[-1] == len(samples) == samples.max() + 1 > 100"
    start = "import os\nimport numpy as np\nos.chdir('sft')"
    desk.python("\n".join([start, *programs, ends]))


def test_sha256sum_checks_a_dataset_with_its_checksums(installed: Installed) -> None:
    (check,) = (block.text for block in blocks("docs/format.md") if block.language == "console")
    installed.shell("TOKMILL_CHECKSUM=sha256 tokmill pretrain corpus -t gpt2 -o out")
    if shutil.which("sha256sum") is None:
        pytest.skip("sha256sum is not installed")
    installed.shell(check)
    shard = installed.desk / "out" / "train-0000000-0000.bin"
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-1] + b"\1")
    with pytest.raises(AssertionError, match=r"train-0000000-0000\.bin: FAILED"):
        installed.shell(check)


TWINS = {
    "pretrain": "tokmill.pretrain(",
    "sft": "tokmill.sft(",
    "plan": "tokmill.plan(",
    "run-part": "tokmill.run_part(",
    "finish": "tokmill.finish(",
    "mix": "tokmill.mix(",
    "memory": "tokmill.bill.of(",
    "verify": ".verify()",
    "stats": ".stats()",
    "inspect": (".show(", ".text(", ".mask("),
    "export": ".export(",
    "report": (".report(", ".bill("),
}
"""What stands for a command in Python; `doctor` and `completion` are for a shell alone."""
FIRST_PAGES = ["README.md", *(page for page in PAGES if page.startswith("docs/start/"))]


@pytest.mark.parametrize("page", FIRST_PAGES)
def test_each_command_has_its_twin_in_python_on_the_page(page: str) -> None:
    text = read(page)
    commands = [command.split() for block in blocks(page) for command in block.commands()]
    verbs = {words[1] for words in commands if words[0] == "tokmill"} - {"doctor"}
    for verb in verbs:
        twins = TWINS[verb] if isinstance(TWINS[verb], tuple) else (TWINS[verb],)
        assert any(twin in text for twin in twins), verb
