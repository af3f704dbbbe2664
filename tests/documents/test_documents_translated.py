"""Pages and subtitles: their text is translated, everything else stays byte for byte."""

import random
import re
from collections.abc import Callable, Sequence
from itertools import groupby, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from timing import seconds_of, takes_less_than

from tapis.documents.common import DocumentError, Translate
from tapis.documents.formats import FORMATS
from tapis.documents.markdown import translated_markdown
from tapis.documents.pages import translated_html
from tapis.documents.subtitles import srt_warnings, translated_srt
from tapis.text.alignment import Alignment
from tapis.text.marks import take_out
from tapis.text.placement import put_back

PAGE = """<!DOCTYPE html>
<html lang="en"><head><title>A page</title><style>p { color: red }</style><script>if (a<b) alert("No")</script></head>
<body class="x">
 <h1>The   cat</h1>
 <p>The <b>cat</b> is
   sleeping &amp; <a href="x?a=1&b=2">the dog</a> eats <code>x &lt; y</code>.</p><!-- No -->
 <ul><li>caf&eacute;</li><li><img src=a alt="No"></li><li translate="no">No <i>no</i></li><li>1 &lt; 2</li></ul>
 <pre>No</pre> tail <br> end
</body></html>
"""
CUES = (
    *("1", "00:00:01,000 --> 00:00:02,000", "The cat", "sleeps.", ""),
    *("2", "00:00:03,000 --> 00:00:04,000", "<i>No</i>", ""),
)
SUBTITLES = "\r\n".join(CUES)
FRAGMENTS = (
    *("<p>", "</p>", "<b>", "</b>", "text ", "<", "&", "&amp;", "<!--", "-->", "<script>", "</script>", "<a href='"),
    *("'>", "\n", "<?x", "<![CDATA[", "]]>", "<!x", "é", "\r\n", "<br/>", "<code>", "</code>", "<pre>", "</pre>"),
)


def test_only_the_text_of_a_page_is_translated() -> None:
    seen: list[str] = []

    def translate(lines: Sequence[str]) -> list[str]:
        seen.extend(lines)
        return [f"«{i}»" for i in range(len(lines))]

    translated = translated_html(PAGE, translate)
    assert seen == [
        "A page",
        "The cat",
        'The <b>cat</b> is sleeping &amp; <a href="x?a=1&b=2">the dog</a> eats <code>x &lt; y</code>.',
        "café",
        "tail",
        "end",
    ]
    expected = PAGE
    for i, text in enumerate(("A page", "The   cat", "caf&eacute;", "tail", "end")):
        expected = expected.replace(text, f"«{i if i < 2 else i + 1}»", 1)
    start, end = expected.index("The <b>"), expected.index("</p>")
    assert translated == expected[:start] + "«2»" + expected[end:]


def seen_in(document: str, translated: Callable[[str, Translate], str]) -> tuple[list[str], str]:
    """The lines of a document that would be translated, and the document with each in guillemets."""
    seen: list[str] = []

    def translate(lines: Sequence[str]) -> list[str]:
        seen.extend(lines)
        return [f"«{line}»" for line in lines]

    return seen, translated(document, translate)


