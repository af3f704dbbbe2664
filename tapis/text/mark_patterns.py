"""What is carried over as it is, as patterns: markup, links, addresses, placeholders, codes, pictographs, numbers."""

import re
from functools import cache

from tapis.text.markup import Markup

# Within brackets
DASHES = r"\u2010-\u2013-"
# A number that must not change: of two digits or more, with its separators, such as the dash of a range. A single digit
# may become a word. Separators are also those of Arabic, and an apostrophe or a space before groups of three digits.
# Before the first group are one to three digits: 1 000. These digits must not be the end of a longer number: 2020 100
# are two. But 000 is always a group, as in the scale of a map: 1:25 000.
_NO_NUMBER_BEFORE = r"(?<!\d)(?<!\d[.,:/\u066b\u066c])"
_BEHIND_GROUP = "|".join(rf"(?<={_NO_NUMBER_BEFORE}\d{{{n}}})" for n in (1, 2, 3))
_SEPARATOR = (
    rf"(?:[.,:/\u066b\u066c\u00a0\u2009\u202f{DASHES}]"
    rf"|(?:{_BEHIND_GROUP})[ '’](?=\d{{3}}(?!\d))|[ '’](?=000(?!\d)))"
)
NUMBER = rf"\d(?:{_SEPARATOR}?\d)++"

# The end of a keycap, such as 1️⃣
_KEYCAP = r"\ufe0f?\u20e3"
# Pictographs, with their modifiers and joiners, flags and keycaps. Some are signs of text unless U+FE0F follows: ©️
_PICTOGRAPH = (
    r"(?:(?:[\u231a\u231b\u23e9-\u23fa\u25b6\u25c0\u25fd\u25fe\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]"
    r"|[©®\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u2328\u23cf\u24c2\u25aa\u25ab\u25fb\u25fc\u2934\u2935"
    rf"\u3030\u303d\u3297\u3299](?=\ufe0f)|[0-9#*](?={_KEYCAP}))"
    r"[\ufe0f\u200d\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*+)++"
)
# Letters that may be directly beside a mark: of scripts without spaces between words, and of Korean, whose particles
# follow a word without one. Within brackets: Thai to Burmese, Khmer, Korean, Chinese and Japanese
BESIDE_MARKS = (
    r"\u0e00-\u109f\u1780-\u17ff\u1100-\u11ff\uac00-\ud7ff\u2e80-\ua4cf\uf900-\ufaff\uff66-\uffdc"
    r"\U00020000-\U0003ffff"
)
_SPACED = rf"[^\W{BESIDE_MARKS}]"  # any other letter, a digit or an underscore
_STARTS = rf"(?<!{_SPACED})"
_ENDS = rf"(?!{_SPACED})"
_EDGE = _STARTS + r"(?<![@#$%&./:-])"  # where something of its own can begin
# Where a link can begin that has such letters itself: in a text with spaces
_STARTS_BEHIND_SPACE = rf"(?<![{BESIDE_MARKS}\uff01-\uff65]\s)(?<![^\s(])"
_OF_LINK = r"[^\s<>\"«»()\[\]*\u3000-\u303f\uff01-\uff65]"

# A placeholder of i18next: __name__. In Markdown, these are the signs of bold text.
_UNDERSCORED = rf"{_STARTS}__[A-Za-z0-9](?:\w{{0,100}}[A-Za-z0-9])?__{_ENDS}"


def _balanced(depth: int) -> str:
    """Return a pattern of text with braces in pairs, so deep within each other."""
    inner = r"[^{}]{0,500}+"
    for _ in range(depth):
        inner = rf"(?:[^{{}}]{{1,500}}+|\{{{inner}\}}){{0,1000}}+"
    return inner


# A message of ICU: {n, plural, one {# cat} other {# cats}}
MESSAGE = (
    r"\{\s{0,50}+\w{1,100}+\s{0,50}+,\s{0,50}+(?:plural|select|selectordinal)\s{0,50}+,"
    rf"{_balanced(4)}\}}"
)

# A placeholder of Laravel and others, in the texts of programs. Elsewhere, it may be a word: Note :so
_NAME_BEHIND_COLON = rf"{_STARTS}(?<![:/]):[a-z_]{_SPACED}{{0,50}}+{_ENDS}(?![:/])"
# What formats an argument of a message: {n, number}, {day, date, short}
_FORMATS = "number|date|time|spellout|ordinal|duration|list"
# How a placeholder of printf ends: in C, Go, Python, Objective-C
_CONVERSION = r"(?:hh|h|ll|l|L|q|j|z|t|I64|I32)?[diouxXeEfFgGaAcCsSpn@vqTtU]" + _ENDS

