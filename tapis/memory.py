"""Translation memories: what was translated before is taken as it was, and what is like it is found.

A memory is a TMX file, as computer-aided translation tools export it. Texts are compared in NFC, with single spaces and
without invisible characters. Of several translations of a text, the last one counts.
"""

import html
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import cached_property
from heapq import nlargest
from pathlib import Path
from typing import NamedTuple, Self

from tapis.system.files import write_whole
from tapis.text.languages import repair
from tapis.text.lines import Pair, compressed
from tapis.text.markup import ESCAPES, NOT_OF_XML, Markup, has_markdown, plain
from tapis.text.tmx import read_tmx, read_tmx_file

LEAST_SIMILAR = 0.7  # of texts that are like each other
ALMOST_EQUAL = 0.99  # of texts that differ in signs or tags alone
MOST_COMPARED = 20  # texts of the memory that share the most words with a text, for their length
MOST_WORDS = 200  # of a text that is compared: the time grows with their square
MOST_FREQUENT = 1000  # texts of the memory with a word: one of more tells little
_WORD = re.compile(r"\w+")


class Match(NamedTuple):
    """A text of a memory that is like another one."""

    similarity: float
    """From 0 to 1, which is the same text"""
    source: str
    target: str


class Memory:
    """Texts with their translations."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        repaired = ((repair(one), other.strip()) for one, other in pairs)
        self.translations = {one: other for one, other in repaired if one and other}

    @classmethod
    def read(cls, file: Path, source: str, target: str) -> Self:
        """Read the units of a TMX file that have no placeholders.

        Raises DataError if it is none, or has no unit of both languages.
        """
        return cls(read_tmx(file, source, target, only_whole=True))

    def exact(self, text: str) -> str | None:
        """Return the translation of a text; None if the memory does not have it."""
        return self.translations.get(repair(text))

    def exact_in(self, line: str, markup: Markup) -> str | None:
        """Return the translation of a line of a document, as its markup; None of one with marks, or that it lacks."""
        if (markup == "html" and "<" in line) or has_markdown(line, markup):
            return None
        text = self.exact(plain(line, markup))
        return None if text is None else ESCAPES[markup](text)

    @cached_property
    def _texts(self) -> list[str]:
        return list(self.translations)

    @cached_property
    def _n_words(self) -> list[int]:
        return [text.count(" ") + 1 for text in self._texts]

    @cached_property
    def _with_word(self) -> dict[str, list[int]]:
        """The numbers of the texts that have a word."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for number, text in enumerate(self._texts):
            words = _WORD.findall(text.lower())
            for word in set(words if len(words) <= MOST_WORDS else []):
                found[word].append(number)
        return found

    def prepare(self) -> None:
        """Make the index that `near` needs, sooner than its first call."""
        _ = self._with_word, self._n_words

    def near(self, text: str) -> Match | None:
        """Return the text of the memory that is most like a text; None if none is LEAST_SIMILAR, or the text is long.

        The similarity is twice the words in common, in their order, by the words of both texts.
        """
        text = repair(text)
        words = _WORD.findall(text.lower())
        if len(words) > MOST_WORDS:
            return None
        shared: Counter[int] = Counter()
        for word in set(words):
            numbers = self._with_word.get(word, [])
            if len(numbers) <= MOST_FREQUENT:
                shared.update(numbers)

        def rank(number: int) -> tuple[float, int]:
            return shared[number] / (len(words) + self._n_words[number]), -number

        best: Match | None = None
        for number in nlargest(MOST_COMPARED, shared, key=rank):
            other = self._texts[number]
            similarity = SequenceMatcher(None, words, _WORD.findall(other.lower()), autojunk=False).ratio()
            if other != text:
                similarity = min(similarity, ALMOST_EQUAL)
            if similarity >= LEAST_SIMILAR and (best is None or similarity > best.similarity):
                best = Match(similarity, other, self.translations[other])
        return best


def _normal(text: str) -> str:
    return " ".join(text.split())


def write_memory(file: Path, pairs: Iterable[Pair], source: str, target: str) -> None:
    """Add texts and their translations to a memory, each pair once, or make the memory; compress it as its name says.

    All that the file has stays, byte for byte, and nothing is added to what it says already. Another translation of a
    text comes behind those that are there: the last one counts. Raises DataError if the file is no TMX of these
    languages, and OSError if it cannot be written.
    """
    memory = read_tmx_file(file, source, target) if file.exists() else None
    known = {repair(one): _normal(other) for one, other in memory.pairs} if memory else {}
    cleaned = [(_normal(NOT_OF_XML.sub("", one)), _normal(NOT_OF_XML.sub("", other))) for one, other in pairs]
    last = {repair(one): (one, other) for one, other in cleaned if repair(one) and other}
    added = [(one, other) for key, (one, other) in last.items() if known.get(key) != other]
    units = "".join(f"<tu>{_variant(source, one)}{_variant(target, other)}</tu>\n" for one, other in added)
    if memory and not units:
        return

    content = memory.with_units(units) if memory else _new_memory(units, source).encode()
    write_whole(file, lambda temporary: temporary.write_bytes(compressed(content, file)))


def _new_memory(units: str, source: str) -> str:
    header = (
        f'<header creationtool="tapis" creationtoolversion="1" segtype="block" o-tmf="tapis" adminlang="en" '
        f'srclang="{html.escape(source)}" datatype="plaintext"/>'
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">{header}<body>\n{units}</body></tmx>\n'


def _variant(language: str, text: str) -> str:
    return f'<tuv xml:lang="{html.escape(language)}"><seg>{html.escape(text, quote=False)}</seg></tuv>'