@pytest.mark.parametrize(
    ("page", "lines"),
    [
        # text that is written as entities
        ("<p>&#1055;&#1088;&#1080;&#x432;&#1110;&#1090;</p>", ["Привіт"]),
        (f"<p>a &#{'1' * 5000};</p>", [f"a &#{'1' * 5000};"]),
        # elements of XHTML without content
        ('<head><title/></head><p>One.</p><script>var a="two words"</script><p>Three.</p>', ["One.", "Three."]),
        ('<script src="x.js"/><p>One.</p><script>no</script>', ["One."]),
        # a slash at the end of a value, which ends no element
        ("<script src=https://x.org/js/>var dog = 'a dog';</script><p>One.", ["One."]),
        ("<div translate=no data-x=/>no</div><script async/><p class='x'/>One.</p>", ["One."]),
        # tags that cannot be part of a line
        ('<p>See <a href="x" title="a < b">this</a>.</p>', ["See", "this</a>."]),
        ("<p>See <a title=it's>this</a>.</p>", ["See", "this</a>."]),
        # comments that programs write within a sentence
        ("<p>You have <!-- -->3<!-- --> cats<!---->.</p><!-- -->", ["You have <!-- -->3<!-- --> cats<!---->."]),
        ("<p>One.<!-- a comment -->Two.</p>", ["One.", "Two."]),
        # lists within what is kept
        ('<ul><li translate="no">no <ul><li>no</li></ul> no</li><li>One.</li></ul>', ["One."]),
        ("<table><tr><td class=notranslate><table><tr><td>no</table><td>One.</table>", ["One."]),
    ],
)
def test_lines_of_unusual_pages(page: str, lines: list[str]) -> None:
    seen, translated = seen_in(page, translated_html)
    assert seen == lines
    if "&#" not in page:
        assert translated.replace("«", "").replace("»", "") == page


@pytest.mark.parametrize(
    ("document", "lines", "expected"),
    [
        ("\ufeff---\ntitle: No\n---\n\n# One\n", ["One"], "\ufeff---\ntitle: No\n---\n\n# «One»\n"),
        ("---\n# No\n\nthe title: No\n---\nOne\n", ["One"], "---\n# No\n\nthe title: No\n---\n«One»\n"),
        ("---\n\nOne: two.\n\n---\n", ["One: two."], "---\n\n«One: two.»\n\n---\n"),
        ("---\rtitle:\r  - No\r---\rOne\r", ["One"], "---\rtitle:\r  - No\r---\r«One»\r"),
        ("---\n$schema: No\n---\nOne\n", ["One"], "---\n$schema: No\n---\n«One»\n"),
        ("---\n  # No\n  title: No\n---\nOne\n", ["One"], "---\n  # No\n  title: No\n---\n«One»\n"),
        (
            "---\nOne.\n\n# Two\n\n---\n\nThree.\n",
            ["One.", "Two", "Three."],
            "---\n«One.»\n\n# «Two»\n\n---\n\n«Three.»\n",
        ),
        ("---\n---\n\nOne\n\n---\n", ["One"], "---\n---\n\n«One»\n\n---\n"),
        ("\ufeff# One\n", ["One"], "\ufeff# «One»\n"),
        ("One \0 two\n\n\0\n", ["One \ufffd two"], "«One \ufffd two»\n\n\0\n"),
        (
            "See [the docs]: or [The Docs][], not [this].\n\n[the docs]: http://x\n",
            ["See [the docs][the docs]: or [The Docs][The Docs], not [this]."],
            "«See [the docs][the docs]: or [The Docs][The Docs], not [this].»\n\n[the docs]: http://x\n",
        ),
        (
            'A note[^1] on `a[1]`, <b title="[1]">b</b>, see [1].\n\n[^1]: http://x\n\n[1]: http://y\n',
            ['A note[^1] on `a[1]`, <b title="[1]">b</b>, see [1][1].'],
            '«A note[^1] on `a[1]`, <b title="[1]">b</b>, see [1][1].»\n\n[^1]: http://x\n\n[1]: http://y\n',
        ),
        (
            "Cat\n: A small animal\n  of the house\n: that sleeps\n\nDog\n\n:   Another: one\n",
            ["Cat", "A small animal of the house", "that sleeps", "Dog", "Another: one"],
            "«Cat»\n: «A small animal of the house»\n: «that sleeps»\n\n«Dog»\n\n:   «Another: one»\n",
        ),
        (
            "A cat.[^1]\n\n[^1]: It sleeps\n    all day.\n[^long-one]: It eats.\n[^3]:\n    It plays.\n",
            ["A cat.[^1]", "It sleeps all day.", "It eats.", "It plays."],
            "«A cat.[^1]»\n\n[^1]: «It sleeps all day.»\n[^long-one]: «It eats.»\n[^3]:\n    «It plays.»\n",
        ),
        (
            '!!! note "No"\n    A cat\n    sleeps.\n\n??? tip\n    A dog.\n\n=== "No"\n\n{: .no }\nIt\nis so.\n{:.x}\n',
            ["A cat sleeps.", "A dog.", "It is so."],
            '!!! note "No"\n    «A cat sleeps.»\n\n??? tip\n    «A dog.»\n\n=== "No"\n\n{: .no }\n«It is so.»\n{:.x}\n',
        ),
        (
            "!!! So it is.\nIt sleeps ??? so.\n\n??? so it is\n\n=== so\n",
            ["!!! So it is. It sleeps ??? so.", "??? so it is", "=== so"],
            "«!!! So it is. It sleeps ??? so.»\n\n«??? so it is»\n\n«=== so»\n",
        ),
    ],
)
def test_lines_of_unusual_markdown(document: str, lines: list[str], expected: str) -> None:
    assert seen_in(document, translated_markdown) == (lines, expected)


