"""What a translation carries over as it is: markup, links, addresses, placeholders, codes and pictographs.

`take_out` removes these marks from a line and remembers where they were. The words that are left are translated.
placement.py puts every mark back, each exactly once: pairs of tags around the words that come from those they were
around, everything else after the word that comes from the word before it.

No mark is lost, doubled or changed, whatever the model does: it never sees any. Only emphasis of Markdown that would be
around nothing is left out.
"""

import re
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Literal, cast

from tapis.text.mark_patterns import is_plain, marks
from tapis.text.markup import Markup

MarkKind = Literal["kept", "open", "close", "emphasis", "thing", "number"]
"""An element that is kept whole; an opening or a closing tag, or emphasis of Markdown, where the same sign opens and
closes; anything else without a partner; a number. The names of the groups of `mark_patterns.marks`"""

# Tags of HTML that have no partner; <wbr> has none either, and may be within a word
_ALONE = re.compile(r"(?:<|&lt;)(?:area|base|br|col|embed|hr|img|input|link|meta|source|track)\b", re.IGNORECASE)
_OTHER_FULL_STOPS = "。｡．۔।։።။។"  # of Chinese and Japanese, Urdu, Hindi, Armenian, Amharic, Burmese, Khmer
FULL_STOPS = f".{_OTHER_FULL_STOPS}"
_SENTENCE_ENDS = f"{FULL_STOPS}!?…！？؟"
PUNCTUATION = f"{_SENTENCE_ENDS},;:)]»”，、；：）」』》】،؛"  # that belongs to the word before it
_LIKE_A_WORD = re.compile(r"\w[\w.-]*")
_LEADING_PUNCTUATION = re.compile(f"[{re.escape(PUNCTUATION)}]++")
# What two things have between them: %d/%d. Full stops, commas and closing brackets of other scripts belong to the word
# before, but not 、 and ：, as in {a}、{b} and {h}：{m}.
_SIGNS = re.compile(rf"(?:[^\w\s{_OTHER_FULL_STOPS}！？؟，；،؛）」』》】]|_)*+")
# Around a thing: what opens, and what may close it
_BRACKETS = {
    **{"(": ")", "[": "]", "«": "»", "»": "«", "‹": "›", "›": "‹", '"': '"', "'": "'"},
    **{"“": "”", "”": "”", "„": "“”", "‘": "’", "’": "’", "‚": "‘’"},
    **{"（": "）", "「": "」", "『": "』", "《": "》", "【": "】"},
}
_DASHES = ("-", "–", "—", "|")


@dataclass
class Mark:
    """Something that is carried over."""

    text: str
    kind: MarkKind
    word: int
    """How many words are before it"""
    start: int
    end: int
    """Where it begins and ends in the line"""
    is_glued: bool
    """Whether no space is before it"""
    sign_before: str = ""
    """The last character of the word before it, without punctuation that follows the mark"""
    is_followed: bool = False
    """Whether a word follows without a space"""
    is_before_punctuation: bool = False
    """Whether punctuation follows that is not its own; this goes to the word before it"""
    joins_words: bool = False
    """Whether it is between two words without a space, alone or beside other marks: First<br>second"""
    partner: int = -1
    """Of a pair of tags, the number of the other one among the marks; −1 for anything else"""

    @property
    def is_tag(self) -> bool:
        """Whether it may be one of a pair around words."""
        return self.kind in ("open", "close", "emphasis")


@dataclass(frozen=True)
class Taken:
    """A line after its marks were taken out."""

    words: list[str]
    marks: list[Mark]

    @property
    def text(self) -> str:
        return " ".join(self.words)


def take_out(line: str, with_numbers: bool = False, markup: Markup = "", words: Set[int] = frozenset()) -> Taken:
    """Take the marks out of a line of a text of some markup, and numbers too if wanted.

    words are the places of characters that belong to words in any case, such as MP3 where it is a term of a glossary.
    Two characters of words are written as `repair` reads them, lest they be spaces to Python or to JavaScript: U+0085
    as an ellipsis, and U+FEFF as U+2060, which is as invisible.
    """
    original, line = line, line.replace("\x85", "…").replace("\ufeff", "\u2060")
    if is_plain(line):
        return Taken(line.split(), [])
    pattern = marks(markup, with_numbers=with_numbers)
    codes: set[int] = set()  # that are words here
    if words:
        found = pattern.finditer(line)
        codes = {match.start() for match in found if match.start() in words and _LIKE_A_WORD.fullmatch(match.group())}
    reader = _read(line, original, pattern, codes)
    # An asterisk that is no emphasis belongs to its word.
    alone = {mark.start for mark in reader.marks if mark.kind == "emphasis" and mark.partner < 0}
    if alone:
        reader = _read(line, original, pattern, alone | codes)
    return Taken(reader.words, reader.marks)


def _read(line: str, original: str, pattern: re.Pattern[str], skipped: Set[int]) -> "_Reader":
    """Read a line. Its marks are as in the original. skipped are the places of marks that are none."""
    reader = _Reader(line)
    for match in pattern.finditer(line):
        start, end = match.start(), match.end()
        if start in skipped or start < reader.end:
            continue
        kind = cast(MarkKind, "thing" if _ALONE.match(match.group()) else match.lastgroup)
        mark = Mark(original[start:end], kind, 0, start, end, reader.is_glued(start))
        if not mark.is_tag:
            reader.add_signs(mark)
        reader.add_text(start)
        mark.word = len(reader.words)
        mark.sign_before = "".join(reader.words[-1:])[-1:]
        reader.marks.append(mark)
        reader.end = end
        if not mark.is_tag:
            reader.add_thing(mark)
        else:
            reader.add_tag(mark)
    reader.add_text(len(line))
    _find_joints(line, reader.marks)
    return reader


