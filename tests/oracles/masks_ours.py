"""tokmill's side of a comparison of loss masks: its recipe's own pieces, in process, or its shards.

The pieces are those of `tokmill.recipes.sft`, but for what drops samples: limits of length,
and samples without a trained token.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.mask_rule import mask_rule
from tokmill.chat.reading.detect import detect_schema
from tokmill.chat.reading.schemas import parse_record, read_conversation
from tokmill.engines.choice import EngineChoice
from tokmill.engines.engine import REFERENCE
from tokmill.engines.loaded import EngineMemory
from tokmill.errors import TokmillError
from tokmill.recipes.sft import make_sample_encoder
from tokmill.recipes.sft_setup import make_chat_renderer, resolve_records, resolve_sft, sft_settings
from tokmill.recipes.spec import RunSpec
from tokmill.run.plan import resolve
from tokmill.settings.schema import (
    Config,
    InputSettings,
    LimitSettings,
    OutputSettings,
    TokenizerSettings,
)
from tokmill.settings.sft import SftSettings
from tokmill.timing import StageTimer
from tokmill.tokenizer.tokenizer import load_tokenizer
from tokmill.values import WHOLE_RECORD, Records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.chat.render_pool import ChatRenderer
    from tokmill.masks.encoder import SampleEncoder
    from tokmill.tokenizer.tokenizer import Tokenizer
    from tokmill.values import SampleBatch

_ENGINE_MEMORY_BYTES = 400 << 20
_BATCH = 500


@dataclass(frozen=True, slots=True)
class Sample:
    """Token ids and their mask, target aligned: `mask[i]` says whether token i is a target."""

    ids: list[int]
    mask: list[int]


@dataclass(frozen=True, slots=True)
class Refused:
    """No sample, and why not."""

    reason: str


Outcome = Sample | Refused


@dataclass(frozen=True, slots=True)
class DataSet:
    """Records of a file as JSON texts, and the conversations that tokmill's schemas see in them."""

    texts: list[str]
    conversations: list[Conversation]


@dataclass(frozen=True, slots=True)
class Case:
    """What is compared: a tokenizer with its eos ('' for the configured one), and settings."""

    tokenizer: Path
    settings: SftSettings
    eos: str = ""


def read_data(path: Path, settings: SftSettings | None = None) -> DataSet:
    """Read JSON Lines; what is no conversation is an error.

    Raises:
        ChatError: a record has no known shape.
    """
    with path.open(encoding="utf-8", newline="\n") as lines:
        texts = [line for line in lines if line.strip()]
    records = [parse_record(text) for text in texts]
    schema = detect_schema(records)
    settings = settings or SftSettings()
    return DataSet(texts, [read_conversation(record, schema, settings) for record in records])


def today() -> str:
    """Return the date that templates which ask for today's are told by their own framework."""
    return dt.datetime.now().astimezone().date().isoformat()


class Ours:
    """Makes samples of records as a run with these settings does."""

    def __init__(self, case: Case, *, parse: bool) -> None:
        control = "parse" if parse else "text"
        self._parse = parse
        self._config = Config(
            input=InputSettings(paths=("records",)),  # for messages
            sft=replace(case.settings, date=today()),
            tokenizer=TokenizerSettings(
                path=str(case.tokenizer), eos_token=case.eos, control_tokens_in_text=control
            ),
        )
        self.tokenizer = _tokenizer(self._config.tokenizer)
        self._alone: tuple[ChatRenderer, SampleEncoder] | None = None

    def outcomes(self, texts: Sequence[str]) -> list[Outcome]:
        """Return the sample of each record, or why there is none."""
        try:
            renderer, encoder = self._prepared([parse_record(text) for text in texts[:100]])
        except (ChatError, TokmillError) as error:
            return [Refused(f"the run: {error}")] * len(texts)
        found: list[Outcome] = []
        for start in range(0, len(texts), _BATCH):
            some = texts[start : start + _BATCH]
            column = pa.array(some, pa.large_string())
            places = np.array([(row + 1, -1) for row in range(len(some))])
            batch = pa.record_batch([column], [WHOLE_RECORD])
            records = Records(batch, places, lambda _: b"", lambda _: [])
            found += _outcomes(renderer.render(records), encoder, len(some))
        return found

    def outcome(self, conversation: Conversation) -> Outcome:
        """Return the sample of one conversation, or why there is none."""
        try:
            self._alone = self._alone or self._prepared([])
            renderer, encoder = self._alone
            return _outcomes(renderer.render_conversation(conversation), encoder, 1)[0]
        except ChatError as error:
            return Refused(f"{error.reason}: {error.message}")
        except TokmillError as error:
            return Refused(f"the run: {error}")

    def _prepared(
        self, first_records: Sequence[dict[str, Any]]
    ) -> tuple[ChatRenderer, SampleEncoder]:
        settings = sft_settings(self._config)
        sft = resolve_records(settings, self.tokenizer, first_records, "records")
        config, tokenizer, pool = resolve_sft(replace(self._config, sft=sft), self.tokenizer)
        spec = RunSpec(resolve(config, tokenizer, 0), tokenizer, _REFERENCE, 1, pool.source)
        return make_chat_renderer(config, tokenizer, pool.source), _encoder(spec)


