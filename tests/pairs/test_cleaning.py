"""Tests of each cleaning rule: what it must repair or drop, what it must leave alone, and swapped columns at scale."""

import functools
import json
import random
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, SHARED, needs_shared, readable
from hypothesis import given, settings
from hypothesis import strategies as st
from timing import takes_less_than

from config import Config, RuleName
from pairs.batches import normalize
from pairs.cleaning import RULES, Cleaner, TextCleaner, is_heading, words_alone
from pairs.corpus import Corpus, load_corpus
from pairs.language_scores import NGRAM_BYTES, SEPARATOR, LanguageScorer
from pairs.readers import read_parts
from tapis.text.languages import foreign_language, language_identifier, repair
from tapis.text.lines import Pair


def clean(
    pairs: list[Pair], *skip: RuleName, languages: tuple[str, str] = ("en", "fr")
) -> tuple[list[Pair], dict[str, int]]:
    """The pairs that the rules keep, and how many pairs each rule changed or dropped."""
    cleaner = Cleaner(*languages, skip, sample=pairs)
    verdicts = cleaner.judge(pairs)
    counts: Counter[str] = Counter(verdict.dropped for verdict in verdicts if verdict.dropped)
    counts["unicode"] = sum(verdict.repaired for verdict in verdicts)
    counts["swapped-columns"] = sum(verdict.swapped for verdict in verdicts)
    return [verdict.pair for verdict in verdicts if verdict.dropped is None], dict(+counts)


GOOD = [
    ("The cat is sleeping on the bed.", "Le chat dort sur le lit."),
    ("Yes.", "Oui."),
    ("It is 5 o'clock", "Il est 5 h"),
]


def test_good_pairs_are_unchanged() -> None:
    assert clean(GOOD) == (GOOD, {})


@pytest.mark.parametrize(
    ("raw", "expected"),
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
        ("\u202bA\u200e cat\ufffd\0 \x1b[1msleeps\u202c.\u2069", "A cat [1msleeps."),
        ("a\x0bb\x0cc\x1fd\x01e\x7f", "a b c de"),
        ("— “plain” text, 1½", "— “plain” text, 1½"),
    ],
)
def test_repair_normalizes_characters_and_is_idempotent(raw: str, expected: str) -> None:
    assert repair(raw) == expected
    assert repair(expected) == expected


@pytest.mark.parametrize("marks", ["\u0315\u0316", "\u0f73\u0316", "\U0001d165\u0316"])
@pytest.mark.parametrize("apply", [repair, normalize])
def test_endless_combining_marks_are_cut_in_linear_time(apply: Callable[[str], str], marks: str) -> None:
    text = "a" + "".join(mark * 50_000 for mark in marks) + "b"
    assert len(apply(text)) <= 100
    assert takes_less_than(0.5, lambda: apply(text))
    few = "a" + "".join(mark * 10 for mark in marks) + "☺️" * 40 + "b"
    assert repair(few) == unicodedata.normalize("NFC", few)


NO_TEXT = sorted({*map(chr, range(32)), *"\x7f\x81\u200e\u200f\u061c\ufffd\ufffc", *map(chr, range(0x202A, 0x202F))})
ISOLATES = list(map(chr, range(0x2066, 0x206A)))


@given(st.text("abé .😀", min_size=1), st.lists(st.sampled_from(NO_TEXT + ISOLATES)), st.randoms())
def test_repair_leaves_nothing_that_is_no_text(text: str, others: list[str], source: random.Random) -> None:
    """What is no text changes nothing but spaces, wherever it is."""
    characters = list(text)
    for other in others:
        characters.insert(source.randrange(len(characters) + 1), other)
    repaired = repair("".join(characters))
    assert not set(repaired) & {*NO_TEXT, *ISOLATES} and repair(repaired) == repaired
    assert repaired.replace(" ", "") == text.replace(" ", "")


def test_each_rule_counts_its_pairs_and_can_be_switched_off() -> None:
    bad: dict[RuleName, Pair] = {
        "unicode": ("The dog\x92s bed is red.", "Le lit du chien est rouge."),
        "empty-side": ("", "Rien."),
        "identical-sides": ("Alain-Fournier", "Alain-Fournier"),
        "headings": ("XVII", "CHAPITRE XVII"),
        "swapped-columns": ("Le roi mange une pomme.", "The king eats an apple."),
        "wrong-language": ("He went to the market in the morning.", "He bought some bread and went home again."),
        "length-ratio": ("No, and that is the end of the story which I wanted to tell you all this evening.", "Non !"),
    }
    kept, counts = clean(GOOD + list(bad.values()))
    assert counts == dict.fromkeys(bad, 1)
    repaired = [("The dog’s bed is red.", bad["unicode"][1]), bad["swapped-columns"][::-1]]
    assert kept == GOOD + repaired
    for name in bad:
        assert name not in clean(GOOD + list(bad.values()), name)[1], "a rule that is switched off does nothing"
    assert set(RULES) == {*bad, "duplicates", "held-out"}