@pytest.mark.parametrize(
    "word",
    [
        "<ruby>東京<rp>(</rp><rt>とうきょう</rt><rp>)</rp></ruby>",
        "<ruby><rb>東</rb><rt>とう</rt>\n<rb>京<RT lang=ja>きょう</ruby>",
        "<ruby>東<rt>とう<rb>京<rt>きょう</ruby>",
        "<ruby>東京<rt><!-- --><span>とう</span>きょう</rt></ruby>",
    ],
)
def test_a_sentence_goes_on_through_words_with_readings_and_loses_these(word: str) -> None:
    (line,), translated = seen_in(f"<p>私は{word}へ行く。</p>", translated_html)
    assert re.sub("<[^>]*>| ", "", line) == "私は東京へ行く。"
    assert translated == f"<p>«{line}»</p>"


def test_any_page_comes_back_whole() -> None:
    """If nothing is changed in translation, nothing but the spaces within a text changes."""
    choose = random.Random(1)
    for _ in range(5000):
        page = "".join(choose.choice(FRAGMENTS) for _ in range(choose.randrange(15)))
        assert "".join(translated_html(page, list).split()) == "".join(page.split()), page


def test_subtitles_keep_numbers_times_and_line_endings() -> None:
    expected = SUBTITLES.replace("The cat\r\nsleeps.", "THE CAT SLEEPS.").replace("<i>No</i>", "<I>NO</I>")
    assert translated_srt(SUBTITLES, lambda lines: [line.upper() for line in lines]) == expected
    assert translated_srt("", list) == "" and translated_srt("1\n0:00:01.0 --> 0:00:02.0\n", list).count("\n") == 2


def test_what_has_no_times_is_no_subtitles() -> None:
    with pytest.raises(DocumentError, match="no line has times"):
        translated_srt("The cat\n", list)


def test_a_page_without_optional_end_tags_is_translated() -> None:
    for page, expected in (
        ("<p translate=no>No<p>cat</p><p>dog</p>", ["cat", "dog"]),
        ("<ul><li class=notranslate>No<li>cat</ul><p>dog</p>", ["cat", "dog"]),
        ("<ul><li class=notranslate>No <b>no</b></ul><p>dog</p>", ["dog"]),
        ("<p>&quot;A&quot; soft&shy;ware</p>", ['"A" software']),
        ("<p>A  <a title='a  &quot;\nb'>cat</a></p>", ["A <a title='a  &quot;\nb'>cat</a>"]),
    ):
        seen: list[str] = []
        translated_html(page, lambda lines, seen=seen: seen.extend(lines) or list(lines))  # type: ignore[misc]
        assert seen == expected, page


def test_a_cue_ends_where_the_next_begins() -> None:
    cues = "1\n00:00:01.000 --> 00:00:02.000\ncat\n2\n00:00:03,000 --> 00:00:04,000\ndog\n"
    assert translated_srt(cues, lambda lines: [line.upper() for line in lines]) == cues.replace("cat", "CAT").replace(
        "dog", "DOG"
    )


