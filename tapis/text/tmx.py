"""Read sentence pairs from translation memories (TMX 1.4).

A TMX file is XML. Each unit holds a text in several languages:

    <tu>
      <tuv xml:lang="en-US"><seg>The <hi>cat</hi> sits.</seg></tuv>
      <tuv xml:lang="fr-FR"><seg>Le chat est assis.</seg></tuv>
    </tu>

The file is parsed as a stream, and no tree is built: a file of any size takes the memory of one unit. Nothing outside
the file is read, and files that declare entities are refused.
"""

import codecs
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Generator, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from tapis.system.terminal import in_one_line, listed
from tapis.text.language_codes import base_language, language_tag
from tapis.text.lines import MAX_LINE_BYTES, DataError, Pair, open_bytes
from tapis.text.sentences import LANGUAGES_WITHOUT_SPACES
from tapis.text.words import IN_WORD

CHUNK_BYTES = 2**16  # parsed at a time
MAX_DEPTH = 1000  # of nested elements
MAX_NAMES = 10_000  # different names of elements and attributes, all of which the parser keeps
MAX_LANGUAGES = 20  # listed in an error

# What XML 1.0 forbids: control characters, lone surrogates, U+FFFE, U+FFFF; and any references, of which
# `_is_forbidden` tells the forbidden ones. In UTF-8, whose bytes are decoded as Latin-1, surrogates are ED A0 80 to
# ED BF BF.
_CONTROL_OR_REFERENCE = r"[\x00-\x08\x0b\x0c\x0e-\x1f]|&#(?:x[0-9A-Fa-f]{1,8}|[0-9]{1,9});"
_FORBIDDEN_IN_UTF16 = re.compile(rf"{_CONTROL_OR_REFERENCE}|[\ud800-\udfff\ufffe\uffff]")
_FORBIDDEN_IN_UTF8 = re.compile(rf"{_CONTROL_OR_REFERENCE}|\xed[\xa0-\xbf][\x80-\xbf]|\xef\xbf[\xbe\xbf]")
_FORBIDDEN_IN_OTHERS = re.compile(_CONTROL_OR_REFERENCE)
# A reference, or bytes of a character, that may go on in the next chunk
_UNFINISHED = re.compile(r"(?:&(?:#(?:x[0-9A-Fa-f]{0,8}|[0-9]{0,9}))?|\xed[\xa0-\xbf]?|\xef\xbf?)\Z")
_DECLARED = re.compile(r"""(?:\xef\xbb\xbf)?<\?xml\s[^>]*\bencoding\s*=\s*["']([\w.-]+)""", re.ASCII)

# Elements in a segment that hold no text of the sentence: formatting codes of the original document, and the texts of
# footnotes and the like (sub). The text of all others, such as hi, belongs to the sentence.
NOT_TEXT = {"bpt", "ept", "it", "ph", "ut", "sub"}
_FORMATTING = {"bpt", "ept"}  # those of them that only say how the text between them looks


def read_tmx(path: Path, source: str, target: str, *, only_whole: bool = False) -> Generator[Pair, None, str]:
    """Yield the pair of each unit that has both languages. At the end, returns a note on those that lack one, or "".

    A language matches the tags that start with it, in any case: `en` matches `EN`, `eng` and `en-US`, and a tag that
    is equal comes first. With only_whole, units of which a placeholder was left out are not yielded: what they say
    without it, such as `Delete` for `Delete {0}`, may be wrong. Raises DataError where the file is not TMX, and at the
    end if no unit has both languages.
    """
    parser = _UnitParser(str(path), source, target, only_whole)
    with open_bytes(path) as file:
        for chunk in _without_forbidden(iter(lambda: file.read(CHUNK_BYTES), b"")):
            yield from parser.parse(chunk, is_last=not chunk)

    if not parser.has_pairs:
        raise parser.without_pairs()
    return parser.note_on_skipped()


