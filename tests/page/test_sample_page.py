from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tokmill.dataset.manifest import Manifest
from tokmill.inspect.samples import Sample, SampleReader
from tokmill.page.sample_page import sample_page
from tokmill.tokenizer.decode import TokenRun

VOID = {"meta", "br", "img", "input"}


class Page(HTMLParser):
    """Collects the text of elements by class, and fails where tags do not nest."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.tags: list[str] = []
        self.texts: dict[str, str] = {}
        self.cards: list[str] = []
        self.titles: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        values = dict(attrs)
        if tag not in VOID:
            self.open.append((tag, values))
        if tag == "article":
            self.cards.append("")
        if "title" in values:
            self.titles.append(values["title"])

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        classes = {c for _, values in self.open for c in (values.get("class") or "").split()}
        if "text" in classes:
            self.cards[-1] += data
            for name in classes:
                self.texts[name] = self.texts.get(name, "") + data


def sample(*runs: TokenRun, number: int = 0, mask: bool = True) -> Sample:
    ids = tuple(id_ for run in runs for id_ in run.ids)
    trained = tuple(int(run.is_trained) for run in runs for _ in run.ids)
    return Sample(number, "train-0000000-0000", ids, trained if mask else None, None, runs)


def run(text: str, weight: float = 0, *, is_control: bool = False) -> TokenRun:
    return TokenRun((7,), is_control, weight, (text,))


@pytest.fixture
def manifest(picked_chats):
    directory, plain = picked_chats()
    return Manifest.of(plain, directory)


EVIL = "<script>alert('\"')</script></style></title>&amp;&#60;b>]]><!-- \\ --></div></article>"


def test_the_page_holds_the_text_of_samples_and_what_is_trained_of_it(manifest):
    page = Page(
        sample_page(
            "out",
            manifest,
            [
                sample(run("<s>", is_control=True), run("hi\n"), run("\n  yes", 1)),
                sample(run("  no\t\n ", 1), run("</s>", 1, is_control=True), number=1),
            ],
        )
    )
    assert page.cards == ["<s>hi\n\n  yes", "  no\t\n </s>"]
    assert page.texts["t"] == "\n  yes  no\t\n </s>"
    assert page.texts["c"] == "<s></s>"
    assert page.texts["nl"] == "\n"


def test_the_trained_text_of_the_page_is_the_decoded_trained_ids(picked_chats, tokenizer):
    directory, plain = picked_chats()
    manifest = Manifest.of(plain, directory)
    reader = SampleReader(directory, manifest, tokenizer)
    samples = [reader.read(number) for number in range(5)]
    page = Page(sample_page("out", manifest, samples))
    library = tokenizer.library()
    trained = [
        [id_ for id_, value in zip(sample.ids, sample.mask, strict=True) if value]
        for sample in samples
    ]
    decoded = [library.decode(ids, skip_special_tokens=False) for ids in trained]
    assert page.texts["t"] == "".join(decoded)
    assert page.cards == [library.decode(s.ids, skip_special_tokens=False) for s in samples]


def test_everything_is_escaped(manifest):
    assert manifest.mask is not None
    manifest = replace(manifest, mask=manifest.mask._replace(template=EVIL))
    html = sample_page(
        EVIL, manifest, [sample(run(EVIL), run(EVIL, 1), run(EVIL, 1, is_control=True))]
    )
    page = Page(html)
    assert page.cards == [EVIL * 3]
    assert page.texts["t"] == EVIL * 2
    assert page.tags.count("script") == 1  # that of the page, which the policy names by its hash
    for end in ("</style>", "</title>", "</article>", "</script>"):
        assert html.count(end) == 1
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'' in html


def test_the_page_needs_nothing_from_elsewhere(manifest):
    html = sample_page("out", manifest, [sample(run("text"))])
    assert not re.search(r"https?:|src=|href=\"[^#]|url\(|@import", html)


def test_bytes_of_a_split_character_and_control_characters_are_escapes(manifest):
    html = sample_page("out", manifest, [sample(run("a\udce2"), run("\udc82\x00\x1b\x85", 1))])
    html.encode()
    assert Page(html).cards == [r"a\xe2\x82\x00\x1b\x85"]
    assert Page(html).texts["x"] == r"\xe2\x82\x00\x1b\x85"


def test_what_turns_text_round_is_isolated_and_shown_by_its_number(manifest):
    html = sample_page("out", manifest, [sample(run("a\u202eb\r\n\ufeff", 1))])
    assert '<bdi class="o" data-code="U+202E">&#8238;</bdi>' in html
    page = Page(html)
    assert page.texts["t"] == "a\u202eb\r\n\ufeff"
    assert page.texts["o"] == "\u202e\r\ufeff"
    assert 'class="text" dir="auto"' in html


def test_a_weight_is_said_where_its_span_ends(manifest):
    half = sample(run("a", 0.5), run("</s>", 0.5, is_control=True), run("b", 1))
    html = sample_page("out", manifest, [half])
    assert re.findall(r'<mark class="t"[^>]*>', html.split("<main")[1]) == [
        '<mark class="t">',
        '<mark class="t">',
        '<mark class="t">',
        '<mark class="t" data-weight="×0.5">',
        '<mark class="t">',
    ]


def test_a_long_sample_is_cut_and_says_so(manifest):
    long = [sample(run("0123456789"), run("0123456789", 1))]
    html = sample_page("out", manifest, long, max_chars=12)
    assert Page(html).cards[0].startswith("012345678901")
    assert Page(html).texts["t"] == "01"
    assert "… 8 more characters; " in html
    assert "more characters" not in sample_page("out", manifest, long, max_chars=20)


def test_ids_are_there_on_request(manifest):
    found = sample(TokenRun((5, 6), False, 1, ("abc",)))
    assert "<details>" not in sample_page("out", manifest, [found])
    html = sample_page("out", manifest, [found], show_ids=True)
    assert "<code>5 6</code>" in html


def test_the_strip_draws_the_mask_in_tokens(manifest):
    found = sample(
        TokenRun((1, 2, 3), False, 0, ("abc",)), TokenRun((4,), False, 1, ("d",)), run("</s>", 1)
    )
    html = sample_page("out", manifest, [found])
    assert re.findall(r'<i class="(\w+)" style="flex-grow:(\d+)">', html) == [
        ("off", "3"),
        ("on", "2"),
    ]


def test_a_page_of_documents_has_no_mask(manifest):
    documents = replace(manifest, kind="pretrain", mask=None, packs={})
    found = sample(run("text"), run("<eos>", is_control=True), mask=False)
    html = sample_page("out", documents, [found])
    page = Page(html)
    assert page.cards == ["text<eos>"]
    body = html.partition("<body>")[2]
    assert "trained" not in body
    assert '"strip"' not in body