_PLACEHOLDERS = (
    r"\{\\[^{}]*+\}",  # of subtitles: {\an8}
    MESSAGE,
    rf"\{{\s?\w{{1,100}}+\s?,\s?(?:{_FORMATS})\s?(?:,{_balanced(1)})?\}}",
    r"\{\{\{?[^{}\n]{0,1000}+\}\}\}?|\{%[^{}%\n]{0,1000}+%\}",  # of templates
    r"<%[^<>%\n]{0,1000}+%>|<\?[^<>?\n]{0,1000}+\?>",
    r"\[\[[^\[\]\n]{1,100}+\]\]|@@\w{1,100}+@@",
    r"[%#$@]\{[^{}\n]{1,100}+\}",  # %{name}, #{x + 1}, ${x}
    r"\{ ?[\w.:$\[\]!@,+#<>-]{0,100}+ ?\}",  # {0}, {user.name!r:>10}, { $count }
    r"(?<!\S)#(?!\S)",  # the number of a message
    r"%(?:\(\w{1,100}+\)|\d{1,3}+\$)?[-+#0']{0,5}+(?:\d{1,4}+|\*)?(?:\.(?:\d{1,4}+|\*))?"  # of printf
    rf"{_CONVERSION}|%%",
    r"%[-+#0']{0,5}+\d{0,4}+(?:\.\d{1,4}+)?<PRI\w{1,20}+>",  # of C, in gettext
    rf"(?<!\d)(?<!\d[ \u00a0\u202f])%<\w{{1,100}}+>[-+#0']{{0,5}}+\d{{0,4}}+(?:\.\d{{1,4}}+)?{_CONVERSION}",  # of Ruby
    rf"{_STARTS}(?<!%)%[A-Za-z_][\w.]{{0,100}}+%{_ENDS}",  # %name%
    rf"{_STARTS}(?<!%)%L?\d{{1,2}}+{_ENDS}(?!%)",  # of Qt
    rf"\$t\([^()\n]{{1,100}}+\)|{_STARTS}@:(?:(?:{_SPACED}|\.){{1,100}}+|\([^()\n]{{1,100}}+\))",  # other messages
    rf"{_STARTS}(?<![:/]):[a-z]\w{{0,50}}+:{_ENDS}(?!/)",  # :smile:
    r"</?\d{1,3}+\s?/?>",  # <1/>, and others without a partner
    r"(?<!\w)[A-Za-z]:\\[^\s<>\"]++|(?<![\w\\])\\\\[^\s<>\"\\]++\\[^\s<>\"]*+",  # paths of Windows
    r"\\[nrt]",  # the end of a line, or a tab, written out
    rf"{_EDGE}\$[A-Za-z_]{_SPACED}*+",
)

