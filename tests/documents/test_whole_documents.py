"""Generated documents as a whole: whatever a model says, their structure stays, and what is no text stays as it is.

With 20 times the examples:

    python -m pytest tests/documents/test_whole_documents.py --hypothesis-profile thorough
"""

from collections import Counter
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from numpy.typing import NDArray

from tapis.config import Learned, ModelConfig
from tapis.documents.markdown import translated_markdown
from tapis.documents.pages import translated_html
from tapis.search import Search
from tapis.text.markup import Markup
from tapis.text.tokenizer import Tokenizer
from tapis.translation import Translation
from tapis.translator import Translator
from tapis.typed_text import translate_lines

# What a model may make up
MADE_UP = (
    *("x", "<b>", "</b>", "</p>", "<!--", "-->", "<script>", "]]>", "&", "&lt;", "<", ">", "a<b", '"', "'"),
    *("*", "**", "_", "`", "```", "~~~", "|", "#", "-", "+", "1.", ">", "===", "---", "[x]", "](y)", "[z]:", "!["),
    *("\\", "a\\", "\\*", "$x", "{y}", "&amp", "(", ")", "."),
)


Model = Callable[[list[str]], list[tuple[str, int]]]


class FakeTranslator(Translator):
    """A translator whose model is a function from the words of a sentence to those of its translation.

    Each word comes with the number of the one that it is a translation of.
    """

    def __init__(self, tokenizer: Tokenizer, model: Model) -> None:
        searcher = SimpleNamespace(can_force=True)
        super().__init__(searcher, tokenizer, ModelConfig(), Learned())
        self.model = model

    def n_best(  # type: ignore[override]
        self, sentences: Sequence[str], search: Search, batch_tokens: int = 0, bar: str = ""
    ) -> list[list[Translation]]:
        translations = [" ".join(word for word, _ in self.model(sentence.split())) for sentence in sentences]
        return [[Translation(translation, 0.0)] for translation in translations]

    def alignments(self, pairs: Sequence[tuple[str, str]]) -> list[NDArray[np.float64]]:
        found = []
        for source, target in pairs:
            sources, targets = source.split(), target.split()
            alignment = np.zeros((len(targets), len(sources)))
            for row, (_, column) in enumerate(self.model(sources)[: len(targets)]):  # repetitions were cut off
                alignment[row, column] = 1
            found.append(alignment)
        return found

    def lines(self, lines: Sequence[str], markup: Markup = "") -> list[str]:
        """Return the best translation of each line."""
        return [ranked[0].text for ranked in translate_lines(self, lines, markup=markup)]


def same(words: list[str]) -> list[tuple[str, int]]:
    return [(word, i) for i, word in enumerate(words)]


def reversed_capitals(words: list[str]) -> list[tuple[str, int]]:
    return [(word.upper(), i) for i, word in reversed(list(enumerate(words)))]


def one_word(words: list[str]) -> list[tuple[str, int]]:
    return [("χ", 0)]


def making_up(words: Sequence[str]) -> Model:
    """A model that always returns these words."""
    return lambda source: [(word, i % len(source)) for i, word in enumerate(words)]


def every_second(words: list[str]) -> list[tuple[str, int]]:
    return same(words)[::2]


models = st.one_of(
    st.sampled_from([same, reversed_capitals, every_second, one_word]),
    st.lists(st.sampled_from(MADE_UP), min_size=1, max_size=4).map(making_up),
)


# Pages


PHRASES = ("The cat", "sleeps.", "two dogs", "a, b", "He said:", "x", "(so)", "“Yes!”", "été", "It rains. It snows.")
ENTITIES = ("&amp;", "&lt;", "&nbsp;", "&#60;", "&gt;b&lt;", "&copy;", "AT&amp;T")
ATTRIBUTES = ('title="a &lt; b"', "class='x y'", 'href="x?a=1&b=2"', "data-x", 'alt="The  cat"', 'onclick="a > b"')
KEPT = ("code", "kbd", "samp", "var", "sub", "sup")
RAW = ("pre", "script", "style", "textarea", "svg")
INLINE = ("b", "i", "a", "span", "em", "mark", "q")
BLOCKS = ("p", "div", "h1", "li", "td", "section", "blockquote")


