"""Messages of ICU: found in lines, and their texts exchanged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapis.text.marks import take_out
from tapis.text.messages import messages_in, texts_of, with_texts


def messages(line: str) -> list[str]:
    return messages_in(line, take_out(line).marks)


PLURAL = "{n, plural, =0 {no cats} one { # cat } other {# cats of {name}}}"


def test_the_texts_of_the_branches_are_exchanged_and_their_spaces_stay() -> None:
    assert messages(f"You see {PLURAL} here, {{name}}.") == [PLURAL]
    assert texts_of(PLURAL) == ["no cats", " # cat ", "# cats of {name}"]
    found = with_texts(PLURAL, {"no cats": "pas de chat", " # cat ": "# chat", "# cats of {name}": "# chats de {name}"})
    assert found == "{n, plural, =0 {pas de chat} one { # chat } other {# chats de {name}}}"


def test_a_message_may_have_many_branches_and_lines() -> None:
    message = "{n, select," + "".join(f"\n  c{i} {{a cat}}" for i in range(300)) + "\n}"
    assert messages(f"You see {message} here.") == [message]
    assert take_out(f"You see {message} here.").text == "You see here."
    assert messages("{\n  n,\n  plural,\n  other {cats}\n}") == ["{\n  n,\n  plural,\n  other {cats}\n}"]


@pytest.mark.parametrize("line", ["", "{n}", "{n, plural, one {x}", "{n, number}", "a {b, plural c}", "plural, {x}"])
def test_what_is_no_message_is_none(line: str) -> None:
    assert messages(line) == []


texts = st.text(st.sampled_from("ab #"), max_size=6)
names = st.sampled_from(["one", "other", "=0", "few", "male"])
branches = st.lists(st.tuples(names, texts), min_size=1, max_size=4)


@given(st.sampled_from(["plural", "select", "selectordinal"]), branches, st.booleans())
def test_texts_stay_texts_and_everything_else_stays(kind: str, named: list[tuple[str, str]], is_nested: bool) -> None:
    inner = "{who}" if is_nested else ""
    message = f"{{n, {kind}, " + " ".join(f"{name} {{{text}{inner}}}" for name, text in named) + "}"
    assert messages(f"x {message} y") == [message]
    assert [mark.text for mark in take_out(f"x {message} y").marks] == [message]
    assert texts_of(message) == [text + inner for _, text in named if (text + inner).strip()]
    assert with_texts(message, {text: text for text in texts_of(message)}) == message
    changed = with_texts(message, dict.fromkeys(texts_of(message), "χ"))
    assert changed.count("χ") == len(texts_of(message)) and messages(changed) == [changed]
