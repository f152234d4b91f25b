"""RoBERTa, XLM-R and CamemBERT: BERT with other heads."""

from __future__ import annotations

from tokmill.bill.models.families import bert
from tokmill.bill.models.family import LANGUAGE, Family, Fields, Head
from tokmill.bill.models.model import Model
from tokmill.bill.models.shape import read_shape


def _build(f: Fields) -> Model:
    s = read_shape(f, grouped=False)
    return bert.encoder(f, s, "roberta", bert.language_head(s, "lm_head", "dense", "layer_norm"))


FAMILY = Family(
    build=_build,
    heads={
        name: head
        for start in ("Roberta", "XLMRoberta", "Camembert")
        for name, head in {
            f"{start}ForMaskedLM": LANGUAGE,
            f"{start}ForCausalLM": LANGUAGE,
            f"{start}Model": Head("", features=0, dense="pooler.dense", renamed=("roberta.", "")),
            f"{start}ForSequenceClassification": Head(
                "classifier.out_proj", bias=True, dense="classifier.dense"
            ),
            f"{start}ForTokenClassification": Head("classifier", bias=True),
            f"{start}ForQuestionAnswering": Head("qa_outputs", bias=True),
        }.items()
    },
    style=bert.FAMILY.style,
    defaults={**bert.FAMILY.defaults, "vocab_size": 50265},
)