TIMES = (
    *("00:00:01,000 --> 00:00:02,000", "00:00:0,500 --> 00:00:2,00", "00:00:06 --> 00:00:07", "0:00:01.5-->0:00:02.25"),
    *("00:06,500 --> 00:07,500", " 00:00:01,000  -->  00:00:02,000 ", "00:00:01:000 --> 00:00:02:000"),
    *("00: 00: 01, 000 --> 00: 00: 02, 000", "-00:00:01,000 --> 00:00:02,000", "00:00:01,000 -> 00:00:02,000"),
    *("00:00:01,000 --> 00:00:02,000 X1:100 X2:200 Y1:1 Y2:2", "00:01.000 --> 00:02.000 align:start line:0%"),
)
texts_of_cues = st.lists(st.sampled_from(["The cat is", "sleeping.", "1914", "", " ", "- No!", "a: 10:30"]), max_size=5)


@given(
    cues=st.lists(st.tuples(st.sampled_from(TIMES), texts_of_cues, st.booleans()), min_size=1, max_size=4),
    mark=st.sampled_from(["", "\ufeff"]),
    newline=st.sampled_from(["\n", "\r\n", "\r", "\r\r\n"]),
    is_ended=st.booleans(),
)
def test_every_text_of_subtitles_is_translated_and_all_else_stays(
    cues: list[tuple[str, list[str], bool]], mark: str, newline: str, is_ended: bool
) -> None:
    lines: list[str] = []
    expected: list[str] = []  # each text as one line in parentheses
    texts: list[str] = []
    for number, (times, text, has_blank_line) in enumerate(cues, 1):
        lines += [str(number), times, *text, *[""] * has_blank_line]
        expected += [str(number), times]
        for is_blank, group in groupby([*text, *[""] * has_blank_line], lambda line: not line.strip()):
            block = list(group)
            if is_blank:
                expected += block
                continue
            starts = [i for i, line in enumerate(block) if not i or line.startswith("-")]
            speeches = [" ".join(block[start:end]) for start, end in pairwise([*starts, len(block)])]
            texts += speeches
            expected += [f"({speech})" for speech in speeches]

    seen: list[str] = []

    def translate(batch: Sequence[str]) -> list[str]:
        seen.extend(batch)
        return [f"({text})" for text in batch]

    end = newline if is_ended else ""
    document = mark + newline.join(lines) + end
    assert translated_srt(document, translate) == mark + newline.join(expected) + end
    assert seen == texts
    assert not list(srt_warnings(document))


def test_lines_of_subtitles_that_are_not_understood_are_warned_of() -> None:
    document = (
        "WEBVTT\n\n1\n00:00:01,000 --> 00:00:02,000\ncat\n\n2\n00:00:xx,000 --> 00:00:04,000\ndog\n\n"
        "3\n00:00:05,000 --> 00:00:06,000 cow\nx --> y\n"
    )
    expected = document.replace("cat", "CAT").replace("dog", "DOG").replace("x --> y", "X --> Y")
    assert translated_srt(document, lambda lines: [line.upper() for line in lines]) == expected
    assert list(srt_warnings(document)) == [
        "line 1: text before the first times is not translated",
        "line 8: these times are not understood, and stay as they are",
        "line 12: what follows the times is not translated",
        "line 13: an arrow without times is translated as text",
    ]


MARKDOWN = r"""---
title: No
---

# The cat #

A first
line of **text** with a [link](http://a.b "No").SPACES
After a hard break\
and another.

> > Quoted text
lazily.

1. 1
2. two
   - [x] done

Setext
======

| a | ab | a |
|---|:--:|--:|
| a \| b | ab | |

    No

```python
print("No")
```

<div>
No
</div>

[ref]: http://example.org "No"
""".replace("SPACES", "  ")


