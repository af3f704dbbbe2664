"""Formats of documents: what is translated in each, and that everything else stays, byte for byte."""

import contextlib
import csv
import html
import io
import json
import random
import re
import textwrap
import tracemalloc
import zipfile
from collections.abc import Sequence
from dataclasses import fields
from typing import get_args
from xml.etree import ElementTree

import pytest
import yaml
from babel.messages.pofile import read_po
from document_samples import (
    DOCX,
    DOCX_BODY,
    EPUB,
    ODT,
    ODT_BODY,
    PO,
    SAMPLES,
    TABLE,
    VTT,
    WRAPPED,
    XHTML,
    XLIFF,
    XLIFF_2,
    YAML,
    W,
    zipped,
)
from hypothesis import given
from hypothesis import strategies as st
from timing import seconds_of, takes_less_than

from tapis.documents.archives import changed_archive
from tapis.documents.common import DocumentError, texts_left, translated_texts, warnings_noted
from tapis.documents.formats import FORMAT_OF_ENDING, FORMATS, table_format
from tapis.documents.pages import translated_html
from tapis.documents.tables import translated_csv, translated_table
from tapis.documents.trees import is_prose, translated_json, translated_yaml
from tapis.documents.wrapped import translated_text
from tapis.documents.xml_text import parse_xml
from tapis.system.cli import TranslateOptions

_TAG_OR_TEXT = re.compile(r"(<[^>]*>|&\w+;|%\w)|([^<&%]+)")


def upper(lines: Sequence[str]) -> list[str]:
    """Lines in capitals, with their tags as they were."""
    return [_TAG_OR_TEXT.sub(lambda match: match[1] or match[2].upper(), line) for line in lines]


def seen_in(kind: str, document: bytes) -> list[str]:
    """The lines of a document that are translated."""
    seen: list[str] = []
    FORMATS[kind].translated(document, lambda lines: seen.extend(lines) or list(lines))  # type: ignore[func-returns-value]
    return seen


@pytest.mark.parametrize("kind", SAMPLES)
def test_texts_are_found(kind: str) -> None:
    document, texts = SAMPLES[kind]
    assert seen_in(kind, document) == texts


@pytest.mark.parametrize("kind", sorted(SAMPLES.keys() - {"po", "xliff"}))  # which get what their sources have
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_what_is_not_translated_stays_byte_for_byte(kind: str, newline: bytes) -> None:
    document, _ = SAMPLES[kind]
    if not zipfile.is_zipfile(io.BytesIO(document)):
        document = b"\xef\xbb\xbf" + document.replace(b"\n", newline)
    assert FORMATS[kind].translated(document, list) == document


def test_a_catalog_is_what_babel_reads() -> None:
    catalog = read_po(io.BytesIO(FORMATS["po"].translated(PO.encode(), upper)))
    found = {(message.id, message.context): message.string for message in catalog if message.id}
    assert found == {
        ('The %s is "here".\n', None): 'THE %s IS "HERE".\n',
        (("One cat", "%d cats"), "menu"): ("ONE CAT", "%d CATS"),
        ("old", None): "vieux",
        ("Two\nlines", None): "TWO\nLINES",
    }
    lines = FORMATS["po"].translated(PO.encode(), upper).decode().splitlines()
    assert [line for line in lines if line.startswith(("#", "msgid"))] == [
        line for line in PO.splitlines() if line.startswith(("#", "msgid"))
    ]


@pytest.mark.parametrize(
    ("singular", "n_forms", "sources"),
    [
        ("One cat", 1, ["%d cats"]),
        ("%d cat", 1, ["%d cats"]),
        ("One cat", 2, ["One cat", "%d cats"]),
        ("One cat", 3, ["%d cats", "%d cats", "%d cats"]),
        ("%d cat", 3, ["%d cat", "%d cats", "%d cats"]),
    ],
)
def test_a_plural_form_has_the_number_if_it_is_for_several_numbers(
    singular: str, n_forms: int, sources: list[str]
) -> None:
    forms = "".join(f'msgstr[{i}] ""\n' for i in range(n_forms))
    document = f'msgid "{singular}"\nmsgid_plural "%d cats"\n{forms}'
    assert seen_in("po", document.encode()) == sources


@given(st.text(st.one_of(st.sampled_from('"\\\n\t%{}é'), st.characters(exclude_categories=["Cs"])), min_size=1))
def test_any_message_comes_back_from_a_catalog(text: str) -> None:
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    escaped = re.sub(r"[\x0b\x0c\x1c-\x1e\x85\u2028\u2029\x00-\x1f]", "?", escaped)
    catalog = f'msgid "x {escaped}"\nmsgstr ""\n'
    found = FORMATS["po"].translated(catalog.encode(), list).decode()
    (message,) = [one for one in read_po(io.BytesIO(found.encode())) if one.id]
    assert message.string == message.id


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("po", 'msgid "\\tA cat\\t\\tA dog\\n"\nmsgstr ""\n'),
        ("json", '["\\tA cat\\t\\tA dog\\n"]'),
        ("yaml", 'a: "\\tA cat\\t\\tA dog\\n"\n'),
    ],
)
def test_a_tab_divides_a_text_and_stays(kind: str, document: str) -> None:
    assert seen_in(kind, document.encode()) == ["A cat", "A dog"]
    translated = in_format(kind, document)
    assert translated.count("\\tA CAT\\t\\tA DOG\\n") == 1


@pytest.mark.parametrize("sign", ["\n", "\r", "\r\n", "\t", "\v", "\f", "\x85", "\u2028", "\u2029"])
def test_every_end_of_a_line_divides_a_text_and_stays(sign: str) -> None:
    assert translated_texts([f"A cat{sign}{sign}a dog{sign}"], lambda lines: [f"<{line}>" for line in lines]) == [
        f"<A cat>{sign}{sign}<a dog>{sign}"
    ]


@given(st.lists(st.text(st.sampled_from("ab \t\r\n1."))))
def test_only_what_has_letters_is_translated_of_lines_and_between_tabs(texts: list[str]) -> None:
    translated = translated_texts(texts, lambda lines: ["".join(line.split()).upper() for line in lines])
    assert [re.findall(r"[\t\r\n]", text) for text in translated] == [re.findall(r"[\t\r\n]", text) for text in texts]
    assert translated_texts(texts, list) == texts


