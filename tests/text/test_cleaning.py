"""Each rule alone, on what it is for and on what it must leave alone; and the swapped columns at scale."""

import json
import random
from collections import Counter

import pytest
from conftest import SHARED, needs_shared

from config import RuleName
from text.cleaning import RULES, Cleaner, is_heading, repair
from text.corpus import Corpus
from text.readers import Pair, read_parts


def cleaned(
    pairs: list[Pair], *skip: RuleName, languages: tuple[str, str] = ("en", "fr")
) -> tuple[list[Pair], dict[str, int]]:
    cleaner = Cleaner(*languages, skip, sample=pairs)
    verdicts = [cleaner.judge(pair) for pair in pairs]
    counts: Counter[str] = Counter(verdict.dropped for verdict in verdicts if verdict.dropped)
    counts["unicode"] = sum(verdict.repaired for verdict in verdicts)
    counts["swapped-columns"] = sum(verdict.swapped for verdict in verdicts)
    return [verdict.pair for verdict in verdicts if verdict.dropped is None], dict(+counts)


GOOD = [
    ("The cat is sleeping on the bed.", "Le chat dort sur le lit."),
    ("Yes.", "Oui."),
    ("It is 5 o'clock", "Il est 5 h"),
]


def test_good_pairs_stay_as_they_are() -> None:
    assert cleaned(GOOD) == (GOOD, {})


@pytest.mark.parametrize(
    ("raw", "good"),
    [
        ("it\x92s \x93good\x94\x85", "it’s “good”…"),
        ("e\u0301te\u0301", "été"),
        ("a\u00a0b\u202fc\u2009d\u3000e", "a b c d e"),
        ("  a \t b\n", "a b"),
        ("co\u00adop\u200berate\ufeff", "cooperate"),
        (
            "\u06a9\u062a\u0627\u0628\u200c\u0647\u0627 👩\u200d🚀",
            "\u06a9\u062a\u0627\u0628\u200c\u0647\u0627 👩\u200d🚀",
        ),
        ("x\x81y\x90", "xy"),
        ("— “plain” text, 1½", "— “plain” text, 1½"),
    ],
)
def test_unicode(raw: str, good: str) -> None:
    assert repair(raw) == good
    assert repair(good) == good


def test_every_rule_counts_what_it_meets() -> None:
    bad: dict[RuleName, Pair] = {
        "unicode": ("The dog\x92s bed is red.", "Le lit du chien est rouge."),
        "empty-side": ("", "Rien."),
        "identical-sides": ("Alain-Fournier", "Alain-Fournier"),
        "headings": ("XVII", "CHAPITRE XVII"),
        "swapped-columns": ("Le roi mange une pomme.", "The king eats an apple."),
        "wrong-language": ("He went to the market in the morning.", "He bought some bread and went home again."),
        "length-ratio": ("No, and that is the end of the story which I wanted to tell you all this evening.", "Non !"),
    }
    kept, counts = cleaned(GOOD + list(bad.values()))
    assert counts == dict.fromkeys(bad, 1)
    repaired = [("The dog’s bed is red.", bad["unicode"][1]), bad["swapped-columns"][::-1]]
    assert kept == GOOD + repaired
    for name in bad:
        assert name not in cleaned(GOOD + list(bad.values()), name)[1], "a rule that is off does nothing"
    assert set(RULES) == {*bad, "duplicates", "held-out"}


@pytest.mark.parametrize(
    "pair",
    [
        ("Source: http://www.gutenberg.org", "Source: Project GutenbergAudiobook available here"),
        ("Chapter 3", "III"),
        ("I", "CHAPITRE PREMIER"),
        ("<h1>IV</h1>", "4."),
        ("CAPITOLO X", "Chapter X."),
    ],
)
def test_headings(pair: Pair) -> None:
    assert is_heading(pair)


@pytest.mark.parametrize(
    "pair", [("I see.", "Je vois."), ("Mix it.", "Mixe."), ("The source: a river", "La source"), ("Part of it", "I")]
)
def test_no_headings(pair: Pair) -> None:
    assert not is_heading(pair)


def test_the_length_ratio_is_the_corpuss_own() -> None:
    """Chinese has a third of the characters of English; that is no fault of any pair."""
    pairs = [(f"This is the sentence of the number {i}, no more.", f"這是第{i}句") for i in range(50)]
    odd = ("So short.", "這是一個很長的句子，其中有很多很多的字，而另一邊卻什麼都沒有說，這是不對的。")
    kept, counts = cleaned([*pairs, odd], languages=("en", "zh"))
    assert kept == pairs and counts == {"length-ratio": 1}


def test_a_language_that_is_not_known_is_said() -> None:
    cleaner = Cleaner("en", "tlh")
    assert cleaner.notes == ["swapped-columns and wrong-language left out: en or tlh not identifiable"]
    pair = ("Le roi mange une pomme.", "The king eats an apple.")
    assert cleaner.judge(pair).pair == pair


def swapped_at_random(pairs: list[Pair]) -> tuple[list[Pair], list[bool]]:
    draw = random.Random(8)
    swapped = [draw.random() < 0.08 for _ in pairs]
    return [pair[::-1] if swap else pair for pair, swap in zip(pairs, swapped, strict=True)], swapped


def rates(pairs: list[Pair], languages: tuple[str, str] = ("en", "fr")) -> tuple[float, float]:
    """The shares of swapped pairs put right, and of good pairs touched, where 8 in 100 are swapped."""
    mixed, swapped = swapped_at_random(pairs)
    cleaner = Cleaner(*languages, [name for name in RULES if name != "swapped-columns"])
    touched = [cleaner.judge(pair).swapped for pair in mixed]
    right = sum(t and s for t, s in zip(touched, swapped, strict=True)) / sum(swapped)
    wrong = sum(t and not s for t, s in zip(touched, swapped, strict=True)) / (len(swapped) - sum(swapped))
    return right, wrong


def test_swapped_columns_of_the_demo(demo: Corpus) -> None:
    assert rates(list(demo.train)) == (1.0, 0.0)


@needs_shared("tatoeba")
def test_swapped_columns_of_tatoeba() -> None:
    right, wrong = rates(list(read_parts(str(SHARED / "tatoeba"), "en", "fr")["train"].pairs)[:20_000])
    assert right >= 0.98 and wrong <= 0.002


@pytest.mark.slow
@needs_shared("opus_books")
def test_swapped_columns_of_opus_books() -> None:
    """Whole works of the double are swapped, and known; identical sides cannot be told and do not count."""
    import pyarrow.parquet as pq

    truth = json.loads((SHARED / "opus_books_truth.json").read_text(encoding="utf-8"))
    for pair in ("en-fr", "en-it"):
        rows = pq.read_table(SHARED / "opus_books" / pair / "train-00000-of-00001.parquet").to_pylist()
        source, target = pair.split("-")
        cleaner = Cleaner(source, target)
        known, authentic = set(truth[pair]["swapped_works"]), set(truth[pair]["authentic"])
        right = good = touched = count = 0
        for row in rows:
            raw = (repair(row["translation"][source] or ""), repair(row["translation"][target] or ""))
            if row["id"] in authentic or raw[0] == raw[1] or not all(raw):
                continue
            turned = cleaner.judge(raw).swapped
            if row["id"] in known:
                count, right = count + 1, right + turned
            else:
                good, touched = good + 1, touched + turned
        assert right >= 0.98 * count
        assert touched <= 0.002 * good