ENGLISH = "The children are playing in the garden behind the house."


@pytest.mark.parametrize(
    ("target", "text", "is_dropped"),
    [
        ("fr", "Die Kinder spielen im Garten hinter dem Haus.", True),
        ("fr", "Lapset leikkivät talon takana olevassa puutarhassa.", True),
        ("de", "Les enfants jouent dans le jardin derrière la maison.", True),
        ("fr", "Дети играют в саду за домом.", True),
        ("fr", "Les enfants jouent dans le jardin derrière la maison.", False),
        ("fr", "Johann Sebastian Bach, Wolfgang Amadeus Mozart", False),
        ("fr", "Tu es un ami.", False),
        # Languages that resemble their neighbours
        ("no", "Barna leker i hagen bak huset.", False),
        ("da", "Børnene leger i haven bag huset.", False),
        ("hr", "Djeca se igraju u vrtu iza kuće.", False),
        ("sr", "Деца се играју у башти иза куће.", False),
        ("id", "Anak-anak bermain di taman di belakang rumah.", False),
        ("gl", "Os nenos xogan no xardín detrás da casa.", False),
        ("sk", "Deti sa hrajú v záhrade za domom.", False),
    ],
)
def test_a_side_in_a_third_language_is_dropped(target: str, text: str, is_dropped: bool) -> None:
    for languages, pair in ((("en", target), (ENGLISH, text)), ((target, "en"), (text, ENGLISH))):
        kept, counts = clean([pair], languages=languages)
        assert (kept, counts) == (([], {"wrong-language": 1}) if is_dropped else ([pair], {})), counts
        assert clean([pair], "wrong-language", languages=languages)[0] == [pair]


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
def test_book_headers_and_chapter_labels_are_headings(pair: Pair) -> None:
    assert is_heading(pair)


@pytest.mark.parametrize(
    "pair", [("I see.", "Je vois."), ("Mix it.", "Mixe."), ("The source: a river", "La source"), ("Part of it", "I")]
)
def test_sentences_that_resemble_headings_are_not_headings(pair: Pair) -> None:
    assert not is_heading(pair)


def test_length_ratio_is_compared_with_the_corpus_median() -> None:
    """Chinese needs a third of the characters of English, so the ratio 1 is not the normal one."""
    pairs = [(f"This is the sentence of the number {i}, no more.", f"這是第{i}句") for i in range(50)]
    outlier = ("So short.", "這是一個很長的句子，其中有很多很多的字，而另一邊卻什麼都沒有說，這是不對的。")
    kept, counts = clean([*pairs, outlier], languages=("en", "zh"))
    assert kept == pairs and counts == {"length-ratio": 1}


@pytest.mark.parametrize("languages", [("en", "tlh"), ("en-GB", "en-US")])
def test_language_rules_are_switched_off_for_languages_that_cannot_be_told_apart(languages: tuple[str, str]) -> None:
    cleaner = Cleaner(*languages)
    source, target = languages
    assert cleaner.notes == [
        f"swapped-columns and wrong-language switched off: py3langid cannot tell {source} from {target}"
    ]
    pair = ("Le roi mange une pomme.", "The king eats an apple.")
    assert cleaner.judge([pair])[0].pair == pair


CROATIAN_AND_BOSNIAN = [
    (f"{name} {is_} u {place} {what}.", f"{name} {is_} u {other_place} {other_what}.")
    for name in ("Ana", "Marko", "Ivan", "Petra", "Luka", "Maja")
    for is_ in ("sjedi", "stoji", "spava", "pjeva", "radi")
    for place, other_place in (("kući", "kući"), ("vlaku", "vozu"), ("gradu", "gradu"))
    for what, other_what in (("danas", "danas"), ("svaki tjedan", "svake sedmice"))
]