def test_only_the_text_of_markdown_is_translated() -> None:
    seen: list[str] = []

    def translate(lines: Sequence[str]) -> list[str]:
        seen.extend(lines)
        return [f"«{i}»" for i in range(len(lines))]

    for ending in ("\n", "\r\n"):
        seen.clear()
        translated = translated_markdown(MARKDOWN.replace("\n", ending), translate)
        assert seen == [
            "The cat",
            'A first line of **text** with a [link](http://a.b "No").',
            "After a hard break",
            "and another.",
            "Quoted text lazily.",
            *("two", "done", "Setext", "a", "ab", "a", r"a \| b", "ab"),
        ]
        expected = MARKDOWN.replace("A first\nline", "A first line").replace("text\nlazily", "text lazily")
        end = 0
        for i, text in enumerate(seen):
            start = expected.index(text, end)
            expected = expected[:start] + f"«{i}»" + expected[start + len(text) :]
            end = start
        assert translated == expected.replace("\n", ending)
    mixed = "# One\r\n\r\ntwo\nthree\r\n"
    assert translated_markdown(mixed, translate) == "# «0»\r\n\r\n«1»\r\n"


def test_any_markdown_comes_back_whole() -> None:
    """If nothing is changed in translation, nothing but the signs before continued lines change."""
    choose = random.Random(1)
    signs = [
        "# ",
        "- ",
        "> ",
        "1. ",
        "|",
        "\n",
        "\n\n",
        "    ",
        "```",
        "*",
        "text ",
        "a",
        "[x](y)",
        "\\",
        "  \n",
        "---",
    ]
    for _ in range(1000):
        document = "".join(choose.choice(signs) for _ in range(choose.randrange(15)))
        translated = translated_markdown(document, list)
        assert re.sub(r"[\s>]", "", translated) == re.sub(r"[\s>]", "", document), document


