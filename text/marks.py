"""What a translation carries over as it is: markup, links, addresses, placeholders, codes and pictographs.

`take_out` removes these marks from a line and remembers where they were. The words that are left are translated.
`put_back` places every mark in the translation, each exactly once, by an alignment of words: pairs of tags around the
words that come from those they were around, everything else after the word that comes from the word before it.

No mark is lost, doubled or changed, whatever the model does: it never sees any.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# A number that must not change: of two digits or more, with its separators. A single digit may become a word.
NUMBER = r"\d(?:[.,:/\u00a0\u202f-]?\d)++"

# Pictographs, with their modifiers and joiners, and flags.
_PICTOGRAPH = (
    r"(?:[\u231a\u231b\u23e9-\u23fa\u25b6\u25c0\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]"
    r"[\ufe0f\u200d\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*+)++"
)
_EDGE = r"(?<![\w@#$%&./:-])"  # where something of its own can begin

# Each pattern takes time in proportion to the text: no part of it is tried from every place in a long run.
_THINGS = (
    r"`[^`\n]++`",  # code in Markdown
    # A link does not end in punctuation, and has brackets in pairs.
    _EDGE
    + r"(?:https?://|ftp://|www\.)(?:[^\s<>\"«»()]|\([^\s<>\"«»()]*\))*"
    + r"(?:[^\s<>\"«».,;:!?'()\[\]*_]|\([^\s<>\"«»()]*\))",
    r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++",
    r"\{\\[^{}]*+\}|%\(\w++\)[a-z]|%\d*+\$?[sdif]\b|\$?\{\{?[\w.:]*+\}?\}|"
    + _EDGE
    + r"\$[A-Za-z_]\w*+",  # placeholders
    r"&(?:\w++|#\w++);",  # entities of HTML
    r"\[\^[\w-]++\]",  # footnotes of Markdown
    _EDGE + r"[#@]\w++",
    _EDGE + r"v\d++(?:\.\d++)*+(?!\w)",  # versions
    _EDGE + r"(?=[\w-]{0,40}\d)(?=[\w-]{0,40}[A-Z])[A-Za-z0-9]++(?:[-_][A-Za-z0-9]++)*+(?!\w)",  # codes
    _PICTOGRAPH,
)
# Where a link of Markdown leads: (address), (address "title") or [reference]
_TARGET = r"""(?:\([^()\s]++(?:[ ]"[^"\n]*+")?\)|\[[^\[\]\n]++\])"""
ATTRIBUTES = r"""(?:[^<>"']|"[^"<]*+"|'[^'<]*+')*+"""
_OPENING_TAG = rf"<[A-Za-z]{ATTRIBUTES}(?<!/)>"
_CLOSING_TAG = r"</[A-Za-z][^<>]*+>"
# Elements that are kept whole
_KEPT = (
    rf"<(?P<name>(?i:code|kbd|samp|var|sub|sup))\b{ATTRIBUTES}>"
    r"(?:[^<]|<(?!/?(?i:(?P=name))\b)){0,1000}+</(?i:(?P=name))>"
)
_OTHER_TAG = rf"<[A-Za-z]{ATTRIBUTES}(?<=/)>|<!--[^<>]*+>"
_EMPHASIS = r"(?:\*\*|~~|__|\*|_)"  # not within a word: 2*3, snake_case
_MARK = re.compile(
    f"(?P<kept>{_KEPT})|(?P<open>{_OPENING_TAG}|!?\\[(?=[^\\[\\]\\n]++\\]{_TARGET}))"
    f"|(?P<close>{_CLOSING_TAG}|\\]{_TARGET})"
    f"|(?P<emphasis>(?<![\\w*_~]){_EMPHASIS}(?!\\s)|(?<=\\S){_EMPHASIS}(?![\\w*_~]))"
    f"|(?P<thing>{_OTHER_TAG}|{'|'.join(_THINGS)})"
)
_MARK_OR_NUMBER = re.compile(f"{_MARK.pattern}|(?P<number>(?<!\\w)[-+]?[$€£¥]?{NUMBER}[\\w%°]*+)")
_VOID = re.compile(r"<(?:area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr)\b", re.IGNORECASE)
_PUNCTUATION = ".,;:!?…)]»”"  # that belongs to the word before it
_LEADING_PUNCTUATION = re.compile(f"[{re.escape(_PUNCTUATION)}]++")
_BRACKETS = {"(": ")", "[": "]", "«": "»", "“": "”", '"': '"'}
# The order of marks at one place between words: spans end before others begin.
_WITHIN_ENDING, _CLOSING, _BETWEEN, _OPENING, _WITHIN_BEGINNING = range(5)
_DASHES = ("-", "–", "—", "|")


@dataclass
class Mark:
    """Something that is carried over."""

    text: str
    word: int
    """How many words are before it"""
    start: int
    end: int
    """Where it begins and ends in the line"""
    is_glued: bool
    """Whether no space is before it"""
    is_followed: bool = False
    """Whether a word follows without a space"""
    is_tag: bool = False
    is_number: bool = False
    is_emphasis: bool = False
    """Of Markdown, where the same sign opens and closes"""
    is_before_punctuation: bool = False
    """Whether punctuation follows that is not its own; this goes to the word before it"""
    partner: int = -1
    """Of a pair of tags, the number of the other one among the marks; −1 for anything else"""


@dataclass(frozen=True)
class Taken:
    """A line after its marks were taken out."""

    words: list[str]
    marks: list[Mark]

    @property
    def text(self) -> str:
        return " ".join(self.words)


def take_out(line: str, with_numbers: bool = False) -> Taken:
    """Takes the marks out of a line, and numbers too if wanted."""
    reader = _read(line, with_numbers, frozenset())
    # An asterisk that is no emphasis belongs to its word.
    alone = {mark.start for mark in reader.marks if mark.is_emphasis and mark.partner < 0}
    if alone:
        reader = _read(line, with_numbers, alone)
    return Taken(reader.words, reader.marks)


def _read(line: str, with_numbers: bool, skipped: Set[int]) -> "_Reader":
    """Reads a line. skipped are the places of marks that are none."""
    reader = _Reader(line)
    for match in (_MARK_OR_NUMBER if with_numbers else _MARK).finditer(line):
        start, end, kind = match.start(), match.end(), match.lastgroup
        if start in skipped or start < reader.end:
            continue
        reader.add_text(start)
        mark = Mark(
            match.group(),
            len(reader.words),
            start,
            end,
            is_glued=reader.is_glued(start),
            is_tag=kind not in ("kept", "thing", "number"),
            is_number=kind == "number",
            is_emphasis=kind == "emphasis",
        )
        reader.marks.append(mark)
        reader.end = end
        if not mark.is_tag:
            reader.add_thing(mark)
        else:
            reader.add_tag(mark, kind or "")
    reader.add_text(len(line))
    return reader


class _Reader:
    """Reads a line from left to right: its words, and its marks."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.end = 0  # of what was read
        self.words: list[str] = []
        self.marks: list[Mark] = []
        self.is_open_word = False  # whether text that follows without a space belongs to the last word
        self.unclosed: list[tuple[str, int]] = []  # tags that wait for their partners, by name and number
        self.n_unclosed: Counter[str] = Counter()

    def is_glued(self, place: int) -> bool:
        """Whether no space is before a place."""
        return place > 0 and not self.line[place - 1].isspace()

    def add_text(self, end: int) -> None:
        """Reads words up to a place. Punctuation after something that was taken out goes to the word before that."""
        text, mark = self.line[self.end : end], self.marks[-1] if self.marks else None
        if mark and mark.end == self.end and not mark.is_tag and (punctuation := _LEADING_PUNCTUATION.match(text)):
            text = text[punctuation.end() :]
            if self.words and mark.word == len(self.words) and not _ends_in_punctuation(self.words[-1]):
                self.words[-1] += punctuation.group()
                mark.is_before_punctuation = True
            else:
                mark.text += punctuation.group()
        parts = text.split()
        if parts and self.is_open_word and not text[0].isspace():
            self.words[-1] += parts.pop(0)
        self.words.extend(parts)
        if text:
            self.is_open_word = bool(self.words) and not text[-1].isspace()
            if mark and not mark.is_tag and mark.end == self.end and not mark.is_before_punctuation:
                mark.is_followed = bool(parts) and not text[0].isspace()

    def add_thing(self, mark: Mark) -> None:
        """A dash before it, or brackets around it, belong to it."""
        words, following = self.words, self.line[self.end : self.end + 1]
        is_in_link = self.line.startswith("](", self.end)
        if words and not mark.is_glued and words[-1] in _DASHES:
            mark.text = f"{words.pop()} {mark.text}"
            mark.word -= 1
        elif words and mark.is_glued and following and following == _BRACKETS.get(words[-1]) and not is_in_link:
            mark.text = f"{words.pop()}{mark.text}{following}"
            mark.word, mark.is_glued = mark.word - 1, False
            self.end += 1
            mark.end = self.end
        self.is_open_word = False

    def add_tag(self, mark: Mark, kind: str) -> None:
        """An opening tag, a closing one, or emphasis, which opens and closes alike."""
        name, number = _name_of(mark.text), len(self.marks) - 1
        if kind == "close" or (kind == "emphasis" and self.n_unclosed[name]):
            mark.is_before_punctuation = bool(self.words) and not _ends_in_punctuation(self.words[-1])
            while self.n_unclosed[name] and mark.partner < 0:
                other_name, other = self.unclosed.pop()  # what does not match would cross this pair, and stays alone
                self.n_unclosed[other_name] -= 1
                if other_name == name:
                    mark.partner, self.marks[other].partner = other, number
        elif not _VOID.match(mark.text):
            mark.word -= self.is_open_word and self.line[self.end : self.end + 1].isalnum()  # within a word
            before = self.marks[number - 1] if number else None
            if before and before.is_tag and before.end == mark.start and before.partner >= 0:
                self.is_open_word = False  # </a><a> is between words, although there is no space
                mark.word = len(self.words)
            self.unclosed.append((name, number))
            self.n_unclosed[name] += 1


def _ends_in_punctuation(word: str) -> bool:
    return word[-1] in _PUNCTUATION


def _name_of(tag: str) -> str:
    """What an opening and a closing tag have in common."""
    if tag[0] == "<":
        match = re.match(r"</?([^\s/>]+)", tag)
        return match[1].lower() if match else tag
    return "[" if tag[0] in "![]" else tag


class Alignment:
    """How much each word of a translation comes from each word of its source.

    Sentence by sentence: a word of one does not come from another.
    """

    def __init__(self, blocks: Sequence[NDArray[np.float64]]) -> None:
        """blocks has (words of the translation, words of the source) for each sentence, not negative, in order."""
        self.blocks = [block / block.sum(axis=1, keepdims=True).clip(min=1e-9) for block in blocks]
        self.rows, self.columns = (np.cumsum([0, *(block.shape[axis] for block in blocks)]) for axis in (0, 1))

    @property
    def shape(self) -> tuple[int, int]:
        """The words of the translation, and those of the source."""
        return int(self.rows[-1]), int(self.columns[-1])

    def best(self, word: int) -> int:
        """The word of the translation that comes most from a word of the source."""
        i = int(np.searchsorted(self.columns, word, side="right")) - 1
        block = self.blocks[i]
        within = int(block[:, word - self.columns[i]].argmax()) if len(block) else 0
        return int(self.rows[i]) + within

    def shares(self, start: int, end: int) -> NDArray[np.float64]:
        """For each word of the translation, the share of it that comes from words of the source from start to end."""
        shares = np.zeros(self.rows[-1])
        first_block = max(0, int(np.searchsorted(self.columns, start, side="right")) - 1)
        for i in range(first_block, int(np.searchsorted(self.columns, end, side="left"))):
            first, last = (np.clip(place - self.columns[i], 0, self.blocks[i].shape[1]) for place in (start, end))
            if first < last:
                shares[self.rows[i] : self.rows[i + 1]] = self.blocks[i][:, first:last].sum(axis=1)
        return shares


class SamePlaces(Alignment):
    """An alignment of words in the same order, as far as is known."""

    def __init__(self, n_target: int, n_source: int) -> None:
        super().__init__([])
        self.n_target, self.n_source = n_target, n_source

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_target, self.n_source

    def best(self, word: int) -> int:
        return min(int((word + 0.5) * self.n_target / max(1, self.n_source)), max(0, self.n_target - 1))

    def shares(self, start: int, end: int) -> NDArray[np.float64]:
        places = (np.arange(self.n_target) + 0.5) * self.n_source / max(1, self.n_target)
        return ((start <= places) & (places < end)).astype(np.float64)


def put_back(translation: str, taken: Taken, alignment: Alignment, escape: Callable[[str], str] = str) -> str:
    """The translation with the marks of its source.

    Args:
        translation: its words, separated by spaces.
        taken: the source without its marks.
        alignment: of the words of the translation with those of the source.
        escape: applied to what is not a mark.

    """
    words, marks = translation.split(), taken.marks
    spans = _spans(words, taken, alignment)

    # For each place between words, the marks there, as (order, order among these, number).
    at: list[list[tuple[int, int, int]]] = [[] for _ in range(len(words) + 1)]
    enclosing: list[tuple[int, int]] = []  # the spans around the current mark, the innermost last
    for number, mark in enumerate(marks):
        if number not in spans:
            place = _place_of_thing(mark, alignment)
            order = _BETWEEN
            if enclosing:
                first, last = enclosing[-1]
                place = min(max(place, first), last)
                order = _WITHIN_ENDING if place == last else _WITHIN_BEGINNING
            at[place].append((order, number, number))
        elif mark.partner > number:
            at[spans[number][0]].append((_OPENING, number, number))
            enclosing.append(spans[number])
        else:
            at[spans[number][1]].append((_CLOSING, -mark.partner, number))
            enclosing.pop()

    # Write the words, and the marks between them.
    parts: list[tuple[str, bool]] = []  # each with whether it is of the translation
    is_after_opening = True
    for place, here in enumerate(at):
        for order, _, number in sorted(here):
            mark = marks[number]
            is_opening, is_closing = order == _OPENING, order == _CLOSING
            tail = ""
            if mark.is_before_punctuation and parts and parts[-1][1] and not is_opening:
                text, _ = parts[-1]
                tail = text[len(text.rstrip(_PUNCTUATION)) :]
                parts[-1] = text.removesuffix(tail).rstrip(), True
            follows_mark = bool(parts) and not parts[-1][1]
            needs_no_space = is_closing or is_after_opening or (mark.is_glued and (follows_mark or not is_opening))
            parts += [("" if needs_no_space else " ", True), (mark.text, False)]
            if tail:
                parts.append((tail, True))
            is_after_opening = is_opening or (mark.is_followed and not tail)
        if place < len(words):
            parts.append((("" if is_after_opening else " ") + words[place], True))
            is_after_opening = False
    return "".join(escape(part) if is_translated else part for part, is_translated in parts)


def _place_of_thing(mark: Mark, alignment: Alignment) -> int:
    """How many words of the translation are before a mark that is no pair of tags."""
    n_target, n_source = alignment.shape
    if mark.word >= n_source or not n_target:
        return n_target
    if mark.is_number:  # it belongs to the word after it
        return alignment.best(mark.word)
    return min(alignment.best(mark.word - 1) + 1, n_target) if mark.word else 0


def _spans(words: Sequence[str], taken: Taken, alignment: Alignment) -> dict[int, tuple[int, int]]:
    """For each tag of a pair around words, the first word of the translation that the pair is around, and the last + 1.

    Pairs within pairs stay within them.
    """
    spans: dict[int, tuple[int, int]] = {}
    enclosing = [(0, len(words))]
    for number, mark in enumerate(taken.marks):
        if 0 <= mark.partner < number and number in spans:
            enclosing.pop()
        if mark.partner < number or not words:
            continue
        start, end = mark.word, taken.marks[mark.partner].word
        if start >= end:
            continue  # around nothing
        low, high = enclosing[-1]
        if end - start < len(taken.words):
            first, last = _best_run(alignment.shares(start, end)[low:high] - 0.5)
            low, high = low + first, low + last
            while high - low > 1 and not any(map(str.isalnum, words[high - 1])) and end < len(taken.words):
                high -= 1  # punctuation that stands alone
        spans[number] = spans[mark.partner] = low, high
        enclosing.append((low, high))
    return spans


def _best_run(gains: NDArray[np.float64]) -> tuple[int, int]:
    """The start and the end of the run with the largest sum, which has at least one place."""
    best, best_run = -np.inf, (0, 1)
    total, start = 0.0, 0
    for place, gain in enumerate(gains.tolist()):
        if total <= 0:
            total, start = 0.0, place
        total += gain
        if total > best:
            best, best_run = total, (start, place + 1)
    return best_run
