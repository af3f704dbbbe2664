"""What words consist of, in any script."""

import unicodedata

# Accents and vowels that are written as marks of their own, as in Hindi and in pointed Arabic: parts of words
MARKS = "".join(sign for sign in map(chr, range(0x300, 0x3100)) if unicodedata.category(sign)[0] == "M")

# Patterns for `re`: a letter or mark; as many as follow each other; and a letter, mark, digit or underscore
LETTER = rf"(?:[^\W\d_]|[{MARKS}])"
LETTERS = rf"(?:[^\W\d_]++|[{MARKS}]++)++"
IN_WORD = rf"[\w{MARKS}]"
