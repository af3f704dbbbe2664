"""How often the rule wrong-language drops a side that is in its own language, and how often one in a third language.

    python benchmarks/third_language.py                        the messages of the programs that are installed
    python benchmarks/third_language.py --foreign valid.de     also: how many lines of a file are in neither language

The messages are translations into many languages, from the catalogues in /usr/share/locale: up to 1,500 of a language,
of 4 to 30 words, without placeholders. Each is judged as a side of a pair with English. Those of a few words, with
names of programs, are hard.
"""

import gettext
import re
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import tyro

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from pairs.cleaning import is_clearly_other, scorer_of_all, words_alone  # noqa: E402
from tapis.text.lines import lines  # noqa: E402

MESSAGES, FEWEST = 1500, 150  # of a language
PLACEHOLDER = re.compile(r"[%{}<>_\\|=/@&\n]|--")


@dataclass(frozen=True)
class Options:
    """Judge the rule wrong-language by the messages of programs."""

    foreign: tuple[Path, ...] = ()
    """Files of sentences that are neither in English nor in French"""


def messages() -> dict[str, list[str]]:
    """Return the translated messages by language."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for file in sorted(Path("/usr/share/locale").glob("*/LC_MESSAGES/*.mo")):
        locale = file.parts[4]
        try:
            with file.open("rb") as opened:
                catalogue = vars(gettext.GNUTranslations(opened))["_catalog"]
        except (OSError, UnicodeError, LookupError, ValueError):  # some are not what they say
            continue
        for source, text in catalogue.items():
            is_translated = isinstance(source, str) and isinstance(text, str) and source and text != source
            if is_translated and "@" not in locale and not PLACEHOLDER.search(text) and 4 <= len(text.split()) <= 30:
                found[re.split("[_.]", locale)[0]][text] = None
    return {language: list(texts)[:MESSAGES] for language, texts in found.items() if len(texts) >= FEWEST}


def main() -> None:
    options = tyro.cli(Options)
    scorer = scorer_of_all()
    english = scorer.labels.index("en")
    rows = []
    for language, texts in messages().items():
        if language in scorer.labels and language != "en":
            words = list(map(words_alone, texts))
            scores = scorer.scores(words)
            is_dropped = is_clearly_other(words, scores, [english, scorer.labels.index(language)])
            taken_for = Counter(scorer.labels[best] for best in scores[is_dropped].argmax(axis=1))
            rows.append((is_dropped.mean(), language, len(texts), taken_for))
    print("dropped, of messages in")
    for share, language, n, taken_for in sorted(rows, key=lambda row: -row[0]):
        print(f"{share:>7.2%}  {language:<4} {n:>6,}  {', '.join(name for name, _ in taken_for.most_common(3))}")
    for file in options.foreign:
        words = list(map(words_alone, lines(file)))
        is_dropped = is_clearly_other(words, scorer.scores(words), [english, scorer.labels.index("fr")])
        print(f"{is_dropped.mean():>7.2%}  of the lines of {file}")


if __name__ == "__main__":
    main()
