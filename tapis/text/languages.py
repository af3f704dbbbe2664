"""What language a text is in, by py3langid, and the repair of its characters."""

import copy
import functools
import math
import re
import threading
import unicodedata
from collections.abc import Sequence
from itertools import groupby, islice
from typing import Any, Literal

from tapis.text.language_codes import base_language

# Evidence required of the identifier, as a difference of log-likelihoods in nats: in a text alone, for another
# language; in a pair, on each side, for one and the same language.
LANGUAGE_MARGIN = 10.0
NO_LANGUAGE = "zxx"  # the identifier's label of what is in none, such as codes
# Bytes that the distinct letters of a text in a clearly foreign language have in UTF-8: seven letters of Latin script,
# or three Chinese ones. Laughter and hexadecimal digits have fewer, and look like languages that few people write.
LEAST_LETTER_BYTES = 7

_LOADING = threading.Lock()

_CP1252 = {code: bytes([code]).decode("cp1252", "ignore") for code in range(0x80, 0xA0)}
# Control characters. Those that Python's split() takes for spaces (tab, line feed, U+000B, U+001F, …) become spaces.
_CONTROL = {code: "" for code in (*range(0x20), 0x7F) if not chr(code).isspace()}
# Characters without a width, such as the zero-width space, the byte order mark and those that set the direction of
# writing; and U+FFFC and U+FFFD, which stand for something that is no text. The zero-width joiners stay: Persian, Hindi
# and emoji need them.
_INVISIBLE = dict.fromkeys(
    [
        *(0x00AD, 0x061C, 0x180E, 0x200B, 0x200E, 0x200F, 0xFEFF),
        *range(0x202A, 0x202F),
        *range(0x2060, 0x2070),
        *range(0xFFF9, 0xFFFE),
    ],
    "",
)
_REPLACEMENTS = _CP1252 | _CONTROL | _INVISIBLE

# Combining marks that may follow each other, as in Unicode's Stream-Safe Text Format (UAX #15): no language has nearly
# as many, and normalizing takes quadratic time for more.
MAX_MARKS = 30
_HALFWIDTH_MARKS = {0xFF9E: "\u3099", 0xFF9F: "\u309a"}  # letters, which NFKD makes marks of
_MAY_BE_MARKS = re.compile(rf"[^\w\s\x00-\u02ff]{{{MAX_MARKS + 1},}}")


def repair(text: str) -> str:
    """Apply the unicode rule to one side of a pair."""
    return " ".join(normalized("NFC", text.translate(_REPLACEMENTS)).split())


def normalized(form: Literal["NFC", "NFKD"], text: str) -> str:
    """Return a text in a normal form of Unicode, of each run of combining marks only the first MAX_MARKS."""
    if form == "NFKD":
        text = text.translate(_HALFWIDTH_MARKS)
    return unicodedata.normalize(form, _MAY_BE_MARKS.sub(_without_long_runs, text))


def _without_long_runs(match: re.Match[str]) -> str:
    """Return what matched with at most MAX_MARKS combining marks in a row."""
    runs = groupby(match[0], lambda character: unicodedata.category(character)[0] == "M")
    return "".join("".join(islice(run, MAX_MARKS if are_marks else None)) for are_marks, run in runs)


def can_identify(languages: Sequence[str]) -> bool:
    """Return whether py3langid can tell some languages apart."""
    return identifier_of(languages) is not None


def language_shares(text: str, languages: Sequence[str]) -> list[tuple[str, float]]:
    """Return the probability of each of some languages for a text, the most probable first.

    If py3langid cannot tell them apart, all are equally probable, and their order stays.
    """
    identifier = identifier_of(languages)
    if identifier is None:
        return [(language, 1 / len(languages)) for language in languages]
    ranked = identifier.rank(text)  # by log P(text, language)
    shares = [math.exp(log_p - ranked[0][1]) for _, log_p in ranked]
    of_base = {base_language(language): language for language in languages}
    return [(of_base[base], share / sum(shares)) for (base, _), share in zip(ranked, shares, strict=True)]


def foreign_language(text: str, languages: Sequence[str]) -> str | None:
    """Return the language of a text that is clearly in none of some languages; None where it may be in one of them.

    It is clear where another language is more probable by LANGUAGE_MARGIN: of 4,000 short English and French sentences
    of Tatoeba none is foreign to these two languages, and of 1,014 German ones of Multi30k all are. None also for a
    text of few distinct letters, and where py3langid does not cover all of the languages.
    """
    letters = set(filter(str.isalpha, text.lower()))
    if len("".join(letters).encode()) < LEAST_LETTER_BYTES:
        return None
    bases = {base_language(language) for language in languages}
    identifier = language_identifier()
    if not bases <= set(identifier.labels):
        return None
    ranked = [one for one in identifier.rank(text) if one[0] != NO_LANGUAGE]  # by log P(text, language)
    best, best_log_p = ranked[0]
    known_log_p = max(log_p for language, log_p in ranked if language in bases)
    return str(best) if best_log_p - known_log_p > LANGUAGE_MARGIN else None


def identifier_of(languages: Sequence[str]) -> Any:
    """Return the py3langid identifier restricted to some languages, or None if it cannot tell them apart.

    It cannot if it does not cover all of them, or if two are one language in different regions.
    """
    bases = {base_language(language) for language in languages}
    identifier = language_identifier(*sorted(bases))
    return identifier if len(bases) == len(languages) else None


@functools.lru_cache(maxsize=100)
def language_identifier(*languages: str) -> Any:
    """Return the py3langid identifier restricted to some languages, or None if it does not cover them all.

    Without languages, for all that it covers.
    """
    whole = _whole_identifier()
    if not set(languages) <= set(whole.labels):
        return None
    if not languages:
        return whole
    identifier = copy.copy(whole)  # its tables are shared, except for a few columns
    identifier.set_languages(list(languages))
    return identifier


def _whole_identifier() -> Any:
    """Return the identifier of all languages. It takes 80 MB and half a second, once for all threads."""
    with _LOADING:
        return _load_identifier()


@functools.cache
def _load_identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # noqa: PLC0415 - takes 0.2 s

    return LanguageIdentifier.from_model_file(MODEL_FILE)
