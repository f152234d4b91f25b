"""The chat renderer: the records of a block to samples with the weight of every segment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tokmill.errors import TemplateLimitError
from tokmill.values import WHOLE_RECORD, SampleBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.chat.conversation import Conversation
    from tokmill.chat.records import Written
    from tokmill.settings.sft import SftSettings
    from tokmill.values import Records

_SHOWN_BYTES = 80


class ChatRenderer:
    """Turns records into samples; threads may share one.

    `settings.schema`: a schema, `auto` resolved. `template`: its name. `write`: returns the samples
    of a column of records or of one conversation, see `worker.Writers`.
    """

    schema = pa.schema([(WHOLE_RECORD, pa.large_string())])

    def __init__(
        self,
        settings: SftSettings,
        template: str,
        write: Callable[[pa.LargeStringArray | Conversation], Written],
    ) -> None:
        is_rendered = settings.schema == "text" and settings.rendered_text == "parse"
        self.name = f"{settings.schema} as {'it is' if is_rendered else template}"
        self._write = write

    def render(self, records: Records) -> SampleBatch:
        """Return the samples of a block's records, in order.

        Raises:
            TemplateLimitError: a record took too much of a template's time or memory.
        """
        try:
            written = self._write(records.batch.column(0))
        except TemplateLimitError as error:
            if error.row is None:
                raise
            beginning = records.raw(error.row)[:_SHOWN_BYTES].decode(errors="replace")
            raise TemplateLimitError(f"{error}, which begins {beginning!r}") from None
        refused = [
            (row, records.reject(row, reason, message)) for row, reason, message in written.refused
        ]
        return replace(written.samples, refused=refused)

    def render_conversation(self, conversation: Conversation) -> SampleBatch:
        """Return the samples of one conversation; raises `ChatError` if it has none."""
        return self._write(conversation).samples