@pytest.mark.parametrize(
    "fragment", ["<", "<a", "</", "<!", "<!--", "<a '", '<a ="', "<a b=", "<![CDATA[", "<script>", "&"]
)
def test_a_hostile_page_takes_time_in_proportion(fragment: str) -> None:
    """html.parser, which was used before, takes minutes for some of these."""
    page = fragment * (100_000 // len(fragment))
    assert takes_less_than(10, lambda: translated_html(page, list))
    assert "".join(translated_html(page, list).split()) == "".join(page.split())


def with_marks_put_back(lines: Sequence[str]) -> list[str]:
    """Translates word by word, in sentences of at most twenty words."""
    takens = [take_out(line) for line in lines]
    sizes = [[min(20, len(taken.words) - i) for i in range(0, len(taken.words), 20)] for taken in takens]
    return [
        put_back(taken.text, taken, Alignment([np.eye(size) for size in sizes_of_line]))
        for taken, sizes_of_line in zip(takens, sizes, strict=True)
    ]


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("html", ["<p translate=no><ul>", "<p>"]),
        ("html", ["", "<svg>", "</x>"]),
        ("html", ["<pre>", "<b>", "</x>"]),
        ("html", ["<li translate=no>", "<ul>", "<li>", "</ul>"]),
        ("html", ["", '="<a']),
        ("html", ["", "<a='"]),
        ("html", ["", "<p>x"]),
        ("markdown", ["a", " ", "b\nc"]),
        ("markdown", ["", "[[a](b)"]),
        ("markdown", ["", "[a]: b\n"]),
        ("markdown", ["", "a\n"]),
        ("markdown", ["", "![](", "*a "]),
        ("markdown", ["", "*a "]),
        ("markdown", ["", "[a](b) "]),
        ("markdown", ["", "[a]: /u\n[b\n"]),
        ("markdown", ["", "](a){.b c "]),
        ("markdown", ["x\n", "[^1]: a\n"]),
        ("markdown", ["---\r\n#", "\r\n"]),
        ("html", ["", "<b>a ", "</b>"]),
        ("html", ["", "<b><i>a</b></i> "]),
        ("srt", ["00:00:01,000 --> 00:00:02,000\n", "1\n"]),
        ("srt", ["00:00:01,000 --> 00:00:02,000\n", "\r"]),
        ("srt", ["00:00:01,000 --> 00:00:02,000\n", "1: "]),
        ("srt", ["00:00:01,000 --> 00:00:02,000\n", "1 "]),
        ("srt", ["00:00:01,000 --> 00:00:02,000\n", "00:00:01,000 -->"]),
    ],
)
def test_a_hostile_document_takes_time_in_proportion(kind: str, parts: Sequence[str]) -> None:
    """The first part once, and each of the others many times."""

    def translate(size: int) -> None:
        document = parts[0] + "".join(part * (size // len(parts[1:]) // len(part)) for part in parts[1:])
        FORMATS[kind].translated(document.encode(), with_marks_put_back)

    translate(1000)
    short = seconds_of(lambda: translate(20_000))
    assert takes_less_than(8 * short + 0.3, lambda: translate(80_000))


def table(width: int, rows: str) -> str:
    return "|a" * width + "\n" + "|-" * width + "\n" + rows + "\n"


@pytest.mark.parametrize(
    "document",
    [
        table(181, "b\n" * 362),
        table(181, "b\r" * 362) * 5,
        table(20, "b\n" * 100) * 200,
        "# A\n" + re.sub("^(?=.)", "> > ", table(181, "b\n" * 362), flags=re.MULTILINE),
    ],
)
def test_tables_of_far_more_cells_than_characters_are_refused_at_once(document: str) -> None:
    """The parser makes the cells that rows leave out."""

    def refuse() -> None:
        with pytest.raises(DocumentError, match="far more cells"):
            translated_markdown(document, list)

    assert takes_less_than(0.1, refuse)


def test_tables_of_short_or_whole_rows_are_translated() -> None:
    """Also where their cells are empty, and in a document with other text."""
    rows = ["| The cat | is black |\n" * 300, "|||||||||\n" * 300, "b\n" * 100]
    documents = [*(table(8, some) for some in rows), table(30, "") + "The cat sleeps.\n\n" * 99]
    assert [translated_markdown(document, list) for document in documents] == documents
    assert seen_in(table(3, "| The cat\n"), translated_markdown)[1].endswith("| «The cat»\n\n")


def test_links_and_emphasis_of_markdown_within_each_other_stay_as_they_are() -> None:
    """Only the blocks of a document are parsed: what is in a line is up to tapis/text/marks.py."""
    document = '# A [[b](c)] *d* `e`\n\n| [f](g "h") |\n|---|\n| ~~i~~ \\| j |\n\n[k]\n\n[k]: l\n'
    seen: list[str] = []
    translated_markdown(document, lambda lines: seen.extend(lines) or list(lines))  # type: ignore[func-returns-value]
    assert seen == ["A [[b](c)] *d* `e`", '[f](g "h")', "~~i~~ \\| j", "[k][k]"]


def test_a_tag_may_have_brackets_and_quotation_marks_in_its_attributes() -> None:
    page = """<p onclick="if (a<b) c>d" title=it's>No</p><p class='x notranslate'>No</p><p TRANSLATE=NO>No</p>"""
    seen: list[str] = []
    translated_html(page, lambda lines: seen.extend(lines) or list(lines))  # type: ignore[func-returns-value]
    assert seen == ["No"]


def test_cues_that_only_their_times_separate_stay_apart_in_linear_time() -> None:
    times = "00:00:01,000 --> 00:00:02,000\n"
    texts: list[str] = []

    def translate(lines: Sequence[str]) -> list[str]:
        texts.extend(lines)
        return [line.upper() for line in lines]

    assert translated_srt(f"{times}a b\n{times}c\n{times}d\n", translate) == f"{times}A B\n{times}C\n{times}D\n"
    assert texts == ["a b", "c", "d"]
    assert translated_srt(times * 20_000, translate) == times * 20_000
    assert takes_less_than(10, lambda: translated_srt(times * 20_000, translate))