@given(
    st.recursive(
        st.text() | st.none() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_any_json_keeps_its_keys_and_its_form(value: object) -> None:
    for document in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        try:
            raw = document.encode()
        except UnicodeEncodeError:
            continue
        assert FORMATS["json"].translated(raw, list) == raw
        found = json.loads(FORMATS["json"].translated(raw, lambda lines: [f"{line} x" for line in lines]))

    def keys(one: object) -> object:
        if isinstance(one, dict):
            return {key: keys(inner) for key, inner in one.items()}
        return [keys(inner) for inner in one] if isinstance(one, list) else None if isinstance(one, str) else one

    assert keys(found) == keys(value)


@given(
    st.recursive(
        st.text(st.characters(exclude_categories=["Cs", "Cc"])) | st.booleans(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc d", min_size=1), inner, max_size=4),
        max_leaves=8,
    ),
    st.sampled_from([None, "'", '"', "|", ">"]),
)
def test_any_yaml_keeps_its_keys_and_its_form(value: object, style: str | None) -> None:
    document = yaml.dump(value, default_style=style, allow_unicode=True)
    assert translated_yaml(document, list) == document
    found = yaml.safe_load(translated_yaml(document, upper))

    def same(one: object, other: object) -> bool:
        if isinstance(one, dict):
            assert isinstance(other, dict)
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
        if isinstance(one, list):
            assert isinstance(other, list)
            return len(one) == len(other) and all(map(same, one, other))
        return type(one) is type(other)

    assert same(value, found)


def test_yaml_in_capitals_is_the_same_tree() -> None:
    tree = yaml.safe_load(translated_yaml(YAML, upper))
    assert tree["title"] == "THE CAT"
    assert tree["en"] == {
        "k": "ISN'T IT",
        "list": ["A DOG", "en-US", True, tree["en"]["list"][3], "TWO\nLINES"],
        "block": "FIRST LINE\nSECOND LINE\n",
        "folded": "THESE ARE TWO LINES.\nANOTHER.",
        "anchor": "SOME TEXT",
        "again": "SOME TEXT",
    }


@pytest.mark.parametrize("text", ["yes", "null", "- x", "a: b", "a # b", "'x", "*x", "12", "", " x ", "x:"])
def test_translations_in_yaml_are_texts_whatever_they_say(text: str) -> None:
    assert yaml.safe_load(translated_yaml("a: The cat\nb: c\n", lambda lines: [text for _ in lines])) == {
        "a": text,
        "b": text,
    }


NAMES = (
    *(
        "en-US",
        "a_b",
        "x.y",
        "#fff",
        "/usr/bin",
        "2024-01-02T10:00Z",
        "userName",
        "a@b.c",
        "{x}",
        "{n}px",
        "{{ count }}",
    ),
    *(
        "https://x.org/{id}?q=%s",
        "${user}",
        "item_{n}",
        "user:{id}",
        "%Y-%m-%d",
        "rgba(0,0,0)",
        "foo()",
        "List<String>",
        "image/*",
        "src/*",
        "v${version}",
        "page+{n}",
        "item#{id}",
        "a|{b}",
        "%Y年%m月%d日",
    ),
    *(":smile:", "*.txt", "<br/>", "图片/猫.png", "猫.png", "https://ja.wikipedia.org/wiki/猫"),
)
TEXTS_OF_PROGRAMS = (
    *("The cat", "Save", "Save!", "well-known cat", "Loading...", "Search…", "(optional)", "[Draft]", "*required"),
    *("Password:*", "<b>Save</b>", "Hello,{name}!", "删除{name}吗？", "最多3个", "(可选)", "파일3개를", "ไฟล์{n}"),
)


@pytest.mark.parametrize("name", NAMES)
def test_names_are_no_prose(name: str) -> None:
    assert not is_prose(name)


@pytest.mark.parametrize("text", TEXTS_OF_PROGRAMS)
def test_short_texts_of_programs_are_prose(text: str) -> None:
    assert is_prose(text)


@pytest.mark.parametrize("part", ["<a", "</a", "{", "{a", "{a}", "%a", ".a", "/", "_", "a", "一.", "(", "'"])
def test_names_are_told_in_time_in_proportion(part: str) -> None:
    assert takes_less_than(1, lambda: is_prose(part * 50_000))


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        ("po", [("old", "it has a translation")]),
        ("json", [(name, "a name, not a text for people") for name in ("x_y", "en-US", "#fff", "http://x.org/a")]),
        ("xliff", [("2", "it must not be translated, or is approved"), ("No more", "it has a target")]),
        ("docx", []),
    ],
)
def test_what_is_left_is_noted_with_the_reason(kind: str, left: list[tuple[str, str]]) -> None:
    with texts_left() as found:
        FORMATS[kind].translated(SAMPLES[kind][0], upper)
    assert sorted(found) == sorted(left)


def test_units_of_xliff_get_targets() -> None:
    translated = FORMATS["xliff"].translated(XLIFF.encode(), upper).decode()
    source = '    <source>The <g id="1">cat</g> sits<x id="2"/> &amp; waits.</source>\n'
    target = (
        '    <target state="needs-review-translation">THE <g id="1">CAT</g> SITS<x id="2"/> &amp; WAITS.</target>\n'
    )
    assert source + target in translated
    assert (
        translated.replace(target, "")
        .replace('new">A COPY', 'new">A copy')
        .replace("<target>EMPTY</target>", "<target/>")
        == XLIFF
    )
    assert FORMATS["xliff"].translated(translated.encode(), upper).decode() == translated  # all is done
    translated = FORMATS["xliff"].translated(XLIFF_2.encode(), upper).decode()
    assert '</source>\n<target>A <pc id="1">DOG</pc><ph id="2"/>.</target></segment>' in translated


def test_what_a_unit_of_xliff_says_of_itself_counts_more_than_its_group() -> None:
    def unit(number: int, own: str = "") -> str:
        more = f' translate="{own}"' if own else ""
        return f'<unit id="{number}"{more}><segment><source>A cat</source></segment></unit>'

    document = (
        '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" trgLang="fr"><file id="f">'
        f'<group translate="no">{unit(1)}{unit(2, own="yes")}<group translate="yes">{unit(3)}</group></group>'
        f"{unit(4)}</file></xliff>"
    )
    with texts_left() as left:
        translated = FORMATS["xliff"].translated(document.encode(), upper).decode()
    units = translated.split("<unit")[1:]
    assert ["<target>A CAT</target>" in one for one in units] == [False, True, True, True]
    assert [one.reason for one in left] == ["it must not be translated, or is approved"]
    with texts_left() as left:
        FORMATS["xliff"].translated(document.replace(' trgLang="fr"', "").encode(), upper)
    assert left[0].reason.startswith("it has no trgLang")


def test_subtitles_of_the_web_keep_their_times_notes_and_styles() -> None:
    translated = FORMATS["vtt"].translated(VTT.encode(), upper).decode()
    expected = VTT.replace(
        "The cat <00:01.500>sleeps\nhere &amp; there.", "THE CAT <00:01.500>SLEEPS HERE &amp; THERE."
    )
    assert translated == expected.replace("A dog", "A DOG").replace("No.", "NO.")
    with pytest.raises(DocumentError, match="first line must be WEBVTT"):
        FORMATS["vtt"].translated(b"1\n00:01.000 --> 00:02.000\nx\n", list)


def test_two_speakers_of_a_cue_stay_two_lines() -> None:
    cue = "1\n00:01,000 --> 00:02,000\n<i>- Is it\nraining?</i>\n- Yes.\n"
    assert seen_in("srt", cue.encode()) == ["<i>- Is it raining?</i>", "- Yes."]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(
            ("-Is it?", "-Yes."),
            (">> Is it?", ">> Yes."),
            ("[Anna] Is it?", "[Bob] Yes."),
            ("ANNA: Is it?", "BOB: Yes."),
            ("JÉRÔME: Is it?", "M. MÜLLER: Yes."),
        ),
        *(("{\\an8}- Is it?", "{\\an8}- Yes."), ("<v Anna>Is it?</v>", "<v Bob>Yes.</v>")),
        ("<font color=red>Is it?</font>", "<font color=blue>Yes.</font>"),
    ],
)
def test_speakers_are_told_by_how_their_lines_begin(first: str, second: str) -> None:
    times = "00:01.000 --> 00:02.000"
    for kind, beginning in (("srt", f"1\n{times.replace('.', ',')}"), ("vtt", f"WEBVTT\n\n{times}")):
        assert seen_in(kind, f"{beginning}\n{first}\n{second}\n".encode()) == [first, second]
        assert seen_in(kind, f"{beginning}\n{first}\ngoing on\n".encode()) == [f"{first} going on"]


def test_speakers_of_three_lines_are_told_apart() -> None:
    cue = "1\n00:01,000 --> 00:02,000\n"
    assert seen_in("srt", f"{cue}[Anna] Is it?\n[Bob] Yes, and\n[Anna] Good.\n".encode()) == [
        *("[Anna] Is it?", "[Bob] Yes, and", "[Anna] Good."),
    ]
    assert seen_in("srt", f"{cue}<v Anna>Is it?\n<v Bob>Yes\n<v Bob>it is.\n".encode()) == [
        *("<v Anna>Is it?", "<v Bob>Yes <v Bob>it is."),
    ]
    assert seen_in("srt", f"{cue}Look!\n<v Bob>Yes.</v>\n".encode()) == ["Look!", "<v Bob>Yes.</v>"]


@pytest.mark.parametrize(
    "text",
    [
        *("<font color=red>It is</font>\n<font color=red>so.</font>", "I went to\n[Paris] and back."),
        *("It is ten\nAM: he says", "the\nUSA: a country", "[Anna] It is\n[Anna] so.", "Note: it\nWhat: is so"),
    ],
)
def test_a_sentence_on_two_lines_is_of_one_speaker(text: str) -> None:
    document = f"1\n00:01,000 --> 00:02,000\n{text}\n".encode()
    assert seen_in("srt", document) == [" ".join(text.split("\n"))]


@pytest.mark.parametrize("kind", ["json", "po"])
def test_a_text_that_is_a_message_is_translated(kind: str) -> None:
    message = "{n, plural, one {a cat} other {# cats}}"
    document = f'{{"a": "{message}"}}' if kind == "json" else f'msgid "{message}"\nmsgstr ""\n'
    assert seen_in(kind, document.encode()) == [message]
    assert seen_in(kind, document.replace("a cat", "1").replace("# cats", "{x}").encode()) == []


LINES_OF_MESSAGE = ["{n, plural,", "  one {a cat}", "  other {# cats}", "}", "", "a dog"]


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("json", json.dumps(["\n".join(LINES_OF_MESSAGE)])),
        ("po", 'msgid ""\n' + "".join(f'"{line}\\n"\n' for line in LINES_OF_MESSAGE) + 'msgstr ""\n'),
        ("yaml", "a: |\n" + "".join(f"  {line}\n" for line in LINES_OF_MESSAGE)),
        ("yaml", "a: >-\n" + "".join(f"  {line}\n" for line in LINES_OF_MESSAGE)),
        ("xliff", "<xliff><trans-unit><source>{}</source></trans-unit></xliff>".format("\n".join(LINES_OF_MESSAGE))),
    ],
)
def test_a_message_over_several_lines_is_translated_as_a_whole(kind: str, document: str) -> None:
    seen = [" ".join(line.split()) for line in seen_in(kind, document.encode())]
    assert seen == ["{n, plural, one {a cat} other {# cats} }", "a dog"]
    french = FORMATS[kind].translated(document.encode(), lambda lines: [line.replace("cat", "chat") for line in lines])
    assert "{n,plural,one{achat}other{#chats}}adog" in re.sub(r'\\n|"|\s', "", french.decode())