# Each pattern takes time in proportion to the text: no part of it is tried from every place in a long run.
_THINGS = (
    # A link does not end in punctuation, has parentheses in pairs, and does not go on where one of Markdown ends. It
    # has letters of scripts without spaces only between spaces: otherwise these are of the text behind it.
    rf"{_STARTS_BEHIND_SPACE}(?:https?://|ftp://|www\.){_OF_LINK}+(?:\({_OF_LINK}*\){_OF_LINK}*)*"
    r"(?<![.,;:!?'_])(?=[.,;:!?)\"']*(?:\s|\Z))",
    rf"{_EDGE}(?:https?://|ftp://|www\.)(?:[^\s<>\"«»()\]\uff01-\uff65{BESIDE_MARKS}]|\](?![(\[])|\([^\s<>\"«»()]*\))*"
    rf"(?:[^\s<>\"«».,;:!?'()\[\]*_\uff01-\uff65{BESIDE_MARKS}]|\([^\s<>\"«»()]*\))",
    rf"{_STARTS}(?<![.+-])(?:{_SPACED}++|[.+-]++)++@(?:{_SPACED}++|-++)++(?:\.(?:{_SPACED}++|-++)++)++",
    *_PLACEHOLDERS,
    r"&(?:\w++|#\w++);",  # entities of HTML
    rf"{_EDGE}@{_SPACED}++|(?<!\w){_EDGE}[#@]\w++",
    rf"{_EDGE}v\d++(?:\.\d++)*+{_ENDS}",  # versions
    rf"{_EDGE}(?=[A-Za-z0-9_-]{{0,40}}\d)(?=[A-Za-z0-9_-]{{0,40}}[A-Z])"  # codes
    rf"[A-Za-z0-9]++(?:[-_][A-Za-z0-9]++)*+{_ENDS}",
    _PICTOGRAPH,
)
# Of Markdown: code between one, two or three signs, and footnotes
CODE = "|".join(rf"(?<!`)`{{{n}}}(?!`)(?:[^`\n]++|(?!`{{{n}}}(?!`))`++)++`{{{n}}}(?!`)" for n in (1, 2, 3))
_FOOTNOTE = r"\[\^[\w-]++\]"
# Where a link of Markdown leads: (address), (address "title") or [reference]
_TARGET = r"""(?:\((?:<[^<>\n]*+>|(?:[^()\s]|\([^()\s]*+\))*+)(?:[ ](?:"[^"\n]*+"|'[^'\n]*+'))?\)|\[[^\[\]\n]++\])"""
# Attributes of a link, a picture or a heading of Markdown: {: #name .class key="value" }
_VALUE = r"""(?:"[^"\n]{0,300}+"|'[^'\n]{0,300}+'|[^\s"'{}]{1,300}+)"""
_ATTRIBUTE = rf"(?:[.#][\w:-]{{1,100}}+|[\w:-]{{1,100}}+={_VALUE})"
_ATTRIBUTE_LIST = rf"\{{:?[ ]?{_ATTRIBUTE}(?:[ ](?:{_ATTRIBUTE}|[\w-]{{1,100}}+)){{0,20}}+[ ]?\}}"


def _link_text(depth: int) -> str:
    """Return a pattern of the text of a link, with brackets in pairs so deep within each other, such as images."""
    inner = r"(?:\\.|[^\[\]\\\n])*+"
    for _ in range(depth):
        inner = rf"(?:\\.|[^\[\]\\\n]|\[{inner}\])*+"
    return inner


ATTRIBUTES = r"""(?:[^<>"']|"[^"<]*+"|'[^'<]*+')*+"""
# The rest of an escaped tag, such as &lt;a href="x"&gt;. Without values, it may be text: &lt;your name&gt;
_ESCAPED_QUOTES = ("&quot;", "&#34;", "&#39;", "&apos;")
_ESCAPED_VALUE = (
    r"""(?:"[^"<>]{0,500}"|'[^'<>]{0,500}'|"""
    + "|".join(rf"{quote}(?:[^<>&]|&(?!lt;|gt;|{quote[1:]})){{0,500}}+{quote}" for quote in _ESCAPED_QUOTES)
    + r"""|[^\s<>&"']{1,500})"""
)
_ESCAPED_NAME = r"\s{1,9}+[\w:-]{1,50}+"
_IN_ESCAPED_TAG = (
    rf"[\w:-]{{0,30}}+(?:{_ESCAPED_NAME}\s?=\s?{_ESCAPED_VALUE}"
    rf"(?:{_ESCAPED_NAME}(?:\s?=\s?{_ESCAPED_VALUE})?){{0,20}}+)?+\s?"
)
_NAMES_OF_BBCODE = "b|i|u|s|url|img|quote|code|size|color|font|center|list|spoiler"
_OPENING_TAG = (
    rf"<[A-Za-z]{ATTRIBUTES}(?<!/)>|<\d{{1,3}}+>"  # <0> is of translations of React
    rf"|(?<!&lt;)&lt;[A-Za-z]{_IN_ESCAPED_TAG}&gt;"  # of a page within XML or a page
    rf"|\[(?P<bbcode>{_NAMES_OF_BBCODE})(?:=[^\[\]\n]{{1,200}}+)?\](?!\()(?=[^\n]{{0,500}}?\[/(?P=bbcode)\])"
)
_CLOSING_TAG = rf"</[A-Za-z][^<>]*+>|</\d{{1,3}}+>|&lt;/[A-Za-z]{_IN_ESCAPED_TAG}&gt;|\[/(?:{_NAMES_OF_BBCODE})\]"
# Elements that are kept whole
KEPT = (
    rf"<(?P<name>(?i:code|kbd|samp|var|sub|sup))\b{ATTRIBUTES}(?<!/)>"
    r"(?:[^<]++|<(?!/?(?i:(?P=name))\b))*+</(?i:(?P=name))>"
)
# A comment is read as far as it ends or another one begins.
_COMMENT = r"<!--(?:[^<-]++|-(?!->)|<(?!!--))*+-->"
_OTHER_TAG = rf"<[A-Za-z]{ATTRIBUTES}(?<=/)>|{_COMMENT}|(?<!&lt;)&lt;[A-Za-z]{_IN_ESCAPED_TAG}/&gt;"
# Emphasis of Markdown, not within a word: 2*3, snake_case. Other signs may be beside it: **_so_**
_EMPHASIS = rf"(?:\*{{1,3}}+|_{{1,3}}+|~~)(?!{_KEYCAP})"
# A sign that is none of Markdown. A name such as snake\_case is kept whole; in don\'t, the sign is part of the word.
_ESCAPED = r"(?<!\w)[^\W_]++(?:\\_[^\W_]++)++|(?!(?<=\w)\\'\w)\\[!-/:-@\[-`{-~]"
# Braces or brackets around a tag that has its partner elsewhere
_AROUND_TAG = r"(?:\[\[|[%#$@]?\{[{%]{0,2}+)[^{}\[\]\n]{0,1000}<[/A-Za-z]"
# An amount of money or a measure, which may have one digit; a telephone number; any number of two digits or more
CURRENCIES = "$€£¥₹₩₽₺₴₪₫฿¢＄￥￡￠￦"
_DIGITS = rf"\d(?:{_SEPARATOR}?\d)*+"
TELEPHONE = r"\+\d{1,3}+(?:[ \u00a0\u202f.-]\(?\d{1,4}+\)?){2,8}+"
_NUMBER = (
    rf"{_STARTS}(?:{TELEPHONE}|[~≈≥≤±×<>=]?[-+]?(?:[{CURRENCIES}][ \u00a0\u2009\u202f]?{_DIGITS}"
    rf"|{_DIGITS}[ \u00a0\u2009\u202f]?[{CURRENCIES}%‰°][CFK]?{_ENDS}|{NUMBER})(?:{_SPACED}|[%°])*+)"
)