def _find_joints(line: str, marks: Sequence[Mark]) -> None:
    """Set which marks join words. Marks that follow each other do so together, as in <b>First</b><i>second</i>."""
    start = 0  # of the marks that follow each other
    for number, mark in enumerate(marks):
        if number and marks[number - 1].end < mark.start:
            start = number
        is_last = number + 1 == len(marks) or mark.end < marks[number + 1].start
        following = line[mark.end : mark.end + 1]
        if is_last and marks[start].is_glued and following.strip() and following not in PUNCTUATION:
            for one in marks[start : number + 1]:
                one.joins_words = True


class _Reader:
    """Reads a line from left to right: its words, and its marks."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.end = 0  # of what was read
        self.words: list[str] = []
        self.marks: list[Mark] = []
        self.first_thing = 0  # the number of the first of those that follow each other, up to the last mark
        self.is_open_word = False  # whether text that follows without a space belongs to the last word
        self.unclosed: list[tuple[str, int]] = []  # tags that wait for their partners, by name and number
        self.n_unclosed: Counter[str] = Counter()

    def is_glued(self, place: int) -> bool:
        """Return whether no space is before a place."""
        return place > 0 and not self.line[place - 1].isspace()

    def add_signs(self, mark: Mark) -> None:
        """Add the signs between the last thing and a new one to the last one.

        In the translation, the two stay together.
        """
        last, signs = self.marks[-1] if self.marks else None, self.line[self.end : mark.start]
        if not last or last.is_tag or not _SIGNS.fullmatch(signs):
            self.first_thing = len(self.marks)
            return
        last.text += signs
        self.end = last.end = mark.start
        if "number" in (last.kind, mark.kind):
            mark.kind = last.kind

    def add_text(self, end: int) -> None:
        """Read words up to a place. Punctuation after something that was taken out goes to the word before that."""
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
        """Add a thing. A dash before it, or brackets around it or around several, belong to it or to them."""
        words, first = self.words, self.marks[self.first_thing]
        following = "" if self.line.startswith("](", self.end) else self.line[self.end : self.end + 1]
        is_around_all = bool(words) and first.is_glued and following in _BRACKETS.get(words[-1], "")
        is_around_last = mark is not first and following in _BRACKETS.get(self.line[mark.start - 1], "")
        if words and not mark.is_glued and words[-1] in _DASHES:
            mark.text = f"{words.pop()} {mark.text}"
            mark.word -= 1
        elif following and (is_around_all or is_around_last):
            mark.text += following
            self.end += 1
            mark.end = self.end
            if not is_around_last:
                first.text, first.is_glued = f"{words.pop()}{first.text}", False
                for thing in self.marks[self.first_thing :]:
                    thing.word -= 1
        self.is_open_word = False

    def add_tag(self, mark: Mark) -> None:
        """Add an opening tag, a closing one, or emphasis, which opens and closes alike."""
        name, number = _name_of(self.line[mark.start : mark.end]), len(self.marks) - 1
        is_before_word = self.line[self.end : self.end + 1].isalnum()
        if self.is_open_word and is_before_word and self.words[-1][-1] in _SENTENCE_ENDS:
            self.is_open_word = False  # a sentence ends where the tag is
            mark.word = len(self.words)
        if mark.kind == "close" or (mark.kind == "emphasis" and self.n_unclosed[name]):
            mark.is_before_punctuation = bool(self.words) and not _ends_in_punctuation(self.words[-1])
            while self.n_unclosed[name] and mark.partner < 0:
                other_name, other = self.unclosed.pop()  # what does not match would cross this pair, and stays alone
                self.n_unclosed[other_name] -= 1
                if other_name == name:
                    mark.partner, self.marks[other].partner = other, number
        elif name not in ("<wbr", "&wbr"):  # which may be within a word
            if self.is_open_word and is_before_word:  # within a word, as are opening tags directly before
                mark.word -= 1
                for _, outer in reversed(self.unclosed):
                    if self.marks[outer].end != self.marks[outer + 1].start:
                        break
                    self.marks[outer].word = mark.word
            before = self.marks[number - 1] if number else None
            if before and before.is_tag and before.end == mark.start and before.partner >= 0:
                self.is_open_word = False  # </a><a> is between words, although there is no space
                mark.word = len(self.words)
            self.unclosed.append((name, number))
            self.n_unclosed[name] += 1


def _ends_in_punctuation(word: str) -> bool:
    return word[-1] in PUNCTUATION


def _name_of(tag: str) -> str:
    """Return what an opening and a closing tag have in common: their name, up to a class as in <c.yellow> of WebVTT."""
    match = re.match(r"(?:<|&lt;)/?([^\s/>&.]+)", tag) or re.fullmatch(r"\[/?(\w+)(?:=.+)?\]", tag)
    if match:
        return match[0][0] + match[1].lower()
    return "[" if tag[0] in "![]" else tag