def test_a_note_of_markdown_keeps_its_kind() -> None:
    document = "> [!NOTE]\n> A cat.\n\n> [!tip]-\n> A dog.\n"
    assert seen_in("markdown", document.encode()) == ["A cat.", "A dog."]
    assert in_format("markdown", document) == document.replace("A cat", "A CAT").replace("A dog", "A DOG")


def test_paragraphs_are_wrapped_as_they_were_and_other_lines_stay() -> None:
    lines = translated_text(WRAPPED, lambda texts: [text.replace(" a ", " a very very ") for text in texts]).split("\n")
    paragraphs = "\n".join(lines).split("\n\n")
    assert paragraphs[0] == "Dear John," and paragraphs[-1] == "12 Main Street\nSpringfield\n"
    assert all(len(line) <= 68 for line in lines)
    assert all(line.startswith("> ") for line in paragraphs[2].split("\n"))
    assert [line[:2] for line in paragraphs[3].split("\n")] == ["- ", "  ", "- "]
    words = " ".join(" ".join(paragraphs[1:2]).split())
    assert words == " ".join(WRAPPED.split("\n")[2:4]).replace(" a ", " a very very ")


def test_a_paragraph_may_be_translated_by_nothing() -> None:
    assert translated_text(WRAPPED, lambda texts: [""] * len(texts)).count("\n") > 0
    found = translated_text("word " * 9 + "\n" + "word " * 9 + "\n", lambda texts: [""] * len(texts))
    assert found.strip(" ") == "\n"


@pytest.mark.parametrize(
    "text",
    [
        "Roses are red,\nviolets are blue,\nsugar is sweet.\n",
        "Name: The long name of a person who lives here\nStreet: 12\nCity: Springfield\n",
        "A line that is long enough to be a whole sentence by itself.\nShort.\nAnother line that is long, too.\n",
        f"{'猫在睡觉，' * 10}。\n{'狗也在睡觉，' * 5}。\n{'鱼不睡觉，' * 7}。\n",
    ],
)
def test_lines_that_were_not_wrapped_stay_lines(text: str) -> None:
    seen: list[str] = []
    translated_text(text, lambda lines: seen.extend(lines) or list(lines))  # type: ignore[func-returns-value]
    assert seen == text.splitlines()


@pytest.mark.parametrize(
    "text", ["猫は眠っている。犬も眠る、" * 10, "我的猫睡觉，狗不睡觉。" * 10, "고양이가 잔다. " * 20]
)
def test_a_paragraph_of_any_script_is_translated_as_a_whole(text: str) -> None:
    """Where a line of Chinese or Japanese ends, no space was; in Korean, one was."""
    wrapped = "\n".join(textwrap.wrap(text, 60))
    assert seen_in("text", wrapped.encode()) == [text.strip()]


BARS = """+----------------------+----------------------+
| animal               | what it does         |
+----------------------+----------------------+
| a cat or two         | 12                   |
"""


@pytest.mark.parametrize(
    ("table", "cells"),
    [
        (BARS, ["animal", "what it does", "a cat or two"]),
        (
            "Anna           a cat                 Paris or Rome\nElizabeth-Ann  a dog that sleeps     Rome\n",
            ["Anna", "a cat", "Paris or Rome", "Elizabeth-Ann", "a dog that sleeps", "Rome"],
        ),
        ("An apple or an orange                       12\npears\t120\n", ["An apple or an orange", "pears"]),
        (
            "animal | place\n-------+------\na cat | a house\na dog | 12\n",
            ["animal", "place", "a cat", "a house", "a dog"],
        ),
    ],
)
def test_cells_of_a_table_in_plain_text_are_translated_by_themselves(table: str, cells: list[str]) -> None:
    assert seen_in("text", table.encode()) == cells
    assert in_format("text", table) == table.upper()


@pytest.mark.parametrize("translation", ["so", "a beast", "an animal of some kind"])
def test_cells_of_a_table_in_plain_text_stay_in_their_columns(translation: str) -> None:
    found = translated_text(BARS, lambda texts: [translation if text == "animal" else text for text in texts])
    assert found == BARS.replace("animal".ljust(20), translation.ljust(20))


def test_a_bar_in_a_sentence_of_plain_text_divides_no_cells() -> None:
    document = "To find all the dogs in a long file, type cat dogs | grep brown\nin a terminal and press the key.\n"
    assert seen_in("text", document.encode()) == [" ".join(document.split())]


def test_rulers_and_gaps_in_plain_text_are_no_words_of_a_paragraph() -> None:
    ruler = "=" * 50
    document = f"{ruler}\nA paragraph that is below a ruler, and above another\none.\n{ruler}\n"
    assert seen_in("text", document.encode()) == ["A paragraph that is below a ruler, and above another one."]
    item = (
        "-    An item.    It is justified   to  a column with\n     spaces  that divide it into   no  columns  of it\n"
    )
    assert seen_in("text", item.encode()) == [re.sub(r"\n +", " ", item.strip())]


@given(st.text(st.sampled_from("ab \n\r\t>-.1é|"), max_size=200))
def test_any_text_comes_back_whole(text: str) -> None:
    assert translated_text(text, list) == text


def test_runs_of_word_keep_their_looks() -> None:
    translated = FORMATS["docx"].translated(DOCX, upper)
    with zipfile.ZipFile(io.BytesIO(translated)) as archive:
        body = archive.read("word/document.xml").decode()
        assert archive.read("word/media/a.png") == b"The cat" and archive.comment == b"a comment"
        assert [info.date_time for info in archive.infolist()] == [(2020, 1, 2, 3, 4, 6)] * 3
        assert [info.compress_type for info in archive.infolist()] == [zipfile.ZIP_STORED, *[zipfile.ZIP_DEFLATED] * 2]
    name = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
    runs = [
        (
            "".join(text.text or "" for text in run.iter(f"{name}t")),
            [one.tag.removeprefix(name) for one in run.iterfind(f"{name}rPr/*")],
        )
        for run in ElementTree.fromstring(body).iter(f"{name}r")
        if run.find(f"{name}t") is not None
    ]
    assert runs == [
        *[("THE CAT", []), ("A DOG", []), (" BARKS", ["b"]), (" AT <ME>.", []), ("A LINK", ["u"]), (" HERE", [])],
        *[("ONE LINE", []), ("ANOTHER LINE", []), ("SEE PAGE ", []), ("seven", []), ("IN A BOX", []), ("OUTSIDE", [])],
        *[("INSERTED", []), ("12", []), ("BY A FIELD", []), ("NAME:", []), ("     ", ["u"])],
        *[("IN TOKYO NOW", [])],
    ]
    for kept in ("PAGEREF x", "Deleted", '<w:footnoteReference w:id="1"/>', '<w:pStyle w:val="Heading1"/>', "<w:br/>"):
        assert kept in body


def test_parts_of_word_may_have_numbers_in_their_names() -> None:
    """As Word for the web names them."""
    names = ("document2", "header12", "footnotes2", "comments3")
    document = zipped({f"word/{name}.xml": DOCX_BODY for name in names})
    assert seen_in("docx", document) == SAMPLES["docx"][1] * len(names)


NO_STYLES = ("", '<w:lang w:val="en-US"/>', "<w:noProof/>", '<w:noProof/><w:lang w:val="de-DE" w:bidi="ar-SA"/>')


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(NO_STYLES), st.sampled_from(["man ", "a"])), min_size=1))
def test_runs_that_differ_in_language_and_spelling_alone_are_one_text(runs: list[tuple[bool, str, str]]) -> None:
    def body(with_no_styles: bool) -> str:
        written = ""
        for number, (is_bold, no_style, text) in enumerate(runs):
            properties = ("<w:b/>" if is_bold else "") + (no_style if with_no_styles else "")
            style = f"<w:rPr>{properties}</w:rPr>" if properties else ""
            run = f'{style}<w:t xml:space="preserve">{text}</w:t>'
            written += f'<w:r w:rsidR="{number}">{run}</w:r><w:proofErr w:type="spellStart"/>'
        return DOCX_BODY[: DOCX_BODY.index("<w:body>")] + f"<w:body><w:p>{written}</w:p></w:body></w:document>"

    plain, checked = (zipped({"word/document.xml": body(with_no_styles)}) for with_no_styles in (False, True))
    assert seen_in("docx", checked) == seen_in("docx", plain)
    if len({is_bold for is_bold, _, _ in runs}) == 1:
        assert seen_in("docx", checked) == ["".join(text for _, _, text in runs).strip()]
    assert FORMATS["docx"].translated(checked, upper) == FORMATS["docx"].translated(plain, upper)


def test_a_field_that_ends_in_another_paragraph_may_have_fields_within() -> None:
    """As a table of contents has: the field begins in its first paragraph, and each entry is a link."""
    assert seen_in("docx", docx_of(CONTENTS_BEGIN + CONTENTS_BEGIN + RUN + FIELD_ENDS)) == [
        "<x0/><x1/><x2/><g0>A dog</g0>"
    ]
    assert seen_in("docx", docx_of(CONTENTS_BEGIN + RUN + FIELD_ENDS + FIELD_ENDS)) == ["<g0>A dog</g0><x0/>"]