def _outcomes(batch: SampleBatch, encoder: SampleEncoder, n_rows: int) -> list[Outcome]:
    """Encode samples; give what became of each row."""
    encoding = encoder.encode(batch, StageTimer())
    found: list[Outcome] = [Refused("no sample")] * n_rows
    for row, reject in batch.refused:
        found[row] = Refused(f"{reject.reason}: {reject.message}")
    for sample, (reason, message) in encoding.refused.items():
        found[int(batch.rows[sample])] = Refused(f"{reason}: {message}")
    tokens = encoding.tokens
    for number, sample in enumerate(encoding.samples.tolist()):
        span = slice(*tokens.offsets[number : number + 2].tolist())
        mask = (tokens.weights[span] > 0).astype(int).tolist()
        found[int(batch.rows[sample])] = Sample(tokens.ids[span].tolist(), mask)
    return found


def written(case: Case, paths: Sequence[Path], directory: Path) -> list[Sample]:
    """Write a dataset of whole files with a run of tokmill, and read its samples back."""
    from tokmill.dataset.documents import Documents
    from tokmill.run.finish import run

    config = Config(
        input=InputSettings(paths=tuple(map(str, paths))),
        output=OutputSettings(dir=str(directory)),
        limits=LimitSettings(max_reject_fraction=1.0),
        sft=replace(case.settings, date=today(), schema="mixed"),
        tokenizer=TokenizerSettings(path=str(case.tokenizer), eos_token=case.eos),
    )
    manifest = run(config, _Silent(), overwrite=True)
    found = []
    for shard in Documents(directory, manifest).shards():
        for i in range(len(shard.lengths)):
            mask = shard.sample_mask(i)
            assert mask is not None
            found.append(Sample(shard.document(i).tolist(), mask.tolist()))
    return found


_REFERENCE = EngineChoice(REFERENCE, "", "asked for")


@cache
def _tokenizer(settings: TokenizerSettings) -> Tokenizer:
    return load_tokenizer(settings)


_encoders: dict[tuple[object, ...], SampleEncoder] = {}


def _encoder(spec: RunSpec) -> SampleEncoder:
    """Return an encoder; templates with the same control tokens share one, as loading takes 1 s."""
    assert spec.config.sft is not None
    rule = mask_rule(spec.config.sft)
    tokenizer, settings = spec.tokenizer, spec.config.tokenizer
    key = (settings, rule.boundary, rule.straddling, tokenizer.special_ids)
    if key not in _encoders:
        if len(_encoders) > 3:  # 100 MB each
            _encoders.clear()
        _encoders[key] = make_sample_encoder(spec, EngineMemory(_ENGINE_MEMORY_BYTES))
    return _encoders[key]


class _Silent:
    """An observer that keeps nothing."""

    def warned(self, text: str, *, always: bool = False) -> None: ...

    def noted(self, text: str) -> None: ...

    def started(self, plan: object, n_done: int) -> None: ...

    def progressed(self, progress: object) -> None: ...

    def peak_memory_bytes(self) -> int:
        return 0
