"""Find the encoding of a table, as office programs export it: UTF-8, UTF-16, or the code page of a language."""

import codecs
import re
from pathlib import Path
from typing import NamedTuple

from tapis.text.language_codes import base_language, language_tag
from tapis.text.lines import BUFFER_BYTES, SAMPLE_BYTES, open_bytes, utf16_name

SAMPLE_LINES = 100  # with other characters than those of ASCII
TRADITIONAL = ("-tw", "-hk", "-mo", "-hant")  # ends of codes of Chinese in traditional characters


class Encoding(NamedTuple):
    """An encoding of text."""

    name: str
    """As users know it"""
    codec: str = "utf-8"
    """As Python knows it"""


UTF_8 = Encoding("UTF-8")
WESTERN = Encoding("Windows-1252", "cp1252")
_MAC_ROMAN = Encoding("Mac Roman", "mac_roman")
_CENTRAL_EUROPEAN = Encoding("Windows-1250", "cp1250")
_CYRILLIC = Encoding("Windows-1251", "cp1251")

# Windows' code pages in which Excel saves CSV where a language is written, other than Windows-1252
_CODE_PAGES = {
    ("bs", "cs", "hr", "hu", "pl", "ro", "sk", "sl", "sq"): _CENTRAL_EUROPEAN,
    ("be", "bg", "kk", "ky", "mk", "mn", "ru", "sr", "tg", "tt", "uk"): _CYRILLIC,
    ("el",): Encoding("Windows-1253", "cp1253"),
    ("az", "tr", "uz"): Encoding("Windows-1254", "cp1254"),
    ("he", "yi"): Encoding("Windows-1255", "cp1255"),
    ("ar", "fa", "ug", "ur"): Encoding("Windows-1256", "cp1256"),
    ("et", "lt", "lv"): Encoding("Windows-1257", "cp1257"),
    ("vi",): Encoding("Windows-1258", "cp1258"),
    ("th",): Encoding("Windows-874", "cp874"),
    ("ja",): Encoding("Shift JIS", "cp932"),
    ("zh",): Encoding("GB 18030", "gb18030"),
    ("ko",): Encoding("Windows-949", "cp949"),
}
_BIG5 = Encoding("Big5", "cp950")

# Bytes between letters of ASCII that are letters in Mac Roman, or its apostrophe, but signs or rare letters in
# Windows-1252; and the other way round. In Windows-1252, quotes and dashes (85, 91 to 97) and œ (9C, and among capitals
# 8C) may be between letters, and so may Õ (D5) among capitals.
_IN_MAC_ROMAN = re.compile(
    rb"(?<=[A-Za-z])[\x80-\x84\x86-\x8b\x8d-\x90\x98-\x9b\x9d-\x9f](?=[A-Za-z])|(?<=[a-z])[\x8c\xd5](?=[A-Za-z])"
)
_IN_WINDOWS = re.compile(rb"(?<=[A-Za-z])[\xc0-\xd4\xd6-\xff](?=[A-Za-z])")
_LEAST_LEAD = 3  # letters by which Mac Roman must be ahead: fewer are found in any code page


def find_encoding(path: Path, source: str, target: str) -> Encoding:
    """Return the encoding of a file with texts in two languages.

    A byte order mark or zero bytes tell UTF-16. Otherwise the file is in UTF-8 if most of its first lines beyond ASCII
    are, and else in the code page of the two languages. Raises DataError where the file cannot be read.
    """
    with open_bytes(path) as file:
        beginning = file.read(SAMPLE_BYTES)
    if name := utf16_name(beginning):
        return Encoding("UTF-16", name)

    n_utf_8 = n_other = 0
    sample = b""
    with open_bytes(path) as file:
        decoder = codecs.getincrementaldecoder("utf-8")()  # a piece of a long line may end within a character
        while n_utf_8 + n_other < SAMPLE_LINES and (line := file.readline(BUFFER_BYTES)):
            if line.isascii():
                decoder.reset()
                continue
            sample += line
            try:
                decoder.decode(line, final=line.endswith(b"\n"))
                n_utf_8 += 1
            except UnicodeDecodeError:
                decoder.reset()
                n_other += 1
    return UTF_8 if n_utf_8 >= n_other else _code_page(sample, source, target)


def _code_page(sample: bytes, source: str, target: str) -> Encoding:
    """Return the code page of two languages; of two, the first that the sample is in."""
    pages = [page for page in map(code_page_of, (source, target)) if page != WESTERN]
    if not pages:
        return code_page_of(source, sample)
    return next((page for page in pages if is_in(sample, page.codec)), pages[0])


def code_page_of(language: str, sample: bytes = b"") -> Encoding:
    """Return the code page of a language: Windows-1252 of one that is not known.

    In place of Windows-1252, return Mac Roman if the sample looks so, as Excel for Mac saves CSV.
    """
    if base_language(language) == "zh" and language.lower().replace("_", "-").endswith(TRADITIONAL):
        return _BIG5
    page = next((page for languages, page in _CODE_PAGES.items() if base_language(language) in languages), WESTERN)

    # Serbian and others are written in two scripts.
    scripts = language_tag(language).split("-")[1:]
    if "cyrl" in scripts:
        return _CYRILLIC
    if "latn" in scripts and page == _CYRILLIC:
        return _CENTRAL_EUROPEAN

    lead_of_mac = len(_IN_MAC_ROMAN.findall(sample)) - len(_IN_WINDOWS.findall(sample))
    return _MAC_ROMAN if page == WESTERN and lead_of_mac >= _LEAST_LEAD else page


def is_in(raw: bytes, codec: str) -> bool:
    """Return whether bytes can be read in an encoding."""
    try:
        raw.decode(codec)
    except UnicodeDecodeError:
        return False
    return True