def test_order_of_words_and_looks_may_change() -> None:
    def turned(lines: Sequence[str]) -> list[str]:
        return ["<x0/><g0>aboie</g0> un chien &lt;&amp;&gt;" if "barks" in line else line for line in lines]

    with zipfile.ZipFile(io.BytesIO(FORMATS["docx"].translated(DOCX, turned))) as archive:
        body = archive.read("word/document.xml").decode()
    assert '<w:r><w:rPr><w:b/></w:rPr><w:t xml:space="preserve">aboie</w:t></w:r>' in body
    assert '<w:t xml:space="preserve"> un chien &lt;&amp;&gt;</w:t>' in body
    ElementTree.fromstring(body)


@pytest.mark.parametrize(
    "line", ["no tags", "<g0>x<x0/>", "</g0>x<g0><x0/>", "<g0>x</g0><x0/><x0/>", "<g1>x</g1><x0/>"]
)
def test_a_line_whose_tags_were_lost_stays_as_it_was(line: str) -> None:
    def lost(lines: Sequence[str]) -> list[str]:
        return [line if "barks" in one else one for one in lines]

    with texts_left() as left:
        assert FORMATS["docx"].translated(DOCX, lost) == DOCX
    assert [one.reason for one in left] == ["its inline codes did not all come back"]


def test_cells_of_a_table_are_translated_and_all_else_stays() -> None:
    expected = TABLE.replace('The ""big"" cat', 'THE ""BIG"" CAT').replace("a dog", "A DOG")
    for column in ("name", "2"):
        capitals = expected if column == "name" else expected.replace("name", "NAME")
        assert translated_table(TABLE, [column], upper) == capitals
    assert translated_table(TABLE, ["3"], upper).endswith('3;;"TWO\nLINES"')
    assert translated_table("a,b\n1,2", ["a"], lambda lines: ['x,"y"' for _ in lines]) == "a,b\n1,2"
    assert translated_table("a,b\nx,2", ["a"], lambda lines: ['x,"y"' for _ in lines]) == 'a,b\n"x,""y""",2'
    for columns in ([], ["no"], ["0"], ["-1"], ["9"], ["name", "no"]):
        with pytest.raises(DocumentError, match="--column"):
            translated_table(TABLE, columns, upper)


PROSE = "A man is sleeping, and a dog runs."


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (f'1, "{PROSE}", 5\n2, "{PROSE}", 6\n', ["2"]),
        (f'id, text, n\n1, "{PROSE}", 5\n2, A cat, 6\n', ["text"]),
        (f"'t huis;{PROSE}\n'n hond;A cat\n", ["2"]),
        ('id;text\n1;"' + 120 * f"{PROSE}\n" + '"\n2;A cat\n', ["text"]),
        (f"1;{PROSE}\n2;{PROSE}\n", ["2"]),
        (f"1;{PROSE}\n2;A cat, a dog; a man\n3;{PROSE}\n4;{PROSE}\n", ["2"]),
        (f"1|{PROSE}\n", ["2"]),
        (f"sep=;\r\n1,5;{PROSE}\r\n", ["2"]),
        (f"\ufeffsep=|\nid|text\n1|{PROSE}\n", ["text"]),
        (f"price;text\n1,5;{PROSE}\n", ["text"]),
        (f"text\nA cat\n{PROSE}\n", ["text"]),
    ],
)
def test_cells_are_translated_as_a_whole(table: str, columns: list[str]) -> None:
    seen: list[str] = []
    translated_table(table, columns, lambda lines: seen.extend(lines) or list(lines))  # type: ignore[func-returns-value]
    assert any(PROSE in text for text in seen) and not any(text in PROSE.split(", ") for text in seen)
    expected = table
    for text in (PROSE, "A cat, a dog", "A cat"):
        expected = expected.replace(text, text.upper())
    assert translated_table(table, columns, upper) == expected


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("1,5;A dog\n2,5;A cat\n", "whether a comma or a semicolon separates the cells: add a first line"),
        ("1,5;A dog;x\n2,5;A cat;x\n", "whether a comma or a semicolon separates"),
        (f"1; {PROSE}\n", "whether a comma or a semicolon separates"),
        (f'1, "{PROSE} "" x, 5\n2, "{PROSE}" x, 6\n', "not clear how to read, first in row 2: "),
        (f"1,'It\\'s: {PROSE}'\n2,'{PROSE}'\n", "not clear how to read, first in row 1: "),
        (f"1,'{PROSE}',5\n2,'It''s. {PROSE}',6\n", "not clear how to read, first in row 1: "),
        ('1,"A cat"\n' * 4 + '5,"A "big" dog"\n6,"A man"\n', "not clear how to read, first in row 5: .* is doubled"),
    ],
)
def test_a_table_that_can_be_read_in_two_ways_is_refused(table: str, says: str) -> None:
    with pytest.raises(DocumentError, match=says) as caught:
        translated_table(table, ["2"], upper)
    assert "\n" not in str(caught.value)


@given(
    st.lists(st.tuples(st.integers(1, 99), st.text("ab ,;.'\"", min_size=1)), min_size=1, max_size=6),
    st.sampled_from(",;\t|"),
    st.sampled_from(["", " "]),
)
def test_no_half_of_a_quoted_cell_is_translated_in_silence(
    rows: list[tuple[int, str]], separator: str, space: str
) -> None:
    texts = ["x" + text + "x" for _, text in rows]
    cells = ['"' + text.replace('"', '""') + '"' for text in texts]
    table = "".join(f"{row[0]}{separator}{space}{cell}\n" for row, cell in zip(rows, cells, strict=True))
    seen: list[str] = []
    with warnings_noted() as warnings, contextlib.suppress(DocumentError):
        translated_table(table, ["2"], lambda lines: seen.extend(lines) or list(lines))  # type: ignore[func-returns-value]
    assert seen in ([], texts, cells) or warnings


def test_a_wrong_name_of_a_column_is_told_first() -> None:
    with pytest.raises(DocumentError, match="name the column to translate with --column: "):
        translated_table("a,b;c\n1,2;3\n", ["d"], list)


def test_rows_of_other_lengths_are_counted_in_one_warning() -> None:
    with warnings_noted() as warnings:
        translated_table("a,b\n1,2\n\n1\n1,x,y\n", ["b"], list)
    (warning,) = warnings
    assert warning.startswith("2 of 4 rows have another number of cells than the first row, which has 2")
    assert warning.endswith("row 4, row 5")
    with warnings_noted() as warnings:
        translated_table(TABLE, ["name"], upper)
    assert not warnings


@pytest.mark.parametrize("blank", ["\n", "\r\n\r\n", "\ufeff\n"])
@pytest.mark.parametrize(("column", "translated"), [("b", "b\n1,A CAT"), ("2", "B\n1,A CAT")])
def test_a_table_may_begin_with_blank_lines(blank: str, column: str, translated: str) -> None:
    table = f"{blank}a,b\n1,a cat\n"
    with warnings_noted() as warnings:
        assert translated_table(table, [column], upper) == table.replace("b\n1,a cat", translated)
    assert not warnings


@pytest.mark.parametrize("mark", [True, False])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-8"])
def test_tables_keep_their_byte_order(encoding: str, mark: bool) -> None:
    table = "\ufeff" * mark + "id,name\n1,The cat\n"
    expected = table.replace("The cat", "THE CAT").encode(encoding)
    assert translated_csv(table.encode(encoding), ["name"], upper) == expected


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_tables_keep_their_encoding(encoding: str) -> None:
    table = "nom\tx\ncafé noir\t1\n".encode(encoding)
    with warnings_noted() as warnings:
        translated = table_format(["nom"]).translated(table, upper)
    assert [("read as Windows-1252" in warning) for warning in warnings] == [True] * (encoding == "cp1252")
    assert translated.decode(encoding) == "nom\tx\nCAFÉ NOIR\t1\n"
    assert translated_csv(table, ["nom"], list) == table
    if encoding == "cp1252":
        with pytest.raises(DocumentError, match="Windows-1252 has no 'ж'"):
            translated_csv(table, ["nom"], lambda lines: ["ж" for _ in lines])


@pytest.mark.parametrize(
    ("source", "code_page", "codec", "text"),
    [
        ("ru", "Windows-1251", "cp1251", "чёрная кошка"),
        ("pl", "Windows-1250", "cp1250", "żółty kot"),
        ("ja", "Shift JIS", "cp932", "黒い猫"),
        ("zh_TW", "Big5", "cp950", "黑貓"),
        ("de", "Windows-1252", "cp1252", "Mädchen hören schöne Töne"),
        ("de", "Mac Roman", "mac_roman", "Mädchen hören schöne Töne"),
    ],
)
def test_a_table_is_read_in_the_code_page_of_its_language(source: str, code_page: str, codec: str, text: str) -> None:
    seen: list[str] = []

    def translate(lines: Sequence[str]) -> list[str]:
        seen.extend(lines)
        return ["a cat" for _ in lines]

    table = f"x,text\n1,{text}\n"
    with warnings_noted() as warnings:
        translated = table_format(["text"]).translated(table.encode(codec), translate, source)
    assert seen == [text] and translated == b"x,text\n1,a cat\n"
    assert [f"read as {code_page}:" in warning for warning in warnings] == [True]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_table_in_utf_8_with_a_damaged_line_is_refused_with_its_number(newline: str) -> None:
    lines = ["nom,x", "café noir,1", "a cat,2", "thé vert,3", "thé ?,4"]
    table = newline.join(lines).encode().replace(b"?", b"\xc3")
    with pytest.raises(DocumentError, match=r"^line 5 is not UTF-8, as most others are"):
        translated_csv(table, ["nom"], upper)