def _marks(markup: Markup) -> str:
    """Return the pattern of all marks but numbers. A page has none of Markdown, where __name__ is bold text."""
    of_markdown = markup != "html"
    not_underscored, underscored = ("", "") if markup == "markdown" else (f"(?!{_UNDERSCORED})", f"{_UNDERSCORED}|")
    opening = _OPENING_TAG + (
        f"|!?\\[(?!/(?:{_NAMES_OF_BBCODE})\\])(?={_link_text(2)}\\]{_TARGET})" if of_markdown else ""
    )
    attributes = f"(?:{_ATTRIBUTE_LIST})?+" if markup == "markdown" else ""
    closing = _CLOSING_TAG + (f"|\\]{_TARGET}{attributes}" if of_markdown else "")
    emphasis = f"(?<!\\w){not_underscored}{_EMPHASIS}(?=[*_~]{{0,9}}[^\\s*_~])|(?<=\\S){_EMPHASIS}(?![*_~]{{0,9}}\\w)"
    things = "|".join(_THINGS)
    if of_markdown:
        things = f"{CODE}|{_FOOTNOTE}|{things}"
    if markup == "strings":
        things = f"{_NAME_BEHIND_COLON}|{things}"
    elif markup:
        things = f"(?!{_AROUND_TAG})(?:{things})"
    if markup == "markdown":
        things = f"{_ESCAPED}|{_ATTRIBUTE_LIST}|{things}"
    return (
        f"(?P<kept>{KEPT})|(?P<open>{opening})|(?P<close>{closing})"
        + (f"|(?P<emphasis>{emphasis})" if of_markdown else "")
        + f"|(?P<thing>{_OTHER_TAG}|{underscored}{things})"
    )


@cache
def marks(markup: Markup, *, with_numbers: bool) -> re.Pattern[str]:
    """Return the pattern of the marks in a text of this markup, and of numbers if wanted."""
    pattern = _marks(markup)
    return re.compile(f"{pattern}|(?P<number>{_NUMBER})" if with_numbers else pattern)


# Letters, spaces, and punctuation that no mark begins with; an address may be of these alone
_PLAIN = re.compile(r"(?:[^\W\d_]++|[ .,;!?'’\"()–—-]++)*+")


def is_plain(line: str) -> bool:
    """Return whether a line has no marks, as a glance shows. Most lines are plain; the others may have marks."""
    return _PLAIN.fullmatch(line) is not None and "www." not in line
