"""What a worker gets: the run, and a part of it, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import canonical_json, sha256_hex
from tokmill.dataset.layout import FORMAT_VERSION
from tokmill.dataset.rules import rules_of_kind
from tokmill.engines.loaded import EngineStore
from tokmill.settings.names import of_source, output_settings
from tokmill.settings.schema import Config

if TYPE_CHECKING:
    from tokmill.engines.choice import EngineChoice
    from tokmill.extensions import Extension
    from tokmill.recipes.row_columns import RowRules
    from tokmill.settings.schema import InputSettings, RenderSettings
    from tokmill.settings.sft import SftSettings
    from tokmill.sources.files import Slice
    from tokmill.sources.token_layouts import TokenRules
    from tokmill.tokenizer.tokenizer import Tokenizer


TOKENS, ROWS = "tokens", "rows"
"""The keys of a plan, of its task too, that hold how the files of an import are read: files of
tokens, or rows of ids."""


@dataclass(frozen=True, slots=True)
class ReadingSettings:
    """How the files of a group are read and rendered; no setting of it is `auto`.

    `source`: the name of their source, '' for inputs without one. `files`: the files in words.
    `is_named`: the user named the fields to read, so a run may leave out most of the text.
    `labels`: fields whose values repeat in the first records; they do not count as text.
    """

    source: str
    files: str
    input: InputSettings
    render: RenderSettings
    sft: SftSettings | None
    is_named: bool = True
    labels: frozenset[str] = frozenset()

    def as_json(self) -> dict[str, Any]:
        """Return plain values for plan and manifest: the source, and its settings of reading."""
        config = Config(input=self.input, render=self.render, sft=self.sft)
        settings = {
            key: value
            for section, values in output_settings(config).items()
            for key, value in values.items()
            if key in of_source(section)
        }
        return {"source": self.source, "files": self.files, "settings": settings}


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A run. `config` is resolved: no setting that changes an output byte is `auto`.

    `readings`: how each group of files is read; of the run of a part, how its files are.
    `template`: in SFT, the Jinja source of the chat template.
    `memory_bytes`: the memory that one worker may take; 0 if not known. `extensions`: everything
    that the run uses and that did not come with tokmill. `engines`: those that this process has
    loaded. `plan_stamp`: what changes when the `plan.json` of this run is replaced.
    `tokens`, `rows`: of an import, how its files of tokens, or its rows of ids, are read.
    """

    config: Config
    tokenizer: Tokenizer
    engine: EngineChoice
    n_threads: int
    template: str = ""
    memory_bytes: int = 0
    extensions: tuple[Extension, ...] = ()
    engines: EngineStore = field(default_factory=EngineStore, compare=False, repr=False)
    plan_stamp: str = ""
    readings: tuple[ReadingSettings, ...] = ()
    tokens: TokenRules | None = None
    rows: RowRules | None = None

    def for_part(self, part: Part) -> RunSpec:
        """Return the run with the settings with which the files of a part are read."""
        own = self.readings[part.reading]
        config = replace(self.config, input=own.input, render=own.render, sft=own.sft)
        return replace(self, config=config, readings=(own,))

    @property
    def own_readings(self) -> tuple[ReadingSettings, ...]:
        """Return the readings, if not all files are read by the settings of the run."""
        is_one = len(self.readings) == 1 and not self.readings[0].source
        return () if is_one else self.readings

    @property
    def kind(self) -> str:
        """Return the recipe of the run: `pretrain` or `sft`."""
        return "pretrain" if self.config.sft is None else "sft"

    @property
    def command(self) -> str:
        """Return the command of the run: `pretrain`, `sft` or `import`."""
        return "import" if self.is_import else self.kind

    @property
    def is_import(self) -> bool:
        """Return whether the run reads tokens: nothing is rendered or encoded."""
        return self.tokens is not None or self.rows is not None

    @property
    def rules(self) -> dict[str, list[int]]:
        """Return the numbers of the rules of its text; an import reads none."""
        return {} if self.is_import else rules_of_kind(self.kind)

    def identity(self) -> dict[str, Any]:
        """Return all that decides the output bytes, besides the inputs."""
        chat: dict[str, Any] = {}
        if self.config.sft is not None:
            chat = {
                "template_sha256": self.template_sha256,
                "template_tokens": self.template_tokens,
            }
        # Every engine writes the same tokens.
        extensions = [
            extension.as_json() for extension in self.extensions if extension.kind != "engine"
        ]
        readings = [reading.as_json() for reading in self.own_readings]
        return {
            **chat,
            **({"readings": readings} if readings else {}),
            **({"extensions": extensions} if extensions else {}),
            **self.import_rules(),
            "format_version": FORMAT_VERSION,
            "rules": self.rules,
            "settings": output_settings(self.config),
            "tokenizer_identity": self.tokenizer.identity,
            "eos_id": self.tokenizer.eos.id,
            "bos_id": None if self.tokenizer.bos is None else self.tokenizer.bos.id,
        }

    def import_rules(self) -> dict[str, Any]:
        """Return how the files of an import are read, by the key of a plan; nothing for others."""
        if self.rows is not None:
            return {ROWS: self.rows.as_json()}
        return {} if self.tokens is None else {TOKENS: self.tokens.as_json()}

    def outside(self) -> dict[str, Any]:
        """Return the key `extensions` of plan and manifest; nothing if all came with tokmill."""
        extensions = [extension.as_json() for extension in self.extensions]
        return {"extensions": extensions} if extensions else {}

    @property
    def template_tokens(self) -> dict[str, str]:
        """Return the tokens that the template may write by the names of their keys.

        `eos_token`, and a bos that the settings name, are compared by their ids.
        """
        fixed = {"eos_token", "bos_token" if self.tokenizer.bos else ""}
        return {
            key: content
            for key, content in self.tokenizer.named
            if key not in fixed and key in self.template
        }

    @property
    def template_sha256(self) -> str:
        """Return the sha256 of the chat template."""
        return sha256_hex(self.template.encode())


@dataclass(frozen=True, slots=True)
class Part:
    """A fixed, ordered set of slices: the unit of commit, resume and distribution.

    `reading`: how its files are read; an index in `RunSpec.readings`.
    """

    index: int
    slices: tuple[Slice, ...]
    reading: int = 0

    def fingerprint(self, spec: RunSpec) -> str:
        """Return the sha256 of the run's identity and of this part's slices."""
        slices = [
            [s.file.path, s.file.n_bytes, s.file.mtime_ns, s.file.stamp, s.start, s.stop]
            for s in self.slices
        ]
        reading = [self.reading] if spec.own_readings else []
        return sha256_hex(canonical_json([spec.identity(), slices, *reading]))