@given(st.lists(st.lists(st.text('ab",;\n\r\té ', max_size=6), min_size=2, max_size=2), min_size=1, max_size=5))
def test_any_table_comes_back_whole(rows: list[list[str]]) -> None:
    for delimiter in ",;\t":
        written = io.StringIO()
        csv.writer(written, delimiter=delimiter).writerows([["one", "two"], *rows])
        try:
            assert translated_table(written.getvalue(), ["two"], list) == written.getvalue()
            found = translated_table(written.getvalue(), ["1"], lambda lines: [f"x{line}" for line in lines])
        except DocumentError:
            continue  # another separator fits as well
        assert translated_table(found, ["2"], list) == found


def in_format(kind: str, document: str) -> str:
    return FORMATS[kind].translated(document.encode(), upper).decode()


@pytest.mark.parametrize(
    ("document", "translated"),
    [
        ('msgid "Hello " "you"\nmsgstr ""\n', 'msgid "Hello " "you"\nmsgstr "HELLO YOU"\n'),
        ('msgid ""\n"a "\n# c\n\n"b"\nmsgstr ""\n', 'msgid ""\n"a "\n# c\n\n"b"\nmsgstr "A B"\n'),
        ('msgid "x"\nmsgstr "" "there"\n', 'msgid "x"\nmsgstr "" "there"\n'),
        ('msgid "caf\\303\\251"\nmsgstr ""', 'msgid "caf\\303\\251"\nmsgstr "CAFÉ"'),
        (
            'msgid ""\nmsgstr "Content-Type: text/plain; charset=CHARSET\\n"\nmsgid "x"\nmsgstr ""',
            'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\nmsgid "x"\nmsgstr "X"',
        ),
    ],
)
def test_catalogs_as_people_have_them(document: str, translated: str) -> None:
    assert in_format("po", document) == translated


@pytest.mark.parametrize(
    ("catalog", "line"),
    [
        ('msgid "A dog"\nmsgstr ""\n\nmsgid "A cat"\n', 4),
        ('msgid "A dog"\nmsgstr ""\n\nmsgid "A cat"\nmsg', 5),
        ('msgid "A dog"\nmsgstr ""\n\nmsgid "A c', 4),
        ('msgid "A dog"\nmsgstr "\n\nmsgid "A cat"\nmsgstr ""\n', 2),
        ('msgid "A dog"\nmsgstr\n', 2),
        ('msgid ""\n"A dog"\n"and\nmsgstr ""\n', 3),
        ('# x\nmsgid "A "quoted" dog"\nmsgstr ""\n', 2),
        ('msgid "A dog"\nmsgid "A cat"\nmsgstr ""\n', 2),
        ('msgid "A dog"\nmsgctxt "x"\nmsgid "A cat"\nmsgstr ""\n', 2),
        ('msgstr "Un chien"\nmsgid "A dog"\nmsgstr ""\n', 1),
        ('"A dog"\nmsgid "A dog"\nmsgstr ""\n', 1),
        ('msgid "A dog"\nmsgstr ""\n# x\n\n<<<<<<< HEAD\nmsgid "A cat"\nmsgstr ""\n', 5),
    ],
)
def test_a_damaged_catalog_is_an_error_with_its_line(catalog: str, line: int) -> None:
    with pytest.raises(DocumentError, match=f"^line {line} is damaged: "):
        in_format("po", catalog)


@given(st.integers(1, len(PO) - 1))
def test_a_catalog_that_is_cut_within_a_message_is_an_error(length: int) -> None:
    part = PO[:length]
    line_of_catalog = re.compile(r'#.*|(msg\S+ )?"([^"\\]|\\.)*"|')
    ends_with_a_message = re.findall(r"^msg[a-z_]+", part, re.MULTILINE)[-1:] == ["msgstr"]
    if ends_with_a_message and all(map(line_of_catalog.fullmatch, part.split("\n"))):
        in_format("po", part)
    else:
        with pytest.raises(DocumentError):
            in_format("po", part)


def test_a_catalog_may_begin_with_a_byte_order_mark() -> None:
    for before, behind in (("\ufeff", ""), ("\ufeff# c\n\n", ""), ("", "\x1a")):
        assert in_format("po", f"{before}{PO}{behind}") == f"{before}{in_format('po', PO)}{behind}"


def test_a_catalog_in_another_charset_is_an_error() -> None:
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n'
    with pytest.raises(DocumentError, match="charset=ISO-8859-1: convert it"):
        in_format("po", header + 'msgid "é"\nmsgstr ""\n')


@pytest.mark.parametrize(
    ("document", "translated"),
    [
        ("a: | # a comment\n  hello\n", "a: | # a comment\n  HELLO\n"),
        ("? &k Good morning\n: 1\nx: *k\n", "? &k Good morning\n: 1\nx: *k\n"),
        ("a: [A man, b c]\n", "a: [A MAN, B C]\n"),
        ("a: !foo hello there\n", "a: !foo hello there\n"),
        ("a: hello there # note\n--- \n- x y\n", "a: HELLO THERE # note\n--- \n- X Y\n"),
    ],
)
def test_yaml_as_people_write_it(document: str, translated: str) -> None:
    assert in_format("yaml", document) == translated


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("style", ["|", ">", "|2-", "> # a comment"])
def test_blocks_of_yaml_may_have_any_line_ends(style: str, newline: str) -> None:
    document = f"a: {style}\n  hello there\n\n  good bye\nb: a cat\n".replace("\n", newline)
    expected = document
    for text in ("hello there", "good bye", "a cat"):
        expected = expected.replace(text, text.upper())
    assert in_format("yaml", document) == expected


def test_a_comma_in_a_translation_makes_no_further_item() -> None:
    found = translated_yaml("a: [A man]\nb: {x: hello there}\n", lambda lines: ["Oui, un homme" for _ in lines])
    assert yaml.safe_load(found) == {"a": ["Oui, un homme"], "b": {"x": "Oui, un homme"}}


def test_metadata_of_a_resource_bundle_stays() -> None:
    document = (
        '{"@@comment": "For all", "hello": "A cat", "@hello": {"description": "Says so", "list": ["One thing"]},'
        ' "inner": {"@type": "A kind", "x": ["A dog"]}, "@inner": "Says no more", "x": "A man"}'
    )
    assert seen_in("json", document.encode()) == ["A cat", "A kind", "A dog", "A man"]


def test_a_file_of_a_translation_tool_is_filled() -> None:
    """As Trados writes it: with a byte order mark, elements of its own, and the segments of the target prepared."""
    document = (
        '\ufeff<xliff xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0" version="1.2" sdl:version="1.0"><file><header>'
        "<file-info><value>A text</value></file-info></header><body><group><sdl:cxts><sdl:cxt id='1'/></sdl:cxts>"
        f"<trans-unit id='1'><source>A cat.</source><seg-source>{segment(1, 'A cat.')}</seg-source>"
        f"<target>{segment(1, '')}</target><sdl:seg-defs><sdl:seg id='1'><sdl:value key='k'>A value</sdl:value>"
        "</sdl:seg></sdl:seg-defs></trans-unit></group></body></file></xliff>"
    )
    assert in_format("xliff", document) == document.replace(segment(1, ""), segment(1, "A CAT."))


def test_half_a_character_in_json_stays() -> None:
    document = b'{"a": "\\ud800 hello \xc3\xa9"}'
    assert json.loads(FORMATS["json"].translated(document, upper)) == {"a": "\ud800 HELLO É"}


def test_times_of_subtitles_end_the_cue_before() -> None:
    document = "WEBVTT\n00:01.000 --> 00:02.000\nHello\n00:03.000 --> 00:04.000\nBye\nnow\n"
    assert seen_in("vtt", document.encode()) == ["Hello", "Bye now"]


@pytest.mark.parametrize("blank", ["\x0c", "\u00a0", "\t", " \x0b "])
def test_lines_of_other_spaces_end_a_paragraph(blank: str) -> None:
    document = f"This is a line that is long enough to be full wrapped text\n{blank}\nhello world\n"
    assert in_format("text", document) == document.upper()