def test_language_rules_are_switched_off_for_close_languages() -> None:
    cleaner = Cleaner("hr", "bs")
    assert cleaner.finds_close(CROATIAN_AND_BOSNIAN) and not cleaner.finds_close(CROATIAN_AND_BOSNIAN[:50])
    odd = ("Datoteka nije spremljena.", "Otac čita knjigu u vrtu.")  # each more like the other language
    assert cleaner.judge([odd])[0].swapped
    off = Cleaner("hr", "bs", are_close=True)
    assert off.notes == ["swapped-columns and wrong-language switched off: py3langid hardly tells hr from bs"]
    assert off.judge([odd])[0].pair == odd
    # Swapped pairs and short ones make no languages close, nor do prices, names and pairs of equal sides.
    prices = [(f"{i} EUR", f"EUR {i}") for i in range(600)]
    for pairs in (
        [(fr, en) for en, fr in GOOD] * 60 + GOOD * 60,
        prices + GOOD * 120,
        [("Anna Smith", "Anna Smith")] * 900,
    ):
        assert not Cleaner("en", "fr").finds_close(pairs)


def test_all_parts_have_the_language_rules_or_none(tmp_path: Path) -> None:
    for part, pairs in (("train", CROATIAN_AND_BOSNIAN), ("valid", CROATIAN_AND_BOSNIAN[:20])):
        for language, lines in zip(("hr", "bs"), zip(*pairs, strict=True), strict=True):
            (tmp_path / f"{part}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    config = Config(data=(str(tmp_path),), pairs=("hr-bs",), skip_rules=("held-out",))
    corpus = load_corpus(config)
    assert "hardly tells hr from bs" in corpus.report.notes[0]
    assert "swapped-columns" not in corpus.report.rules and "wrong-language" not in corpus.report.rules
    assert list(corpus.valid) == CROATIAN_AND_BOSNIAN[:20]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Das Wetter ist heute sehr schön.", "de"),
        ("El gato está sentado en la alfombra.", "es"),
        ("مرحبا بالعالم", "ar"),
        ("The weather is nice today.", None),
        ("Il fait beau.", None),
        ("你好吗", "zh"),
        ("OK", None),
        ("Ha ha ha ha ha!", None),
        ("Ха-ха-ха-ха-ха", None),
        ("d41d8cd98f00b204e9800998ecf8427e", None),
        ("🎉🎉🎉🎉🎉🎉🎉🎉", None),
        ("", None),
        ("12 + 34", None),
    ],
)
def test_a_text_in_another_language_is_foreign_if_that_is_clear(text: str, language: str | None) -> None:
    assert foreign_language(text, ["en", "fr"]) == language
    assert foreign_language(text, ["en", "xx"]) is None  # py3langid does not know xx


@needs_shared("tatoeba")
def test_short_sentences_are_not_foreign_to_their_language() -> None:
    for language in ("en", "fr"):
        lines = (SHARED / f"tatoeba/valid.{language}").read_text(encoding="utf-8").splitlines()
        assert not [line for line in lines if foreign_language(line, ["en", "fr"])]


def test_words_have_their_vowel_signs() -> None:
    assert words_alone("हिंदी में, 2020: don't <b>go</b>") == "हिंदी में don't go"


def test_languages_with_regions_have_the_language_rules() -> None:
    cleaner = Cleaner("fr-CA", "en-GB")
    pair = ("Le roi mange une pomme.", "The king eats an apple.")
    assert cleaner.notes == [] and cleaner.judge([pair[::-1]])[0].pair == pair
    text = TextCleaner("fr-CA")
    sentence = "The king eats an apple in the garden of his castle."
    verdicts = text.judge([("", sentence), ("", pair[0])])
    assert text.notes == [] and [verdict.dropped for verdict in verdicts] == ["wrong-language", None]


def swap_rates(pairs: list[Pair], languages: tuple[str, str] = ("en", "fr")) -> tuple[float, float]:
    """Swap 8 % of the pairs. Returns the shares of swapped and of unswapped pairs that the cleaner swaps."""
    draw = random.Random(8)
    was_swapped = [draw.random() < 0.08 for _ in pairs]
    mixed = [pair[::-1] if swap else pair for pair, swap in zip(pairs, was_swapped, strict=True)]

    cleaner = Cleaner(*languages, [name for name in RULES if name != "swapped-columns"])
    verdicts = [verdict.swapped for verdict in cleaner.judge(mixed)]

    n_swapped = sum(was_swapped)
    repaired = sum(verdict and truth for verdict, truth in zip(verdicts, was_swapped, strict=True))
    spoiled = sum(verdict and not truth for verdict, truth in zip(verdicts, was_swapped, strict=True))
    return repaired / n_swapped, spoiled / (len(pairs) - n_swapped)


def test_swapped_columns_of_the_demo_are_all_repaired(demo: Corpus) -> None:
    assert swap_rates(list(demo.train)) == (1.0, 0.0)