class TmxFile(NamedTuple):
    """A TMX file that units can be added to."""

    content: bytes
    """Decompressed"""
    pairs: list[Pair]
    """Of the units that have both languages, but for those of which a placeholder was left out"""
    end: int
    """Where its last unit may be followed by another one: the first byte of </body>"""
    encoding: str

    def with_units(self, units: str) -> bytes:
        """Return the content with further units. All other bytes stay."""
        # A character that the encoding lacks is written as a reference.
        return self.content[: self.end] + units.encode(self.encoding, "xmlcharrefreplace") + self.content[self.end :]


def read_tmx_file(path: Path, source: str, target: str) -> TmxFile:
    """Read a TMX file to add units to. Raises DataError if it is none, or has units, but none of both languages."""
    parser = _UnitParser(str(path), source, target, only_whole=True)
    with open_bytes(path) as file:
        content = file.read()
    chunks = (content[i : i + CHUNK_BYTES] for i in range(0, len(content), CHUNK_BYTES))
    pairs = [pair for chunk in _without_forbidden(chunks) for pair in parser.parse(chunk, is_last=not chunk)]

    # Find out how units are added.
    if parser.languages and not parser.has_pairs:
        raise parser.without_pairs()
    encoding = _utf16_of(content) or parser.encoding
    if parser.body_end < 0 or not content[parser.body_end :].startswith("</body".encode(encoding)):
        raise DataError(f"{path}: units cannot be added, since it has no <body> that </body> ends")
    return TmxFile(content, pairs, parser.body_end, encoding)


def _utf16_of(content: bytes) -> str:
    """Return the name of UTF-16 without a byte order mark if a file begins as that does; otherwise nothing."""
    if content.startswith((BOM_UTF16_LE, b"<\0")):
        return "utf-16-le"
    return "utf-16-be" if content.startswith((BOM_UTF16_BE, b"\0<")) else ""