@pytest.mark.parametrize(
    ("document", "translated"),
    [
        ("<source>A man.\n  A dog.</source>", "<source>A man.\n  A dog.</source><target>A MAN.\n  A DOG.</target>"),
        (
            '<source>A <mrk id="m" translate="no">name</mrk> here</source>',
            '<source>A <mrk id="m" translate="no">name</mrk> here</source>'
            '<target>A <mrk id="m" translate="no">name</mrk> HERE</target>',
        ),
        ("<source>A b</source><target>A b</target>", "<source>A b</source><target>A B</target>"),
        (
            "<source>A b</source><seg-source>A b</seg-source>",
            "<source>A b</source><seg-source>A b</seg-source><target>A B</target>",
        ),
        ("<source>A b</source><target>\n  </target>", "<source>A b</source><target>A B</target>"),
        (
            "<source>A b&#xD;&#xA;c d</source>",
            "<source>A b&#xD;&#xA;c d</source><target>A B&#13;\nC D</target>",
        ),
    ],
)
def test_units_as_people_have_them(document: str, translated: str) -> None:
    start, end = '<xliff version="2.0"><file><unit><segment>', "</segment></unit></file></xliff>"
    assert in_format("xliff", f"{start}{document}{end}") == f"{start}{translated}{end}"


def segment(number: int, text: str) -> str:
    return f'<mrk mtype="seg" mid="{number}">{text}</mrk>'


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (
            "A <bpt id='1'>x</bpt>cat<ept id='1'/> <bx id='2' rid='7'/>a<ex id='3' rid='7'/>",
            "A <g0>cat</g0> <g1>a</g1>",
        ),
        ("<sc id='1'/>A <sc id='2'/>cat<ec startRef='2'/> b<ec startRef='1'/>", "<g0>A <g1>cat</g1> b</g0>"),
        ("<bpt id='1'/>A <bpt id='2'/>cat<ept id='1'/> b<ept id='2'/>", "<g0>A <x0/>cat</g0> b<x1/>"),
        ("<ept id='1'/>A <bpt id='1'/>cat<ept id='2'/>", "<x0/>A <x1/>cat<x2/>"),
    ],
)
def test_codes_that_open_and_close_separately_are_pairs(source: str, line: str) -> None:
    document = f"<xliff><trans-unit><source>{source}</source></trans-unit></xliff>"
    assert seen_in("xliff", document.encode()) == [line]
    translated = FORMATS["xliff"].translated(document.encode(), list).decode()
    assert f'<target state="needs-review-translation">{source}</target>' in translated


def test_a_range_of_codes_over_two_texts_is_no_pair() -> None:
    document = "<xliff><trans-unit><source>A <bpt id='1'/>cat\na<ept id='1'/> b</source></trans-unit></xliff>"
    assert seen_in("xliff", document.encode()) == ["A <x0/>cat", "a<x1/> b"]
    start, end = '<w:bookmarkStart w:id="3" w:name="x"/>', '<w:bookmarkEnd w:id="3"/>'
    for within, lines in (
        ("<w:r><w:t>A cat</w:t></w:r>", ["<g0>A cat</g0>"]),
        ("<w:r><w:t>A cat</w:t><w:br/><w:t>a dog</w:t></w:r>", ["<x0/>A cat", "a dog<x2/>"]),
    ):
        body = f"<w:document {W}><w:p>{start}{within}{end}</w:p></w:document>"
        assert seen_in("docx", zipped({"word/document.xml": body})) == lines


def odt_of(paragraph: str) -> bytes:
    return zipped({"content.xml": ODT_BODY.replace("<text:p/>", f"<text:p>{paragraph}</text:p>")})


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ('text:bookmark-start text:name="x"', 'text:bookmark-end text:name="x"'),
        ('text:bookmark-start xml:id="y" text:name="x"', 'text:bookmark-end text:name="x"'),
        ('text:change-start text:change-id="x"', 'text:change-end text:change-id="x"'),
        ('text:toc-mark-start text:id="x"', 'text:toc-mark-end text:id="x"'),
        ('text:user-index-mark-start text:id="x"', 'text:user-index-mark-end text:id="x"'),
        ('text:alphabetical-index-mark-start text:id="x"', 'text:alphabetical-index-mark-end text:id="x"'),
        ('office:annotation office:name="x"', 'office:annotation-end office:name="x"'),
    ],
)
def test_ranges_of_an_open_document_are_around_their_words(start: str, end: str) -> None:
    assert seen_in("odt", odt_of(f"A <{start}/>cat<{end}/>"))[-1] == "A <g0>cat</g0>"


@pytest.mark.parametrize("name", ["moveFrom", "moveTo"])
def test_ranges_of_moved_text_are_around_their_words(name: str) -> None:
    moved = f'<w:{name}RangeStart w:id="1" w:name="x"/>{RUN}<w:{name}RangeEnd w:id="1"/>'
    assert seen_in("docx", docx_of(moved + RUN)) == ["<g0>A dog</g0>A dog"]


def test_a_field_in_one_element_is_translated_if_it_is_a_link() -> None:
    link, page = (f'<w:fldSimple w:instr=" {what} x">{RUN}</w:fldSimple>' for what in ("HYPERLINK", "PAGEREF"))
    assert seen_in("docx", docx_of(f"{link}{RUN}{page}")) == ["<g0>A dog</g0>A dog<x0/>"]


@pytest.mark.parametrize("name", ["br", "cr", "tab", "ptab"])
def test_breaks_and_tabs_of_word_divide_a_text(name: str) -> None:
    between = f"<w:r><w:{name}/></w:r>"
    assert seen_in("docx", docx_of(f"{RUN}{between}<w:r><w:t>A cat</w:t></w:r>")) == ["A dog", "A cat"]


@pytest.mark.parametrize("between", ["", "</w:r><w:r>"])
@pytest.mark.parametrize(("name", "sign"), [("softHyphen", ""), ("noBreakHyphen", "\u2011")])
def test_hyphens_of_word_are_within_words(name: str, sign: str, between: str) -> None:
    paragraph = f"<w:r><w:t>A sheep</w:t>{between}<w:{name}/>{between}<w:t>dog</w:t></w:r>"
    assert seen_in("docx", docx_of(paragraph)) == [f"A sheep{sign}dog"]


@pytest.mark.parametrize("name", ["smartTag", "customXml"])
def test_properties_of_an_element_are_no_part_of_its_text(name: str) -> None:
    element = f'<w:{name} w:element="date"><w:{name}Pr><w:attr w:name="x"/></w:{name}Pr>{RUN}</w:{name}>'
    assert seen_in("docx", docx_of(element + RUN)) == ["<g0>A dog</g0>A dog"]


def test_a_comment_on_words_is_translated_with_them() -> None:
    comment = '<office:annotation office:name="x"><text:p>A remark</text:p></office:annotation>'
    document = odt_of(f'A {comment}cat<office:annotation-end office:name="x"/>')
    assert seen_in("odt", document)[-2:] == ["A <g0>cat</g0>", "A remark"]
    with zipfile.ZipFile(io.BytesIO(FORMATS["odt"].translated(document, upper))) as archive:
        body = archive.read("content.xml").decode()
    assert f"A {comment.replace('A remark', 'A REMARK')}CAT<office:annotation-end" in body


SEGMENTS = " ".join([segment(1, "A <g id='1'>cat</g>."), segment(2, "A dog.")])
EMPTY = f"{segment(1, '')} {segment(2, '')}"
FIRST, SECOND = segment(1, "A <g id='1'>CAT</g>."), segment(2, "A DOG.")
DONE = segment(1, "Un chat.")


@pytest.mark.parametrize(
    ("target", "expected", "left"),
    [
        ("", f'<target state="needs-review-translation">{FIRST} {SECOND}</target>', []),
        ("<target/>", f"<target>{FIRST} {SECOND}</target>", []),
        (f"<target>{EMPTY}</target>", f"<target>{FIRST} {SECOND}</target>", []),
        (f"<target>{segment(2, ' ')}\n{segment(1, '')}</target>", f"<target>{SECOND}\n{FIRST}</target>", []),
        (f'<target><mrk mtype="seg" mid="1" />{SECOND}</target>', f"<target>{FIRST}{SECOND}</target>", ["A dog."]),
        (f"<target>{DONE} {segment(2, '')}</target>", f"<target>{DONE} {SECOND}</target>", ["A <g0>cat</g0>."]),
        (f"<target>{segment(1, '')}{segment(3, '')}</target>", f"<target>{FIRST}{segment(3, '')}</target>", ["A dog."]),
        (f'<target state="new">{SEGMENTS}</target>', f'<target state="new">{FIRST} {SECOND}</target>', []),
        ("<target>Un chat.</target>", "<target>Un chat.</target>", ["A cat. A dog."]),
    ],
)
def test_segments_of_a_unit_are_translated_one_by_one(target: str, expected: str, left: list[str]) -> None:
    start = f"<xliff><trans-unit><source>A cat. A dog.</source><seg-source>{SEGMENTS}</seg-source>"
    end = "</trans-unit></xliff>"
    with texts_left() as found:
        assert in_format("xliff", f"{start}{target}{end}") == f"{start}{expected}{end}"
    assert [one.text for one in found] == left


texts_of_segments = st.sampled_from(["A man.", "", " ", "A <x/> dog ", "1", "<g>It &amp; me</g>\nhere"])