@needs_shared("tatoeba")
def test_swapped_columns_of_tatoeba_are_repaired() -> None:
    pairs = list(readable(read_parts(str(SHARED / "tatoeba"), "en", "fr")["train"]))[:20_000]
    repaired, spoiled = swap_rates(pairs)
    assert repaired >= 0.98 and spoiled <= 0.002


@pytest.mark.slow
@needs_shared("opus_books")
def test_swapped_works_of_opus_books_are_repaired() -> None:
    """In this stand-in for opus_books, whole works are swapped and listed. Identical sides do not count."""
    import pyarrow.parquet as pq

    truth = json.loads((SHARED / "opus_books_truth.json").read_text(encoding="utf-8"))
    for language_pair in ("en-fr", "en-it"):
        rows = pq.read_table(SHARED / "opus_books" / language_pair / "train-00000-of-00001.parquet").to_pylist()
        source, target = language_pair.split("-")
        cleaner = Cleaner(source, target)
        swapped_works = set(truth[language_pair]["swapped_works"])
        authentic = set(truth[language_pair]["authentic"])

        raws, is_swapped = [], []
        for row in rows:
            raw = (repair(row["translation"][source] or ""), repair(row["translation"][target] or ""))
            if row["id"] not in authentic and raw[0] != raw[1] and all(raw):
                raws.append(raw)
                is_swapped.append(row["id"] in swapped_works)
        truths = np.array(is_swapped)
        verdicts = np.array([verdict.swapped for verdict in cleaner.judge(raws)])
        assert (verdicts & truths).sum() >= 0.98 * truths.sum()
        assert (verdicts & ~truths).sum() <= 0.002 * (~truths).sum()


# Scores of many texts at once


TEXTS = st.text() | st.text("aàbcdeéÀÉTHE ßſ\u0301\u00a0कि中🙂\ud800", max_size=400) | st.sampled_from(["", "ÇA VA ?"])


@functools.cache
def scorer_of(*languages: str) -> LanguageScorer:
    return LanguageScorer(language_identifier(*languages))


@pytest.mark.parametrize("languages", [("en", "fr"), ("sr", "hr"), ()])
@given(texts=st.lists(TEXTS, max_size=8))
@settings(max_examples=30)
def test_texts_have_the_scores_that_py3langid_gives_them_one_by_one(
    languages: tuple[str, ...], texts: list[str]
) -> None:
    """Serbian has two columns in the model, one for each script."""
    scorer = scorer_of(*languages)
    alone = [dict(language_identifier(*languages).rank(text)) for text in texts]
    expected = np.array([[scores[label] for label in scorer.labels] for scores in alone])
    assert scorer.scores(texts).shape == (len(texts), len(scorer.labels))
    np.testing.assert_allclose(scorer.scores(texts).ravel(), expected.ravel(), rtol=1e-5, atol=1e-3)


@given(texts=st.lists(TEXTS, max_size=8))
@settings(max_examples=30)
def test_no_language_exceeds_the_last_column(texts: list[str]) -> None:
    scores = scorer_of().restricted(["en", "fr"]).scores(texts)
    columns = [scorer_of("en", "fr").labels.index(language) for language in ("en", "fr")]
    np.testing.assert_allclose(scores[:, :-1], scorer_of("en", "fr").scores(texts)[:, columns], rtol=1e-5, atol=1e-3)
    assert (scores[:, -1:] >= scorer_of().scores(texts) - 1e-3).all()


def test_long_texts_are_scored_in_groups_like_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = scorer_of("en", "fr")
    texts = ["the cat sleeps " * 100, "le chat dort", "", "x", "la maison est grande " * 50]
    together = scorer.scores(texts)
    monkeypatch.setattr("pairs.language_scores.GROUP_BYTES", 100)
    assert (scorer.scores(texts) == together).all()


def test_the_automaton_of_py3langid_forgets_all_but_the_last_bytes() -> None:
    """What lets a text be cut into pieces: no state is deeper than NGRAM_BYTES, and a separator leads to the start."""
    identifier = language_identifier()
    rows = np.array(identifier.tk_nextmove).reshape(-1, 256)  # of the next state for each byte
    row_of_state = np.array(identifier.tk_row)
    assert not rows[:, SEPARATOR[0]].any()
    reached = np.zeros(len(row_of_state), dtype=bool)
    reached[0] = True
    for _ in range(NGRAM_BYTES):
        reached[rows[np.unique(row_of_state[reached])]] = True
    assert reached.all()


def test_processes_that_clean_import_little() -> None:
    script = "import sys, pairs.batches; print(*{'torch', 'datasets', 'pyarrow', 'pandas'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not done.stdout.split()