def _without_forbidden(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the chunks of a file with spaces in place of the characters that XML forbids, and b"" at the end.

    Memories have such characters from the documents that they were made of, and the parser refuses them. The bytes
    stay as many. Latin-1 stands for all encodings but UTF-16, since it keeps every byte as it is.
    """
    first = next(chunks, b"")
    encoding = _utf16_of(first) or "latin-1"
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass" if "16" in encoding else "strict")
    forbidden = _forbidden_in(first)

    unfinished = ""
    for chunk in chain([first], chunks):
        text = unfinished + decoder.decode(chunk)
        unfinished = tail[0] if (tail := _UNFINISHED.search(text, max(0, len(text) - 12))) else ""
        text = forbidden.sub(_blanked, text[: len(text) - len(unfinished)])
        if text:
            yield text.encode(encoding, "surrogatepass")
    if rest := unfinished.encode(encoding) + bytes(decoder.getstate()[0]):
        yield rest
    yield b""


def _forbidden_in(start: bytes) -> re.Pattern[str]:
    """Return what is forbidden in the encoding of a file that starts so: UTF-8, unless it declares another one."""
    if _utf16_of(start):
        return _FORBIDDEN_IN_UTF16
    declared = _DECLARED.match(start.decode("latin-1"))
    return _FORBIDDEN_IN_UTF8 if not declared or declared[1].lower() == "utf-8" else _FORBIDDEN_IN_OTHERS


def _blanked(match: re.Match[str]) -> str:
    """Return spaces for a forbidden character or a reference to one, and any other reference as it is."""
    found = match[0]
    if found[0] != "&":
        return " " * len(found)
    number = int(found[3:-1], 16) if found[2] == "x" else int(found[2:-1])
    return " " * len(found) if _is_forbidden(number) else found


def _is_forbidden(number: int) -> bool:
    """Return whether XML 1.0 forbids the character of a number."""
    if number < 0x20:
        return number not in (0x9, 0xA, 0xD)
    return 0xD800 <= number < 0xE000 or number in (0xFFFE, 0xFFFF) or number > 0x10FFFF


class _Variant(NamedTuple):
    """A text of a unit."""

    is_equal: bool
    """Whether its tag is equal to the language that is wanted"""
    text: str
    is_whole: bool
    """Whether no placeholder was left out"""


class _UnitParser:
    """Parses TMX in chunks. Expat calls the handlers, which fill in the unit at hand."""

    def __init__(self, name: str, source: str, target: str, only_whole: bool) -> None:
        self.name = name
        self.only_whole = only_whole
        self.wanted_as_given = (source, target)
        self.wanted = (language_tag(source), language_tag(target))
        self.languages: set[str] = set()  # tags seen, for the error
        self.pairs: list[Pair] = []  # complete and not yet returned
        self.has_pairs = False  # whether any unit has both languages
        self.n_skipped = 0  # units that do not

        self.variants: dict[str, _Variant] = {}  # of this unit, by language
        self.tag = ""  # language tag of this variant
        self.segment: list[str] | None = None  # pieces of this segment's text, or None outside segments
        self.segment_length = 0
        self.code_depth = 0  # how many elements of NOT_TEXT are open
        self.is_after_placeholder = False  # whether a placeholder ended after the last text
        self.is_whole = True  # whether this segment had no placeholder so far
        self.depth = 0
        self.bytes_fed = 0
        self.encoding = "utf-8"  # unless the file declares another one
        self.body_end = -1  # index of the first byte of </body>

        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.XmlDeclHandler = self._declare
        self.parser.StartDoctypeDeclHandler = self._start_doctype
        self.parser.SkippedEntityHandler = self._skip_entity
        self.parser.StartElementHandler = self._start_element
        self.parser.EndElementHandler = self._end_element
        self.parser.CharacterDataHandler = self._add_text

    def parse(self, chunk: bytes, is_last: bool) -> list[Pair]:
        """Parse a piece of the file. Returns the pairs of the units that end in it."""
        try:
            self.parser.Parse(chunk, is_last)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            place = f"{self.name} line {error.lineno:,}"
            raise DataError(f"{place}: not XML ({reason}) at character {error.offset + 1:,}") from None
        except (LookupError, ValueError) as error:  # expat knows UTF-8, UTF-16 and encodings of one byte
            raise DataError(
                f"{self.name}: its encoding is not supported: convert it to UTF-8 ({in_one_line(error)})"
            ) from None

        # Expat keeps a tag or comment whose end it has not seen.
        self.bytes_fed += len(chunk)
        if self.bytes_fed - self.parser.CurrentByteIndex > MAX_LINE_BYTES + len(chunk):
            raise self._error(f"a tag or comment longer than {MAX_LINE_BYTES // 1_000_000} MB")
        if self.depth > MAX_DEPTH or len(self.parser.intern) > MAX_NAMES:
            raise self._error("not TMX (too many nested or different elements)")

        pairs = self.pairs
        self.pairs = []
        return pairs

    def without_pairs(self) -> DataError:
        """Return the error about a file in which no unit has both languages."""
        source, target = self.wanted_as_given
        return DataError(
            f"{self.name}: no unit has both {source} and {target}\n"
            f"available languages (choose with --source and --target, or --pairs): {listed(sorted(self.languages))}"
        )

    def note_on_skipped(self) -> str:
        """Return how many units lack a language, and the other languages of the file; nothing if no unit lacks one."""
        if not self.n_skipped:
            return ""
        units = f"{self.n_skipped:,} unit{'s' if self.n_skipped > 1 else ''} without both languages, skipped"
        others = [
            tag for tag in sorted(self.languages - {""}) if _matching_language(language_tag(tag), self.wanted) is None
        ]
        return f"{units} (other languages: {listed(others)})" if others else units

    def _error(self, reason: str) -> DataError:
        return DataError(f"{self.name} line {self.parser.CurrentLineNumber:,}: {reason}")

    def _declare(self, version: str, encoding: str | None, is_standalone: int) -> None:
        self.encoding = encoding or self.encoding

    def _start_doctype(self, name: str, system_id: str | None, public_id: str | None, has_subset: bool) -> None:
        """Refuse declarations in the file: an entity may expand to gigabytes. A link to a DTD is not followed."""
        if has_subset:
            raise self._error("DOCTYPE with declarations in [ ], which are not read (remove the brackets)")

    def _skip_entity(self, name: str, is_parameter_entity: bool) -> None:
        """Refuse an entity that only the linked DTD could define."""
        if not is_parameter_entity:
            raise self._error(f"entity &{in_one_line(name, 40)}; is not defined (write the character itself)")

    def _start_element(self, name: str, attributes: dict[str, str]) -> None:
        if self.depth == 0 and name != "tmx":
            raise self._error(f"not TMX (its first element is <{in_one_line(name, 40)}>)")
        self.depth += 1

        if name == "tu":
            self.variants = {}
        elif name == "tuv":
            self.tag = attributes.get("xml:lang") or attributes.get("lang") or ""
            if len(self.languages) < MAX_LANGUAGES:
                self.languages.add(in_one_line(self.tag, 20))
        elif name == "seg":
            self.segment = []
            self.segment_length = 0
            self.is_after_placeholder = False
            self.is_whole = True
        elif name in NOT_TEXT:
            self.is_whole &= self.code_depth > 0 or name in _FORMATTING
            self.code_depth += 1

    def _add_text(self, text: str) -> None:
        if self.segment is None or self.code_depth:
            return
        if self.is_after_placeholder and self._would_be_glued(text):
            self.segment.append(" ")
        self.is_after_placeholder = False
        self.segment.append(text)
        self.segment_length += len(text)
        if self.segment_length > MAX_LINE_BYTES:
            raise self._error(f"a segment longer than {MAX_LINE_BYTES // 1_000_000} MB")

    def _would_be_glued(self, text: str) -> bool:
        """Return whether a text begins with a letter, its mark or a digit, and the segment so far ends with one."""
        before = "".join(self.segment[-1:]) if self.segment else ""
        has_spaces = base_language(self.tag) not in LANGUAGES_WITHOUT_SPACES
        return has_spaces and bool(re.match(IN_WORD, before[-1:]) and re.match(IN_WORD, text))

    def _end_element(self, name: str) -> None:
        self.depth -= 1
        if name in NOT_TEXT:
            self.code_depth -= 1
            self.is_after_placeholder |= name == "ph" and not self.code_depth  # a line break, for example
        elif name == "seg" and self.segment is not None:
            self._add_variant("".join(self.segment))
            self.segment = None
        elif name == "tu":
            if len(self.variants) == 2:
                source, target = (self.variants[language] for language in self.wanted)
                self.has_pairs = True
                if not self.only_whole or (source.is_whole and target.is_whole):
                    self.pairs.append((source.text, target.text))
            else:
                self.n_skipped += 1
            self.variants = {}
        elif name == "body":
            self.body_end = self.parser.CurrentByteIndex

    def _add_variant(self, text: str) -> None:
        """Keep a text of the unit if it is in a wanted language. The first wins, but an equal tag before all others."""
        tag = language_tag(self.tag)
        language = _matching_language(tag, self.wanted)
        if language is None:
            return
        is_equal = tag == language
        if language not in self.variants or (is_equal and not self.variants[language].is_equal):
            text = re.sub(r"[ \t\r\n]+", " ", text).strip(" ")
            self.variants[language] = _Variant(is_equal, text, self.is_whole)


def _matching_language(tag: str, languages: tuple[str, str]) -> str | None:
    """Return the language that a tag starts with, or None. Of `pt` and `pt-br`, `pt-br` matches the longer."""
    matching = [language for language in languages if f"{tag}-".startswith(f"{language}-")]
    return max(matching, key=len, default=None)