@given(
    st.lists(st.tuples(texts_of_segments, st.sampled_from(["", "Un", None])), min_size=1, max_size=5),
    st.sampled_from(["", " ", "<x/>"]),
    st.booleans(),
)
def test_a_target_has_the_segments_of_its_source(
    segments: list[tuple[str, str | None]], between: str, is_in_code: bool
) -> None:
    """Whatever they hold, and whether the target has them or not. With None, a segment has no text in the target."""
    around = "<g id='1'>{}</g>" if is_in_code else "{}"
    seg_source = around.format(between.join(segment(i, text) for i, (text, _) in enumerate(segments)))
    targets = around.format(between.join(segment(i, target or "") for i, (_, target) in enumerate(segments)))
    expected = around.format(
        between.join(segment(i, target or upper([text])[0]) for i, (text, target) in enumerate(segments))
    )
    start, end = f"<xliff><trans-unit><source>x</source><seg-source>{seg_source}</seg-source>", "</trans-unit></xliff>"
    with_target = in_format("xliff", f"{start}<target>{targets}</target>{end}")
    assert with_target == f"{start}<target>{expected}</target>{end}"
    if not any(target for _, target in segments):
        without_target = in_format("xliff", start + end)
        assert without_target == f'{start}<target state="needs-review-translation">{expected}</target>{end}'


def accented(lines: Sequence[str]) -> list[str]:
    """Lines with their letters a and e as characters beyond ASCII, one of them beyond Latin-1."""
    return [_TAG_OR_TEXT.sub(lambda match: match[1] or match[2].translate({97: "ā", 101: "é"}), line) for line in lines]


DECLARATIONS = (
    ("xliff", '<?xml version="1.0" encoding="ENCODING"?>', ("us-ascii", "ASCII")),
    ("epub", "<?xml version='1.0' encoding='ENCODING'?>", ("us-ascii", "iso-8859-1")),
    ("html", '<html><meta charset="ENCODING">', ("windows-1252", "iso-8859-1", "us-ascii")),
    ("html", "<HTML><META CHARSET=ENCODING>", ("windows-1252", "Shift_JIS")),
    (
        "html",
        "<meta http-equiv='Content-Type'\n  content='text/html; charset=ENCODING'/>",
        ("windows-1252", "iso-8859-1"),
    ),
)


@pytest.mark.parametrize(
    ("kind", "declaration", "encoding"),
    [(kind, declaration, encoding) for kind, declaration, encodings in DECLARATIONS for encoding in encodings],
)
def test_a_translation_is_readable_in_the_encoding_that_its_document_declares(
    kind: str, declaration: str, encoding: str
) -> None:
    def translated(document: str) -> str:
        if kind != "epub":
            return FORMATS[kind].translated(document.encode(), accented).decode()
        book = zipped({"META-INF/container.xml": "<a/>", "a.xhtml": document})
        with zipfile.ZipFile(io.BytesIO(FORMATS[kind].translated(book, accented))) as archive:
            return archive.read("a.xhtml").decode()

    rest = "<html><p>A <b>cat</b> eats &amp; waits.</p><!-- a --></html>"
    if kind == "xliff":
        rest = "<xliff><trans-unit><source>A <g>cat</g> eats &lt;.</source><!-- a --></trans-unit></xliff>"
    in_utf8 = translated(declaration.replace("ENCODING", "utf-8") + rest)
    assert "ā" in in_utf8 and "é" in in_utf8
    document = declaration.replace("ENCODING", encoding)
    with_references = in_utf8.replace("ā", "&#257;").replace("é", "&#233;")
    assert translated(document + rest) == with_references.replace(declaration.replace("ENCODING", "utf-8"), document)
    assert html.unescape(with_references) == html.unescape(in_utf8)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p>cat</p>", "<p>c&#257;t</p>"),
        ('<?xml version="1.0"?><p>cat</p>', '<?xml version="1.0"?><p>cāt</p>'),
        ("<p>cat</p><p>ü</p>", "<p>cāt</p><p>ü</p>"),
        ("\ufeff<p>cat</p>", "\ufeff<p>cāt</p>"),
    ],
)
def test_a_page_that_declares_no_encoding_is_read_as_latin_1_if_it_is_ascii_and_no_xml(
    page: str, expected: str
) -> None:
    assert FORMATS["html"].translated(page.encode(), accented).decode() == expected
    assert translated_html("<p>cat</p>", accented) == "<p>cāt</p>"  # of a text that is no file


def test_fences_of_directives_and_formulas_stay() -> None:
    document = "text one\n:::note\ninside it\n:::\n\n$$\nx = y\n$$\nafter $$z$$ it\n"
    translated = document.replace("text one", "TEXT ONE").replace("inside it", "INSIDE IT")
    assert in_format("markdown", document) == translated.replace("after $$z$$ it", "AFTER $$Z$$ IT")


def test_front_matter_of_either_kind_stays() -> None:
    for sign, setting in (("---", "title: x y"), ("+++", 'title = "x y"')):
        document = f"{sign}\n{setting}\n{sign}\nbody\n"
        assert in_format("markdown", document) == document.replace("body", "BODY")


def test_names_in_an_archive_that_are_not_marked_as_utf8_stay_what_they_are() -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("XX.txt", "x")
    raw = content.getvalue().replace(b"XX.txt", "é.txt".encode())
    changed = changed_archive(raw, lambda name, one: one.upper())
    with zipfile.ZipFile(io.BytesIO(changed)) as archive:
        assert archive.namelist() == ["é.txt"]


def test_pages_of_a_book_may_have_names_of_xml() -> None:
    declaration = '<?xml version="1.0"?>\n<!-- a page -->\n'
    members = {
        "META-INF/container.xml": '<container><rootfile full-path="x y"/></container>',
        "main0.xml": declaration + XHTML,
        "drawing.xml": declaration + "<svg><text>A drawing</text></svg>",
        "empty.xml": "",
    }
    with warnings_noted() as warnings:
        assert seen_in("epub", zipped(members)) == ["A page", "A <b>dog</b>."]
    assert not warnings


def test_a_book_without_pages_causes_a_warning() -> None:
    book = zipped({"META-INF/container.xml": "<a/>", "main.pdf": "A cat"})
    with warnings_noted() as warnings:
        assert FORMATS["epub"].translated(book, upper) == book
    (warning,) = warnings
    assert "no page to translate: no .xhtml, .html, .htm, and" in warning


def test_the_author_in_a_table_of_contents_keeps_the_name() -> None:
    contents = (
        "<ncx><docTitle><text>Two dogs</text></docTitle><docAuthor><text>Ann Lee</text></docAuthor><navMap>"
        "<navInfo><text>The parts</text></navInfo><navPoint><navLabel><text>A man</text></navLabel></navPoint>"
        "</navMap></ncx>"
    )
    book = zipped({"META-INF/container.xml": "<a/>", "a.xhtml": XHTML, "toc.ncx": contents})
    assert seen_in("epub", book)[2:] == ["Two dogs", "The parts", "A man"]


def test_the_doctype_of_a_table_of_contents_is_kept() -> None:
    doctype = '<!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" "http://x.org/ncx-2005-1.dtd">'
    contents = f"{doctype}<ncx><docTitle><text>Two dogs</text></docTitle></ncx>"
    book = zipped({"META-INF/container.xml": "<a/>", "a.xhtml": XHTML, "toc.ncx": contents})
    with zipfile.ZipFile(io.BytesIO(FORMATS["epub"].translated(book, upper))) as archive:
        assert archive.read("toc.ncx").decode() == contents.replace("Two dogs", "TWO DOGS")


def test_the_ending_of_a_table_says_its_separator() -> None:
    table = b"text\nHello, my man\nA dog, a cat\n"
    assert table_format(["text"], "\t").translated(table, upper) == b"text\nHELLO, MY MAN\nA DOG, A CAT\n"


# Documents that lie

BOMB = zipped({"word/document.xml": "<a/>", "x": "0" * 50_000_000})
ENTITIES = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><w:document>&b;</w:document>'
DEFAULTS = '<!DOCTYPE xliff [<!ATTLIST g z CDATA "aaaaaaaaaa">]><xliff><g/></xliff>'
OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>'


RUN = "<w:r><w:t>A dog</w:t></w:r>"
FIELD_BEGINS = '<w:r><w:fldChar w:fldCharType="begin"/></w:r>'
CONTENTS_BEGIN = (
    f'{FIELD_BEGINS}<w:r><w:instrText>TOC</w:instrText></w:r><w:r><w:fldChar w:fldCharType="separate"/></w:r>'
)
FIELD_ENDS = '<w:r><w:fldChar w:fldCharType="end"/></w:r>'


def docx_of(paragraph: str) -> bytes:
    return zipped({"word/document.xml": f"<w:document {W}><w:body><w:p>{paragraph}</w:p></w:body></w:document>"})