@st.composite
def pages(draw: st.DrawFn) -> str:
    """A well-formed page. Each tag has a name of its own, data-n."""
    number = 0

    def start(name: str, ending: str = "") -> str:
        nonlocal number
        number += 1
        attributes = draw(st.lists(st.sampled_from(ATTRIBUTES), max_size=2, unique_by=lambda one: one[:4]))
        return f"<{' '.join([name, f'data-n={number}', *attributes])}{ending}>"

    def inline(depth: int) -> str:
        parts = []
        for _ in range(draw(st.integers(0, 4))):
            kind = draw(st.sampled_from(["text", "text", "entity", "pair", "kept", "void", "number", "sign"]))
            if kind == "pair" and depth < 3:
                name = draw(st.sampled_from(INLINE))
                parts.append(f"{start(name)}{inline(depth + 1)}</{name}>")
            elif kind == "entity":
                parts.append(draw(st.sampled_from(ENTITIES)))
            elif kind == "kept":
                name = draw(st.sampled_from(KEPT))
                content = draw(st.sampled_from(["x  &lt;\ny &eacute;", "x<br>y", "x<!-- y --><p>z</p>", "x " * 1000]))
                parts.append(f"{start(name)}{content}</{name}>")
            elif kind == "void":
                parts.append(draw(st.sampled_from([start("img"), start("wbr"), start("img", " /")])))
            elif kind == "number":
                parts.append(
                    draw(st.sampled_from(["1984", "12,50 €", "{name}", "%s", "https://x.org/?a=1", "😀", "{{ x"]))
                )
            elif kind == "sign":
                parts.append(
                    draw(st.sampled_from(["**", "*", "_", "__", "`", "[", "](x)", "{", "}", "}}", "#", "[^1]"]))
                )
            else:
                parts.append(draw(st.sampled_from(PHRASES)))
        return "".join(part + draw(st.sampled_from(["", " ", "  ", "\n"])) for part in parts)

    def block(depth: int) -> str:
        parts = []
        for _ in range(draw(st.integers(1, 3))):
            kind = draw(st.sampled_from(["block", "block", "inline", "raw", "comment", "break", "no"]))
            if kind == "block" and depth < 3:
                name = draw(st.sampled_from(BLOCKS))
                parts.append(f"{start(name)}{block(depth + 1)}</{name}>")
            elif kind == "raw":
                name = draw(st.sampled_from(RAW))
                parts.append(f"{start(name)}The  cat\n is\there.</{name}>")
            elif kind == "comment":
                parts.append("<!-- The <b>  cat -->")
            elif kind == "break":
                parts.append(draw(st.sampled_from([start("br"), start("hr", "/")])))
            elif kind == "no":
                parts.append(f"{start('p translate=no')}The  <u>cat</u></p>")
            else:
                parts.append(inline(0))
        return "".join(part + draw(st.sampled_from(["", "\n"])) for part in parts)

    return f"<!DOCTYPE html>\n<html><body>{block(0)}</body></html>\n"


