"""Sentence pairs, clean and leak-free: read, put through the rules, divided into train, valid and test, reported.

`load_corpus` is the whole of it. Reading is readers.py's, the rules are cleaning.py's. Here parts that are missing are
made (`split`), and training gives up what validation or test also hold (`without_leaks`). Lengths in tokens are not
known here: dataset.py drops what is too long.
"""

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cleaning import Cleaner, Rule
from config import Config
from readers import PARTS, DataError, Pair, read_parts

DEMO = Path(__file__).parent / "demo"


@dataclass
class Corpus:
    """The pairs of the three parts, source side first, and what was done to them."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]
    read: int
    rules: list[Rule]
    notes: list[str] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        """The counts and examples, for metrics.json."""
        return {
            "read": self.read,
            "rules": {rule.name: {"pairs": rule.count, "examples": rule.examples} for rule in self.rules},
            "notes": self.notes,
            "train": len(self.train),
            "valid": len(self.valid),
            "test": len(self.test),
        }


def load_corpus(config: Config) -> Corpus:
    """Reads, cleans and splits `config.data`. Raises DataError, in words, where that cannot be done."""
    read = 0

    def counted(pairs: Iterable[Pair]) -> Iterator[Pair]:
        nonlocal read
        for pair in pairs:
            read += 1
            yield pair

    cleaner = Cleaner(config.source, config.target, config.skip_rules)
    given = read_parts(str(DEMO) if config.data == "demo" else config.data, config.source, config.target)
    parts = {name: list(cleaner.repaired(counted(pairs))) for name, pairs in given.items() if name != "train"}
    parts["train"] = list(cleaner.thinned(cleaner.repaired(counted(given["train"]))))
    parts = split(parts, config.valid_share, config.test_share)
    if leak := cleaner.rules.get("held-out"):
        parts["train"] = list(without_leaks(parts["train"], parts["valid"] + parts["test"], leak))
    for name in ("train", "valid"):
        if not parts[name]:
            raise DataError(f"--data {config.data}: no pairs in the {name} part, of {read:,} rows read")
    rules = list(cleaner.rules.values())
    return Corpus(parts["train"], parts["valid"], parts["test"], read, rules, cleaner.notes)


def normalize(text: str) -> str:
    """What texts are compared by when looking for leaks: letters and digits, without case, accents or form."""
    decomposed = unicodedata.normalize("NFKD", text).casefold()
    letters = "".join(c for c in decomposed if c.isalnum())
    return letters or decomposed  # a text of signs alone is compared as it is


def split(parts: dict[str, list[Pair]], valid_share: float, test_share: float) -> dict[str, list[Pair]]:
    """Train, valid and test, the missing ones taken out of train by a hash of the normalized pair.

    The same pair falls on the same side for ever: on every machine, in either direction, after the data has grown.
    """
    made: dict[str, list[Pair]] = {name: list(parts.get(name, [])) for name in PARTS}
    shares = {name: share for name, share in (("valid", valid_share), ("test", test_share)) if name not in parts}
    made["train"] = []
    for pair in parts["train"]:
        digest = hashlib.sha256("\n".join(sorted(map(normalize, pair))).encode("utf-8", "surrogatepass")).digest()
        draw = int.from_bytes(digest[:8], "big") / 2**64
        for name, share in shares.items():
            if draw < share:
                made[name].append(pair)
                break
            draw -= share
        else:
            made["train"].append(pair)
    return made


def without_leaks(train: list[Pair], held_out: list[Pair], leak: Rule) -> Iterator[Pair]:
    """The training pairs of which neither side occurs in a pair held out."""
    sources = {normalize(source) for source, _ in held_out}
    targets = {normalize(target) for _, target in held_out}
    for pair in train:
        if normalize(pair[0]) in sources or normalize(pair[1]) in targets:
            leak.add(pair)
        else:
            yield pair
