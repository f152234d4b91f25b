from __future__ import annotations

from tokmill.page.markup import content, label


def test_a_label_is_one_line_of_escaped_text_without_characters_that_change_others():
    assert label("a<b>&\"'") == "a&lt;b&gt;&amp;&quot;&#x27;"
    assert label("a\x00\n\u202eb\udcff") == "a\\x00\\n\\u202eb\\udcff"


def test_text_of_a_record_shows_bytes_and_characters_that_are_not_seen():
    assert content("<b>\x00\udcff") == (
        '&lt;b&gt;<span class="x">\\x00</span><span class="x">\\xff</span>'
    )
    for code in (0x202E, 0xAD, 0x61C, 0x2062, 0xFFF9, 0xE0041):
        shown = f'<bdi class="o" data-code="U+{code:04X}">&#{code};</bdi>'
        assert content(chr(code)) == shown
    assert content("\n a", is_edge=True) == (
        '<span class="nl">\n</span><span class="sp"> </span><span class="sp">a</span>'
    )
