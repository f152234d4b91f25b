"""tokmill: turns corpora into token shards, and says what training on them will take.

    >>> import tokmill
    >>> dataset = tokmill.pretrain("corpus/*.jsonl", tokenizer="gpt2/", output="out")
    >>> len(dataset), dataset.n_tokens, dataset[5], dataset.text(5)

Everything is imported when it is first used.
"""

from tokmill.lazy import attach
from tokmill.version import __version__  # see __main__: nothing else is imported here

TYPE_CHECKING = False  # that of typing, whose import takes longer than all of this module
if TYPE_CHECKING:
    from tokmill import bill, loader
    from tokmill.api.audit import audit
    from tokmill.api.dataset import Dataset, open  # noqa: A004  it opens a dataset
    from tokmill.api.encoder import Encoder, Tokens
    from tokmill.api.forecast import RunForecast
    from tokmill.api.functions import (
        finish,
        import_dataset,
        mix,
        pack,
        plan,
        pretrain,
        run_part,
        sft,
        stats,
        status,
        verify,
        write_plan,
    )
    from tokmill.api.iterators import DocumentStream, Stream, encode, read, render
    from tokmill.api.progress import Progress
    from tokmill.api.rows import ShardInfo, Token
    from tokmill.dataset.origins import Origin
    from tokmill.dataset.verify import Verification
    from tokmill.errors import TokmillError
    from tokmill.inspect.audit_result import Audit
    from tokmill.inspect.statistics import Statistics
    from tokmill.run.tasks import ArrayStatus
    from tokmill.settings.schema import Source
    from tokmill.trainers.export import Export
    from tokmill.values import ControlToken

__all__ = [
    "ArrayStatus",
    "Audit",
    "ControlToken",
    "Dataset",
    "DocumentStream",
    "Encoder",
    "Export",
    "Origin",
    "Progress",
    "RunForecast",
    "ShardInfo",
    "Source",
    "Statistics",
    "Stream",
    "Token",
    "Tokens",
    "TokmillError",
    "Verification",
    "__version__",
    "audit",
    "bill",
    "encode",
    "finish",
    "import_dataset",
    "loader",
    "mix",
    "open",
    "pack",
    "plan",
    "pretrain",
    "read",
    "render",
    "run_part",
    "sft",
    "stats",
    "status",
    "verify",
    "write_plan",
]

_MODULES = {
    **dict.fromkeys(
        ("finish", "import_dataset", "mix", "plan", "pretrain", "run_part", "sft", "status"),
        "api.functions",
    ),
    **dict.fromkeys(("pack", "stats", "verify", "write_plan"), "api.functions"),
    **dict.fromkeys(("Dataset", "open"), "api.dataset"),
    **dict.fromkeys(("Encoder", "Tokens"), "api.encoder"),
    **dict.fromkeys(("DocumentStream", "Stream", "encode", "read", "render"), "api.iterators"),
    **dict.fromkeys(("bill", "loader"), ""),
    **dict.fromkeys(("ShardInfo", "Token"), "api.rows"),
    "ArrayStatus": "run.tasks",
    "Audit": "inspect.audit_result",
    "audit": "api.audit",
    "ControlToken": "values",
    "Export": "trainers.export",
    "Origin": "dataset.origins",
    "Progress": "api.progress",
    "RunForecast": "api.forecast",
    "Source": "settings.schema",
    "Statistics": "inspect.statistics",
    "TokmillError": "errors",
    "Verification": "dataset.verify",
    "__version__": "version",
}
if not TYPE_CHECKING:  # a type checker knows every name, and finds wrong ones
    __getattr__, __dir__ = attach(__name__, _MODULES)
