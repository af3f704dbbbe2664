"""Codes of languages: without their regions, and by the names of the languages."""

import contextlib
import functools
import re


def base_language(code: str) -> str:
    """Return the code of a language without its region or script, in small letters: pt of pt-BR, de of deu."""
    return language_tag(code).split("-")[0]


@functools.lru_cache(maxsize=1000)
def language_tag(name: str) -> str:
    """Return the usual code of a language, in small letters and with hyphens: pt-br of pt_BR, de-at of deu-AT.

    `name` is a code of two or three letters, or the name of a language in English or in itself: German, Deutsch.
    Anything else is returned as it is. Without Babel, which the package alone does not need, so is all but a code of
    two letters.
    """
    first, *rest = re.split("[-_]", name.strip().lower())
    if not re.fullmatch("[a-z]{2}|", first):
        with contextlib.suppress(ImportError):
            is_code = re.fullmatch("[a-z]{3}", first)
            named = _two_letter_code(first) if is_code else _english_names().get(first) or _own_names().get(first)
            first = named or first
    return "-".join([first, *rest])


def _two_letter_code(code: str) -> str:
    """Return the code of two letters for one of three; without one, the code itself."""
    from babel.core import get_global  # noqa: PLC0415 - takes 20 ms, which codes of two letters do not need

    alias: str = get_global("language_aliases").get(code, code).split("_")[0]
    return alias if len(alias) == 2 else code


@functools.cache
def _english_names() -> dict[str, str]:
    """Return the codes of languages by their names in English, in small letters."""
    from babel import Locale  # noqa: PLC0415

    return {name.lower(): code for code, name in Locale("en").languages.items() if "_" not in code}


@functools.cache
def _own_names() -> dict[str, str]:
    """Return the codes of languages by their own names, in small letters. It reads 200 files, for about a second."""
    from babel import Locale  # noqa: PLC0415
    from babel.localedata import locale_identifiers  # noqa: PLC0415

    codes = [code for code in locale_identifiers() if "_" not in code]
    return {Locale(code).languages.get(code, code).lower(): code for code in codes}
