"""Settings and texts of programs: JSON and YAML. Their values are translated, never their keys."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tapis.documents.common import DocumentError, Translate, leave, splice, translated_texts
from tapis.text.mark_patterns import BESIDE_MARKS

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(?P<colon>\s*:)?')
# What programs read: without spaces, and with something else than letters, or small letters before a capital. In
# scripts without spaces between words, only paths, addresses and names with an underscore.
_NAME = re.compile(
    rf"(?=\S*[\d_/\\.:#@=|<>{{}}()\[\]$%&+*~^-]\S)[^\s{BESIDE_MARKS}]+"
    r"|(?=\S*[/\\_]\S|\S*\.[A-Za-z]\w*\Z|\S*%[YmBHM])\S+|\S+[/\\]|[a-z]+[A-Z]\w*"
)
# Tags and placeholders of a text, not those of a name: List<String>, item_{n}, key:{n}
_TAG_OR_PLACEHOLDER = re.compile(
    r"(?<!\w)<[A-Za-z][^<>]*>|</[A-Za-z][^<>]*>|(?<![\w/.:=&@?$#%+|~-])(?:[$#%]?\{\{?[\w .]+\}\}?|%\w)(?!\w)"
)
_PLAIN_YAML = re.compile(r"[^\W\d_][\w .;!?'’()«»\u2013\u2014-]*")  # a text that YAML needs no quotation marks for
_STANDARD_TAG = "tag:yaml.org,2002:"
_WORDS_OF_YAML = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def is_prose(text: str) -> bool:
    """Return whether a value is for people to read: no name, date, address, colour or path."""
    # without tags, placeholders, and the punctuation and brackets around a text: Loading..., *required, (optional)
    words = _TAG_OR_PLACEHOLDER.sub("", text).strip().rstrip(".…!?:;,*\"'").lstrip("*\"'¿¡")
    if words[:1] + words[-1:] in ("()", "[]"):
        words = words[1:-1]
    return any(map(str.isalpha, words)) and not _NAME.fullmatch(words)


def _is_translated(text: str) -> bool:
    """Return whether a value is prose; note it if it has letters and is none."""
    is_for_people = is_prose(text)
    if not is_for_people and any(map(str.isalpha, text)):
        leave(text, "a name, not a text for people")
    return is_for_people


def translated_json(document: str, translate: Translate) -> str:
    """Return a JSON document with its texts translated, but for names and metadata.

    Raises DocumentError if it is not JSON.
    """
    try:
        tree = json.loads(document.removeprefix("\ufeff"), object_pairs_hook=_Object)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"this is not JSON: {error}") from None
    strings = [match for match in _STRING.finditer(document) if not match["colon"]]
    texts = [json.loads(match.group()) for match in strings]
    are_metadata = list(_metadata(tree))
    prose = [i for i, text in enumerate(texts) if not are_metadata[i] and _is_translated(text)]
    translations = translated_texts([texts[i] for i in prose], translate)
    is_ascii = document.isascii() and "\\u" in document
    return splice(
        document,
        [
            (*strings[i].span(), json.dumps(translation, ensure_ascii=is_ascii or _has_surrogates(translation)))
            for i, translation in zip(prose, translations, strict=True)
            if translation != texts[i]
        ],
    )


class _Object(list[tuple[str, Any]]):
    """The keys and values of an object, in the order of the document."""


def _metadata(tree: Any) -> Iterator[bool]:
    """Yield of each text of a JSON document, in order, whether it is metadata of an application resource bundle (.arb).

    It is metadata behind a key that begins with @@, or with @ and the key of a text beside it.
    """
    waiting = [(tree, False)]
    while waiting:
        value, is_metadata = waiting.pop()
        if isinstance(value, str):
            yield is_metadata
        elif isinstance(value, _Object):
            keys = {f"@{key}" for key, _ in value}
            waiting += [(one, is_metadata or key.startswith("@@") or key in keys) for key, one in reversed(value)]
        elif isinstance(value, list):
            waiting += [(one, is_metadata) for one in reversed(value)]


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def translated_yaml(document: str, translate: Translate) -> str:
    """Return a YAML document with its texts translated, but for names. Raises DocumentError if it is not YAML."""
    import yaml  # noqa: PLC0415 - only when it is needed

    try:
        scalars = list(_scalars(document))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise DocumentError(f"this is not YAML: {' '.join(str(error).split())}") from None
    prose = [scalar for scalar in scalars if _is_translated(scalar.value)]
    texts = [
        _block(document[scalar.start : scalar.end], scalar.style) if scalar.is_block else scalar.value
        for scalar in prose
    ]
    changes = []
    for scalar, text, translation in zip(prose, texts, translated_texts(texts, translate), strict=True):
        if translation != text:
            # The header of a block, with its comment, stays.
            raw = document[scalar.start : scalar.end]
            header = raw.splitlines(keepends=True)[0] if scalar.is_block else ""
            changes.append((scalar.start + len(header), scalar.end, _scalar(translation, scalar.style)))
    return splice(document, changes)


class _Scalar(NamedTuple):
    """A text of a YAML document, and where it is."""

    value: str
    style: str
    """Its first sign: a quotation mark, that of a block, or nothing"""
    start: int
    end: int

    @property
    def is_block(self) -> bool:
        """Whether it has a header, and lines of its own."""
        return self.style in ("|", ">")


def _scalars(document: str) -> Iterator[_Scalar]:
    """Yield the scalars of a document that are texts and no keys, each once, however often it is referred to."""
    import yaml  # noqa: PLC0415

    # A node begins with its anchor; the token of its text has the same end.
    tokens = yaml.scan(document, Loader=yaml.SafeLoader)
    starts = {token.end_mark.index: token.start_mark.index for token in tokens if isinstance(token, yaml.ScalarToken)}
    seen: set[int] = set()
    for root in yaml.compose_all(document, Loader=yaml.SafeLoader):
        waiting = [root]
        while waiting:
            node: Any = waiting.pop()
            if node is None or id(node) in seen:
                continue
            seen.add(id(node))
            if not node.tag.startswith(_STANDARD_TAG) or "/" in node.tag:
                continue  # it is of a program
            if isinstance(node, yaml.MappingNode):
                seen.update(id(key) for key, _ in node.value)  # also where it is a value, too
                waiting += [value for _, value in reversed(node.value)]
            elif isinstance(node, yaml.SequenceNode):
                waiting += reversed(node.value)
            elif node.tag == f"{_STANDARD_TAG}str":
                end = node.end_mark.index
                yield _Scalar(node.value, node.style or "", starts.get(end, end), end)


def _block(raw: str, style: str) -> str:
    """Return the text of a block without its header, with each paragraph of a folded block in one line."""
    pieces: list[str] = []
    for line in raw.splitlines(keepends=True)[1:]:
        is_new = style == "|" or not pieces or not line.strip() or not pieces[-1].strip()
        if is_new or _indent(line) != _indent(pieces[-1]):
            pieces.append(line)
        else:
            pieces[-1] = f"{pieces[-1].rstrip()} {line.lstrip(' ')}"
    return "".join(pieces)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _scalar(text: str, style: str) -> str:
    """Return a text in a style of YAML."""
    if style in ("|", ">"):
        return text
    if style == "'" and "\n" not in text:
        return "'" + text.replace("'", "''") + "'"
    if not style and _PLAIN_YAML.fullmatch(text) and text == text.strip() and text.lower() not in _WORDS_OF_YAML:
        return text
    return json.dumps(text, ensure_ascii=False)
