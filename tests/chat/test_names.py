from __future__ import annotations

import pytest

from tokmill.chat.names import check_names, role_of
from tokmill.errors import UsageError
from tokmill.settings.schema import SftSettings


@pytest.mark.parametrize("said", ["user", "USER", "User", "uSeR", " human ", "Human"])
def test_a_role_is_known_in_any_case(said):
    assert role_of(said, SftSettings()) == "user"


def test_names_of_roles_that_are_given_win_over_known_ones():
    settings = SftSettings(role_names=("Agent=assistant", "system=assistant"))
    assert [role_of(said, settings) for said in ("AGENT", "agent", "SYSTEM", "user", "nobody")] == [
        "assistant", "assistant", "assistant", "user", None
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"fields": ("speaker",)},
            "--fields: expected pairs such as role=speaker, found 'sp",
        ),
        (
            {"fields": ("speaker=role",)},
            "--fields: expected a field of messages, prompt, compl",
        ),
        (
            {"role_names": ("bot",)},
            "--role-names: expected pairs such as bot=assistant",
        ),
        (
            {"role_names": ("bot=robot",)},
            "--role-names: bot: expected a role of system, devel",
        ),
    ],
)
def test_names_that_are_no_pairs_are_refused(settings, said):
    with pytest.raises(UsageError) as caught:
        check_names(SftSettings(**settings))
    assert str(caught.value).startswith(said)
