"""What is carried over as it is, as patterns: markup, links, addresses, placeholders, codes, pictographs, numbers."""

import re

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
MARK = re.compile(
    f"(?P<kept>{_KEPT})|(?P<open>{_OPENING_TAG}|!?\\[(?=[^\\[\\]\\n]++\\]{_TARGET}))"
    f"|(?P<close>{_CLOSING_TAG}|\\]{_TARGET})"
    f"|(?P<emphasis>(?<![\\w*_~]){_EMPHASIS}(?!\\s)|(?<=\\S){_EMPHASIS}(?![\\w*_~]))"
    f"|(?P<thing>{_OTHER_TAG}|{'|'.join(_THINGS)})"
)
MARK_OR_NUMBER = re.compile(f"{MARK.pattern}|(?P<number>(?<!\\w)[-+]?[$€£¥]?{NUMBER}[\\w%°]*+)")
