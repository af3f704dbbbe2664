"""Terms in training sources (--terms): which words belong together, and how sources are given their translations."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import pairs_of
from hypothesis import given
from hypothesis import strategies as st

from dataset import EncodedPairs
from pairs.corpus import Corpus
from pairs.origins import Origin
from pairs.report import DataReport
from pairs.terms import LONGEST_TERM, MOST_TERMS, Lexicon, Span, annotate_rows, invented, lexicons, terms_of
from tapis.config import UNK
from tapis.glossary import Placed, Term, with_terms
from tapis.text.lines import DataError
from tapis.text.tokenizer import Tokenizer

PAIRS = [
    ("The cat sleeps.", "Le chat dort."),
    ("Cats and dogs sleep.", "Chats et chiens dorment."),
    ("A cat eats.", "Un chat mange."),
    ("The dog eats the big mouse.", "Le chien mange la grande souris."),
    ("My dog sleeps.", "Mon chien dort."),
    ("A grey mouse.", "Une souris grise."),
    ("Big cats!", "Grands chats !"),
    ("The big dog.", "Le grand chien."),
]


@pytest.fixture(scope="module")
def lexicon() -> Lexicon:
    return Lexicon.of(PAIRS * 2)


def test_vowels_written_as_marks_are_parts_of_words() -> None:
    """In Hindi, a term must not end within a word."""
    found = Lexicon.of([("नमकीन खाना", "salty food"), ("नमकीन चाय", "salty tea"), ("अच्छा खाना", "good food")])
    assert set(found.dice) == {"नमकीन", "खाना"}


def test_words_that_occur_in_the_same_pairs_belong_together(lexicon: Lexicon) -> None:
    best = {word: max(others, key=others.__getitem__) for word, others in lexicon.dice.items()}
    assert {"cat": "chat", "dog": "chien", "mouse": "souris", "sleeps": "dort", "eats": "mange"}.items() <= best.items()
    assert lexicon.dice["mouse"]["souris"] == 1.0  # each is in the 4 pairs that have the other
    assert lexicon.dice["sleeps"]["dort"] == 1.0
    assert lexicon.dice["big"]["grande"] == 2 * 2 / (6 + 2)
    assert "le" not in lexicon.dice.get("the", {})  # too short


@given(
    st.lists(st.sampled_from("abcdef"), max_size=7),
    st.lists(st.sampled_from("ABCDEF"), max_size=7),
    st.dictionaries(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")), st.floats(0.1, 1.0), max_size=20),
)
def test_terms_are_phrases_of_aligned_words(
    source: list[str], target: list[str], shares: dict[tuple[str, str], float]
) -> None:
    """Held against the definition, word by word."""
    dice: dict[str, dict[str, float]] = {}
    for (one, other), share in shares.items():
        dice.setdefault(one, {})[other] = share
    links = set()
    for i, one in enumerate(source):
        of_row = [dice.get(one, {}).get(other.lower(), 0.0) for other in target]
        if of_row and max(of_row) > 0:
            j = of_row.index(max(of_row))
            of_column = [dice.get(word, {}).get(target[j].lower(), 0.0) for word in source]
            if of_column.index(max(of_column)) == i:
                links.add((i, j))
    expected = set()
    for start in range(len(source)):
        for end in range(start + 1, min(start + LONGEST_TERM, len(source)) + 1):
            inside = [(i, j) for i, j in links if start <= i < end]
            if not inside or not {start, end - 1} <= {i for i, _ in inside}:
                continue
            low, high = min(j for _, j in inside), max(j for _, j in inside) + 1
            if high - low <= 5 and all(start <= i < end for i, j in links if low <= j < high):
                expected.add(Span(start, end, low, high))
    assert set(Lexicon(dice, {}).spans(source, target)) == expected


def test_a_term_is_given_as_a_glossary_has_it(lexicon: Lexicon) -> None:
    """Without the capital of a sentence, sometimes in another form of the word, sometimes as an invented word."""
    source, target = "Cats eat the mouse.", "Chats mangent la souris."
    seen = set()
    for seed in range(300):
        terms, said = terms_of(source, target, lexicon, np.random.default_rng(seed))
        assert 0 < len(terms) <= MOST_TERMS and terms == sorted(terms)
        for start, end, (one, other) in terms:
            assert source[start:end] == one
            is_invented = {"Cats": "Chats", "mouse": "souris"}[one] not in said
            seen.add((one, is_invented))
            # An invented word takes the place of the translation, at the start of a sentence with a capital.
            assert (other[:1].upper() + other[1:] if one == "Cats" else other) in said
            assert is_invented or other == {"Cats": "chats", "mouse": "souris"}[one]
    assert seen == {("Cats", False), ("mouse", False), ("Cats", True), ("mouse", True)}

    verbs = Lexicon({"eat": {"mangent": 0.5, "mange": 0.3, "mer": 0.2}}, {"mange": "mange"}, ["xyz"])
    drawn = [terms_of("They eat.", "Elles mangent.", verbs, np.random.default_rng(seed)) for seed in range(400)]
    texts = [terms[0].term.target for terms, _ in drawn]
    assert texts.count("mange") == pytest.approx(75, abs=30) and texts.count("mangent") > 150
    assert all(said == "Elles mangent." for (terms, said), text in zip(drawn, texts, strict=True) if "man" in text)


def test_without_words_of_the_target_language_none_is_invented() -> None:
    """A word list: no word of a target is within a sentence."""
    word_list = Lexicon.of([("cat", "chat"), ("dog", "chien")] * 3)
    assert word_list.dice and not word_list.words
    for seed in range(20):
        assert terms_of("cat", "chat", word_list, np.random.default_rng(seed))[1] == "chat"


def test_invented_words_are_those_of_others_or_mixed_up(lexicon: Lexicon) -> None:
    random = np.random.default_rng(1)
    words = [invented("Chat", lexicon, random) for _ in range(200)]
    known = {word.lower() for word in lexicon.words}
    assert all(word[:1].isupper() for word in words)
    assert sum(word.lower() in known for word in words) == pytest.approx(100, abs=40)
    assert {"".join(sorted(word.lower())) for word in words} <= {"".join(sorted(word)) for word in known}


def test_a_source_stays_the_same_around_its_terms(tokenizer: Tokenizer) -> None:
    """Also where a term ends within a word, or at either end of the sentence."""
    source = "The cat's mat, l'homme."
    start = source.index("homme")
    terms = [Placed(4, 7, Term("cat", "chat")), Placed(start, start + 5, Term("homme", "big man"))]
    ids = with_terms(source, terms, tokenizer)
    a, b, c, d = (i for i, token in enumerate(ids) if token == UNK)
    assert tokenizer.decode([ids[a + 1 : b], ids[c + 1 : d]]) == ["chat", "big man"]
    assert tokenizer.decode([ids]) == ["The chat's mat, l' big man."]

    # All words have the tokens of a text without terms, and only those at the ends may lack a neighbour.
    for source, one in (("The cat sleeps.", "cat"), ("cat", "cat"), ("Cat food", "Cat"), ("A cat", "cat")):
        start = source.index(one)
        ids = with_terms(source, [Placed(start, start + len(one), Term(one, one))], tokenizer)
        assert [[token for token in ids if token != UNK]] == tokenizer.encode([source])
    assert with_terms(source, [], tokenizer) == tokenizer.encode([source])[0]


def test_a_share_of_the_sources_gets_terms(lexicon: Lexicon) -> None:
    tokenizer = Tokenizer.train((side for pair in PAIRS for side in pair), 300, ["fr"])
    tag = tokenizer.tags["fr"]
    sources = [[tag, *ids] for ids in tokenizer.encode([source for source, _ in PAIRS * 25])]
    targets = tokenizer.encode([target for _, target in PAIRS * 25])

    def annotated(share: float, seed: int = 1) -> list[list[int]]:
        of_rows = [lexicon] * len(sources)
        rows, new = annotate_rows(sources, targets, of_rows, tokenizer, share, np.random.default_rng(seed))
        is_changed = [one != other for one, other in zip(new, targets, strict=True)]
        assert sum(is_changed) == pytest.approx(80 * share, abs=30) and not any(UNK in row for row in new)
        assert all(UNK in row for row, changed in zip(rows, is_changed, strict=True) if changed)
        return [[int(token) for token in row] for row in rows]

    assert annotated(0.0) == sources
    some = annotated(0.5)
    assert some == annotated(0.5) != annotated(0.5, seed=2)
    assert sum(UNK in row for row in some) == pytest.approx(100, abs=25)
    assert all(row[0] == tag and row.count(tag) == 1 for row in some)
    assert sum(UNK in row for row in annotated(1.0)) == len(sources)


def test_only_training_batches_have_terms(small: Corpus, tokenizer: Tokenizer) -> None:
    pairs = EncodedPairs.of(small.train, tokenizer)
    plain, _ = pairs.ids(pairs.rows)
    sources, targets = pairs.ids(pairs.rows, random=np.random.default_rng(1), terms=0.9, lexicons=lexicons(small))
    assert not (plain.ids == UNK).any() and (sources.ids == UNK).sum() > 500 and not (targets.ids == UNK).any()


def test_language_pairs_have_lexicons_of_their_own() -> None:
    table = pairs_of(*PAIRS, *[(target, source) for source, target in PAIRS])
    n = len(PAIRS)
    table = type(table)(table.rows, table.chosen, table.key, [n, 2 * n])
    origins = [Origin("x", "en-fr", "en", "fr"), Origin("x", "fr-en", "fr", "en", True)]
    one, other = lexicons(Corpus(table, table, table, DataReport(), origins))
    assert "chat" in one.dice["cat"] and "cat" in other.dice["chat"] and "chat" not in one.dice
    unspaced = pairs_of(("猫が寝ている", "Le chat dort"), ("犬が食べる", "Un chien mange"))
    with pytest.raises(DataError, match="--terms: no words of en and fr belong together"):
        lexicons(replace(Corpus(unspaced, unspaced, unspaced), origins=origins[:1]))
