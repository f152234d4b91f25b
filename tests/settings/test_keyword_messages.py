import pytest

from tokmill.errors import UnreadInputError
from tokmill.settings.keyword_messages import in_python, keyword_messages


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("no output: give --output, a directory", "no output: give output=…, a directory"),
        ("name the right one with --tokenizer", "name the right one with tokenizer=…"),
        ("--renderer (render.renderer) was 'a'", "renderer (render.renderer) was 'a'"),
        (
            r"name all with --template '{title}\n{abstract}', or one with --renderer text "
            "--text-field abstract",
            r'name all with template="{title}\n{abstract}", or one with renderer="text", '
            'text_field="abstract"',
        ),
        ("run with --overwrite to start again", "run with overwrite=True to start again"),
        ("choose another --output, or wait", "choose another output, or wait"),
        ("choose an --output on another disk", "choose an output on another disk"),
        (
            "read it again with --on-unread skip and --overwrite",
            'read it again with on_unread="skip" and overwrite=True',
        ),
        (
            "run again with --engine reference --overwrite, and report it",
            'run again with engine="reference", overwrite=True, and report it',
        ),
        ("leave --engine out to continue", "leave engine out to continue"),
        ("--packing (sft.packing): rows of 8 tokens", "packing (sft.packing): rows of 8 tokens"),
        ("set --max-tokens to 4096 or less", "set max_tokens to 4096 or less"),
        ("accept them with --max-reject-fraction 1", "accept them with max_reject_fraction=1"),
        ("with fewer --workers if memory is short", "with fewer workers if memory is short"),
        ("contradicts --turns everything: leave", 'contradicts turns="everything": leave'),
        ("--ignore-keys label leaves it out", 'ignore_keys=["label"] leaves it out'),
        ("--ignore-keys and the key", "ignore_keys and the key"),
        ("say who that is: --role-names bot=user", 'say who that is: role_names={"bot": "user"}'),
        ("set input.paths in a --config file", "set input.paths in a config file"),
        (
            "use tokmill sft, or tokmill sft --plan to predict it",
            'use tokmill.sft, or tokmill.plan(recipe="sft") to predict it',
        ),
        (
            "run the same command with --threads 1 if it does so again",
            "make the same call with threads=1 if it does so again",
        ),
        ("tokmill memory --models lists them", "tokmill memory --models lists them"),
        ("a file my--output.jsonl", "a file my--output.jsonl"),
        ("an odd quote: --text-field 'a\"", "an odd quote: text_field 'a\""),
    ],
)
def test_an_option_becomes_a_keyword_argument(message, expected):
    assert in_python(message) == expected


def test_an_error_keeps_its_kind_and_its_data():
    with pytest.raises(UnreadInputError) as caught, keyword_messages():
        raise UnreadInputError("use --on-unread skip", ("a.gz: cut off",))
    assert str(caught.value) == 'use on_unread="skip"'
    assert caught.value.files == ("a.gz: cut off",)