class Tree(HTMLParser):
    """What html.parser finds in a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=False)
        self.around = [""]  # open elements
        self.blocks = [""]  # those of them that are blocks
        self.n_kept = 0  # how many of them stay as they are
        self.tags: dict[str, tuple[str, str]] = {}  # for each name: its text, and the element around it
        self.kept: list[str] = []  # comments, and what is within elements that stay as they are
        self.references: Counter[tuple[str, str]] = Counter()  # the block of each, and its name
        self.texts: dict[str, str] = {}  # of each block, in capitals and without spaces
        self.feed(page)
        self.close()
        assert self.around == [""], page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        text = self.get_starttag_text() or ""
        name = dict(attrs).get("data-n") or f"{tag}, {text}"
        if self.n_kept:
            self.kept.append(text)
        else:
            assert name not in self.tags
            self.tags[name] = text, self.around[-1]
        if tag in ("br", "hr", "img", "wbr"):
            return
        self.around.append(f"{tag} {name}")
        is_kept = self.n_kept or tag in (*KEPT, *RAW) or "translate" in dict(attrs)
        self.n_kept += bool(is_kept)
        if tag in (*BLOCKS, "body"):
            self.blocks.append(name)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[dict(attrs)["data-n"] or ""] = self.get_starttag_text() or "", self.around[-1]

    def handle_endtag(self, tag: str) -> None:
        assert self.around.pop().split()[0] == tag
        if tag in (*BLOCKS, "body"):
            self.blocks.pop()
        if self.n_kept:
            self.kept.append(f"</{tag}>")
            self.n_kept -= 1

    def handle_comment(self, data: str) -> None:
        self.kept.append(data)

    def handle_data(self, data: str) -> None:
        if self.n_kept:
            self.kept.append(data)
        else:
            self.texts[self.blocks[-1]] = self.texts.get(self.blocks[-1], "") + "".join(data.split()).upper()

    def handle_entityref(self, name: str) -> None:
        if self.n_kept:
            self.kept.append(f"&{name};")
        else:
            self.references[self.blocks[-1], name] += 1
            self.handle_data(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.handle_entityref(f"#{name}")


@given(page=pages(), model=models)
def test_a_page_keeps_its_structure(tokenizer: Tokenizer, page: str, model: Model) -> None:
    translator = FakeTranslator(tokenizer, model)
    before, after = Tree(page), Tree(translated_html(page, lambda lines: translator.lines(lines, "html")))
    assert after.tags == before.tags
    assert Counter(after.kept) == Counter(before.kept)
    assert before.references <= after.references
    if model is same:
        assert after.texts == before.texts
    if model is reversed_capitals:
        assert {name: Counter(text) for name, text in after.texts.items()} == {
            name: Counter(text) for name, text in before.texts.items()
        }


# Markdown

ESCAPED = (
    *(r"\*so\*", r"\# no", r"1\. no", r"snake\_case", r"don\'t", r"\[x\]", r"\`x\`", r"\<b>", r"\- no", r"a \| b"),
    "\\\\",
)
PLAIN_SIGNS = ("2 * 3", "snake_case", "a < b", "AT&T", "100 %", "- so", "# so", "1. so", "+ so", "a | b", "> so")
FIXED = (
    *("`a  b`", "`` a ` [ref] ``", "<https://x.org/?a=1&b=2>", "<br>", "&amp;", "&nbsp;", "{name}", "%s", "😀", "1984"),
    *('[a link](https://x.org "The  cat")', "[the cat][ref]", "[ref]", "[ref][]", "[![The cat](x.png)](y)", "[^1]"),
    *("[x](a_(b) 'c')", "[x](<a b>)", "![a picture](x.png)", "[https://x.org](https://x.org)", "https://x.org/a_b_c"),
    *('<a href="x" title="a > b">here</a>', "<kbd>Ctrl</kbd>", "<!-- no -->"),
)
CODE_BLOCKS = (
    *("```python\nThe  cat # x\n```", "~~~\n# The cat\n\n- x\n~~~", "    The  cat", "<div>\nThe  cat\n</div>"),
)


@st.composite
def markdown(draw: st.DrawFn) -> str:
    """A Markdown document."""

    def inline(depth: int = 0) -> str:
        parts = []
        for _ in range(draw(st.integers(1, 4))):
            kind = draw(st.sampled_from(["text", "text", "fixed", "pair", "escaped", "sign"]))
            if kind == "pair" and depth < 2:
                sign = draw(st.sampled_from(["*", "**", "[]", "***"] if not depth else ["_", "__"]))
                inner = inline(depth + 1)
                parts.append(f"[{inner}](y)" if sign == "[]" else f"{sign}{inner}{sign}")
            else:
                among = {"fixed": FIXED, "escaped": ESCAPED, "sign": PLAIN_SIGNS}.get(kind, PHRASES)
                parts.append(draw(st.sampled_from(among)))
        return " ".join(parts)

    def block(depth: int) -> list[str]:
        """The lines of a block."""
        kinds = ["text", "text", "heading", "setext", "table", "code", "rule", "list", "quote"]
        kind = draw(st.sampled_from(kinds if depth < 2 else kinds[:-2]))
        if kind == "heading":
            lines = [f"{'#' * draw(st.integers(1, 3))} {inline()}"]
        elif kind == "setext":
            lines = [f"The {inline()}", "==="]
        elif kind == "table":
            cells = [inline().replace("a | b", "x") for _ in range(4)]
            lines = [f"| {cells[0]} | {cells[1]} |", "|---|:--|", f"| {cells[2]} | {cells[3]} |"]
        elif kind == "code":
            lines = draw(st.sampled_from(CODE_BLOCKS)).splitlines()
        elif kind == "rule":
            lines = ["---"]
        elif kind == "text":
            ending = draw(st.sampled_from(["", "\n", "  \n", "\\\n"]))
            lines = f"The {inline()}{ending} Cats {inline()}".split("\n")
        else:
            items = [("- ", "  "), ("1. ", "   "), ("- [ ] ", "  ")]
            first, others = draw(st.sampled_from(items)) if kind == "list" else ("> ", "> ")
            lines = [f"{others if i else first}{line}" for i, line in enumerate(blocks(depth + 1))]
        return lines

    def blocks(depth: int) -> list[str]:
        lines: list[str] = []
        for _ in range(draw(st.integers(1, 3))):
            lines += [*block(depth), ""]
        return lines[:-1]

    head = draw(st.sampled_from(["", "---\ntitle: The  cat\n---\n\n", "\ufeff"]))
    return head + "\n".join(blocks(0)) + '\n\n[ref]: https://x.org "The  cat"\n'


PARSER = MarkdownIt("commonmark").enable("table")


def structure(document: str) -> list[tuple[str, Counter[str], str]]:
    """The blocks of a document. Of each: what is in it, and its text in capitals and without spaces."""
    found = []
    for token in PARSER.parse(document.removeprefix("\ufeff")):
        inner: Counter[str] = Counter()
        text = link = ""
        for child in token.children or []:
            if child.type in ("text", "text_special", "image"):
                text += "".join(child.content.split()).upper()
            if child.type not in ("text", "text_special", "softbreak"):
                inner[f"{link} {child.type} {child.attrs} {child.content if child.type != 'image' else ''}"] += 1
            if child.type in ("link_open", "link_close"):
                link = f"in {child.attrs}:" if child.type == "link_open" else ""
        kept = token.content if token.type != "inline" else ""
        found.append((f"{token.type} {token.tag} {token.info} {token.attrs} {kept}", inner, text))
    return found


@given(document=markdown(), model=models)
def test_markdown_keeps_its_structure(tokenizer: Tokenizer, document: str, model: Model) -> None:
    translator = FakeTranslator(tokenizer, model)
    translated = translated_markdown(document, lambda lines: translator.lines(lines, "markdown"))
    before, after = structure(document), structure(translated)
    assert [block for block, _, _ in after] == [block for block, _, _ in before], translated
    for (_, inner, text), (_, inner_after, text_after) in zip(before, after, strict=True):
        # Emphasis that no word comes from would be text.
        emphasis = {what: n for what, n in inner.items() if "em_" in what or "strong_" in what}
        assert (inner - inner_after).keys() <= emphasis.keys(), translated
        if model is same:
            assert inner == inner_after and text == text_after, translated
        if model is reversed_capitals:
            assert inner_after <= inner and Counter(text_after) == Counter(text), translated


SEPARATORS = "\r\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029\t"


@given(
    texts=st.lists(st.text(st.sampled_from(f"{SEPARATORS} aB.1<b>/`*[](){{&;"), max_size=20)),
    markup=st.sampled_from(["", "html", "markdown"]),
    model=models,
)
def test_n_lines_in_are_n_lines_out(tokenizer: Tokenizer, texts: list[str], markup: Markup, model: Model) -> None:
    """No line ends where it did not, whatever Unicode calls a line."""
    translated = FakeTranslator(tokenizer, model).lines(texts, markup)
    assert len(translated) == len(texts)
    for line, translation in zip(texts, translated, strict=True):
        assert len(translation.splitlines()) <= max(1, len(line.splitlines())), line