@pytest.mark.parametrize(
    ("kind", "document", "says"),
    [
        ("docx", b"", "no whole zip archive"),
        ("docx", b"\xd0\xcf\x11\xe0" + bytes(600), "has a password, or is an old file such as .doc"),
        ("odt", zipped({"content.xml": "\x05", "META-INF/manifest.xml": "<encryption-data/>"}), "is encrypted"),
        ("docx", b"PK\x03\x04 and no more", "no whole zip archive"),
        ("docx", DOCX[: len(DOCX) // 2], "no whole zip archive"),
        ("docx", DOCX.replace(b"PK\x01\x02", b"PK\x01\x03"), "no whole zip archive"),
        ("docx", ODT, r"has no word/document\*.xml"),
        ("docx", BOMB, "expands to far more"),
        ("docx", zipped({"word/document.xml": ENTITIES}), "has declarations in its DOCTYPE"),
        ("docx", zipped({"word/document.xml": OUTSIDE}), "has declarations in its DOCTYPE"),
        ("docx", zipped({"word/document.xml": "<a>" * 1000 + "</a>" * 1000}), "deep"),
        ("docx", zipped({"word/document.xml": DOCX_BODY[:-20]}), "XML is damaged"),
        ("docx", docx_of(f"{CONTENTS_BEGIN * 1000}{RUN}{FIELD_ENDS * 1000}"), "fields are more than 200 deep"),
        ("docx", zipped({"word/document.xml": DOCX_BODY, "word/header1.xml": "<a>"}), "^word/header1.xml: .* damaged"),
        ("odt", zipped({"content.xml": ODT_BODY, "styles.xml": "<a>"}), "^styles.xml: .* damaged"),
        ("epub", zipped({"META-INF/container.xml": "", "toc.ncx": "<a>"}), "^toc.ncx: .* damaged"),
        ("epub", zipped({"META-INF/container.xml": "", "a.html": "<\0p\0>\0a\0"}), "^a.html is not UTF-8"),
        ("odt", EPUB, "has no content.xml"),
        ("epub", ODT, "has no META-INF/container.xml"),
        ("xliff", b"<tmx/>", "no XLIFF"),
        ("xliff", OUTSIDE.encode(), "has declarations in its DOCTYPE"),
        ("xliff", DEFAULTS.encode(), "has declarations in its DOCTYPE"),
        ("xliff", XLIFF.encode("utf-16"), "UTF-16"),
        ("xliff", b'<?xml version="1.0" encoding="iso-8859-1"?><xliff>\xe9</xliff>', "in iso-8859-1"),
        ("xliff", b"\xff\x00\x01", "XML is damaged"),
        ("json", b"{", "not JSON"),
        ("json", b"[" * 100_000, "not JSON"),
        ("json", b'"\xff"', "not UTF-8"),
        ("yaml", b"a: [", "not YAML"),
        ("yaml", b"[" * 1500, "not YAML"),
        ("yaml", b"a: \x00", "not YAML"),
        ("po", b"The cat\n", "no catalog"),
        ("text", "The cat is here.".encode("utf-16"), "UTF-16"),
        ("table", b"id,text,text\n1,A cat,A dog\n", "--column text: columns 2, 3 have this name"),
    ],
)
def test_a_document_that_lies_is_an_error_in_words(kind: str, document: bytes, says: str) -> None:
    format_of_kind = table_format(["text"]) if kind == "table" else FORMATS[kind]
    with pytest.raises(DocumentError, match=says) as caught:
        format_of_kind.translated(document, list)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, 99])  # 99 is AES
def test_an_encrypted_archive_is_an_error(method: int) -> None:
    encrypted = bytearray(DOCX)
    place = encrypted.index(b"PK\x01\x02")
    encrypted[place + 8] |= 1
    encrypted[place + 10] = method
    with pytest.raises(DocumentError, match="encrypted"):
        FORMATS["docx"].translated(bytes(encrypted), list)


@pytest.mark.parametrize(
    ("method", "says"), [(zipfile.ZIP_DEFLATED, "no whole zip archive"), (zipfile.ZIP_BZIP2, "a rare method")]
)
def test_an_archive_that_understates_its_size_cannot_fill_the_memory(method: int, says: str) -> None:
    size = 30_000_000
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        archive.writestr("word/document.xml", bytes(size))
    document = content.getvalue().replace(size.to_bytes(4, "little"), (10).to_bytes(4, "little"))
    tracemalloc.start()
    with pytest.raises(DocumentError, match=says):
        changed_archive(document, lambda name, one: one)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 10


def test_an_archive_with_a_file_twice_is_an_error() -> None:
    twice = zipped({"a.txt": "A cat", "b.txt": "A dog"}).replace(b"b.txt", b"a.txt")
    with pytest.raises(DocumentError, match="a file twice"):
        changed_archive(twice, lambda name, one: one.upper())


def test_names_in_an_archive_are_no_paths() -> None:
    archive = zipped({"../outside": "x", "/etc/passwd": "y"})
    changed = changed_archive(archive, lambda name, content: content.upper())
    with zipfile.ZipFile(io.BytesIO(changed)) as found:
        assert {name: found.read(name) for name in found.namelist()} == {"../outside": b"X", "/etc/passwd": b"Y"}


def test_references_in_yaml_are_not_multiplied() -> None:
    laughs = "a: &a [one text, two texts]\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert seen_in("yaml", laughs.encode()) == ["one text", "two texts"]


def test_nothing_in_yaml_is_made_an_object() -> None:
    document = "a: !!python/object/apply:os.system ['touch made']\nb: The cat\n"
    assert seen_in("yaml", document.encode()) == ["The cat"]


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        *[("text", part) for part in ("a b ", "> ", "ab\n", "- a\n", "\n", " ", "a" * 50 + " b\n", "|", "a    ", "\t")],
        *[("po", part) for part in ('msgid "a b"\nmsgstr ""\n', '"', "msgid ", 'msgid ""\n', '"a"\n', "\\")],
        *[("json", part) for part in ('"a b",', '"', "\\", "[", " ")],
        *[("vtt", part) for part in ("00:01.000 --> 00:02.000\n", "a b\n", "<", "<0", "- ", "\n\n")],
        *[("table", part) for part in ('"', "a,", 'a"', '"a"', "\n", '""')],
        *[("docx", part) for part in (FIELD_BEGINS, FIELD_ENDS)],
    ],
)
def test_a_hostile_document_takes_time_in_proportion(kind: str, part: str) -> None:
    start = {"vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\n", "json": '["a b", ', "text": "x"}.get(kind, "")
    end = {"json": '"a b"]', "text": "x"}.get(kind, "")

    def translate(size: int) -> None:
        text = start + part * (size // len(part)) + end
        document = docx_of(text) if kind == "docx" else text.encode()
        format_of_kind = table_format(["1"]) if kind == "table" else FORMATS[kind]
        with contextlib.suppress(DocumentError):
            format_of_kind.translated(document, list)

    translate(1000)
    short = seconds_of(lambda: translate(20_000))
    assert takes_less_than(8 * short + 0.5, lambda: translate(80_000))


NOTE = "<text:note><text:note-body><text:p>b</text:p></text:note-body></text:note>"


STYLED = f'<w:r><w:rPr><w:rFonts w:ascii="{"a" * 3000}"/></w:rPr><w:t>b</w:t></w:r>'


@pytest.mark.parametrize(("kind", "part"), [("docx", f"{RUN}{STYLED}"), ("odt", f"a{NOTE}" * 2)])
def test_a_long_paragraph_is_written_in_time_in_proportion(kind: str, part: str) -> None:
    def translate(n_parts: int) -> None:
        text = part * n_parts
        document = docx_of(text) if kind == "docx" else odt_of(text)
        FORMATS[kind].translated(document, upper)

    translate(500)
    short = seconds_of(lambda: translate(500))
    assert takes_less_than(16 * short + 0.1, lambda: translate(4000))


def test_changed_documents_are_read_or_refused_in_words() -> None:
    draw = random.Random(1)
    for kind, (document, _) in SAMPLES.items():
        for _ in range(60):
            changed = bytearray(document)
            for _ in range(draw.choice((1, 3, 20))):
                place, length = draw.randrange(len(changed)), draw.randrange(1, 9)
                inserted = draw.choice((b"", bytes([draw.randrange(256)]), bytes(changed[:length])))
                changed[place : place + length] = inserted
                changed = changed or bytearray(b"x")
            for translate in (list, upper):
                try:
                    FORMATS[kind].translated(bytes(changed), translate)
                except DocumentError as error:
                    assert len(str(error).splitlines()) == 1


def test_the_flag_has_each_format() -> None:
    (kinds,) = [field.type for field in fields(TranslateOptions) if field.name == "format"]
    assert set(get_args(kinds)) == {"auto", "lines", *FORMATS}


def test_each_ending_has_one_format() -> None:
    endings = [ending for one in FORMATS.values() for ending in one.endings]
    assert len(endings) == len(set(endings)) == len(FORMAT_OF_ENDING)


def test_places_of_elements_are_those_of_their_tags() -> None:
    content = "<?xml version='1.0'?><a x='1>2'><b/><c>é</c ><!-- > --></a>".encode()
    root = parse_xml(content)
    b, c = root.children
    assert content[b.start : b.end] == b"<b/>" and content[c.start : c.end] == "<c>é</c >".encode()
    assert (
        content[c.inner_start : c.inner_end].decode() == "é"
        and content[root.start : root.inner_start] == b"<a x='1>2'>"
    )
    assert translated_json('"a"', list) == '"a"'
