"""Terms in the place of what the model said for them: the words that come from a term give way to it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Command

from checkpoint import RunFolder
from config import Config
from decoding.translator import Translator
from pairs.corpus import Corpus
from tapis.config import UNK, Learned
from tapis.constrained import constrained_search
from tapis.doubts import words_of
from tapis.glossary import Glossary, Placed, Term, missing_terms
from tapis.search import Hypothesis, Search, length_penalty
from tapis.terms import is_part_of_word, lacking, put_in_place
from tapis.text.tokenizer import Tokenizer

CAT = Term("cat", "matou")


def put(
    sentence: str, translation: str, found: list[tuple[str, str]], links: dict[int, int], language: str = "fr"
) -> str:
    """Put terms in place. links has the word of the translation that comes from each word of the source."""
    weights = np.full((len(translation.split()), len(sentence.split())), 0.01)
    for source, target in links.items():
        weights[target, source] = 1.0
    places = []
    for one, other in found:
        start = sentence.index(one)
        places.append(Placed(start, start + len(one), Term(one, other)))
    return put_in_place(sentence, translation, places, weights, language)


def test_a_term_takes_the_place_of_the_word_that_comes_from_it() -> None:
    assert put("A big cat.", "Un gros chat.", [("cat", "matou")], {0: 0, 1: 1, 2: 2}) == "Un gros matou."
    assert put("A big cat.", "Un chat gros.", [("cat", "matou")], {0: 0, 1: 2, 2: 1}) == "Un matou gros."
    assert put("(cat)", "(chat)", [("cat", "gros matou")], {0: 0}) == "(gros matou)"
    assert put("Cats sleep.", "Chats dorment.", [("Cats", "matous")], {0: 0, 1: 1}) == "Matous dorment."
    assert put("the man", "l'homme", [("man", "ouvrier")], {0: 0, 1: 0}) == "l'ouvrier"
    assert put("The man", "L'homme", [("man", "ouvrier")], {0: 0, 1: 0}) == "L'ouvrier"
    assert put('"Cats sleep."', '"Chats dorment."', [("Cats", "matous")], {0: 0, 1: 1}) == '"Matous dorment."'


@pytest.mark.parametrize(
    ("language", "translation", "term", "expected"),
    [
        ("it", "nell'acqua", "vino", "nell'vino"),
        ("it", "Dell’acqua.", "vino", "Dell’vino."),
        ("fr-CA", "jusqu'ici", "hier", "jusqu'hier"),
        ("fr", "(Lorsqu'ici)", "hier", "(Lorsqu'hier)"),
        ("fr", "aujourd'hui", "hier", "hier"),
        ("uk", "М'яч", "куля", "Куля"),
        ("uz", "to'p", "shar", "shar"),
        ("en", "o'clock", "time", "time"),
    ],
)
def test_an_apostrophe_is_an_elision_only_in_languages_that_have_it(
    language: str, translation: str, term: str, expected: str
) -> None:
    assert put("x", translation, [("x", term)], {0: 0}, language) == expected


def test_vowel_signs_are_parts_of_the_word_that_gives_way() -> None:
    assert put("a book", "एक किताबें।", [("book", "पोथी")], {0: 0, 1: 1}, "hi") == "एक पोथी।"
    assert put("a book", "(நூலை)", [("book", "ஏடு")], {0: 0, 1: 0}, "ta") == "(ஏடு)"
    assert put("a book", "এক বইটি,", [("book", "পুঁথি")], {0: 0, 1: 1}, "bn") == "এক পুঁথি,"


def test_a_term_of_several_words_takes_the_place_of_their_words() -> None:
    assert put("A hot dog.", "Un chien chaud.", [("hot dog", "hot-dog")], {0: 0, 1: 2, 2: 1}) == "Un hot-dog."
    # Words that are not side by side: that of the last word.
    links = {0: 0, 1: 3, 2: 1}
    assert put("A hot dog.", "Un chien très chaud.", [("hot dog", "hot-dog")], links) == "Un hot-dog très chaud."
    two = put("A cat, a dog.", "Un chat, un chien.", [("cat", "matou"), ("dog", "toutou")], {0: 0, 1: 1, 2: 2, 3: 3})
    assert two == "Un matou, un toutou."


def test_a_part_of_a_word_has_no_place_of_its_own() -> None:
    for sentence, term, expected in (
        ("A black-and-white cat.", "white", True),
        ("A white cat.", "white", False),
        ('The "white" cat.', "white", False),
        ("The cat's mat.", "cat", False),
        ("The cat’s mat.", "cat", False),
        ("l'homme", "homme", True),
        ("white", "white", False),
        ("The\u00a0white\u202fcat.", "white", False),
        ("The\twhite\ncat.", "white", False),
        ("The\u00a0black-and-white cat.", "white", True),
    ):
        start = sentence.index(term)
        assert is_part_of_word(sentence, Placed(start, start + len(term), Term(term, "x"))) == expected


def test_the_words_of_the_source_count_not_those_of_the_entry() -> None:
    placed = Placed(8, 14, Term("e - mail", "courriel"))
    weights = np.eye(4)
    assert put_in_place("Send an e-mail now.", "Envoyez un mail maintenant.", [placed], weights, "fr") == (
        "Envoyez un courriel maintenant."
    )


def test_an_alignment_of_other_words_is_not_used() -> None:
    placed = Placed(2, 5, CAT)
    assert put_in_place("A cat sleeps.", "Un chat dort.", [placed], np.eye(2), "fr") == "Un matou dort."


def test_what_is_lacking_is_counted() -> None:
    places = [Placed(0, 3, CAT), Placed(4, 7, CAT)]
    assert lacking(places, "un matou") == [places[1]] and lacking(places, "") == places
    assert lacking(places, "un matou et un matou") == []


class Listening:
    """A searcher that keeps the sources that it is given, and translates none."""

    can_force = False
    batch_tokens, at_once = 1000, 1

    def __init__(self) -> None:
        self.sources: list[list[int]] = []

    def __call__(self, sources: list[list[int]], *_: object) -> list[list[Hypothesis]]:
        self.sources += sources
        return [[Hypothesis([], 0.0)] for _ in sources]

    def spread(self, work: Any, items: list[Any]) -> Any:
        return map(work, items)


def test_a_model_of_terms_reads_them_behind_its_tag(tiny: Config, demo: Corpus) -> None:
    """Also where nobody chose the only target; and a source without terms is as it was."""
    config = replace(tiny, pairs=("de-en", "fr-en"), terms=0.3)
    tokenizer = Tokenizer.train((source for source, _ in demo.train[:100]), 300, ["en"])
    searcher = Listening()
    translator = Translator(searcher, tokenizer, config, Learned())  # type: ignore[arg-type]
    with_terms = translator.with_glossary(Glossary((Term("chat", "tomcat"),)))
    with_terms(["Le chat."])
    with_terms(["Le chien."])
    (ids, others) = searcher.sources
    (tag,) = tokenizer.tags.values()
    first, last = (i for i, token in enumerate(ids) if token == UNK)
    assert ids[0] == tag and tokenizer.decode([ids[first + 1 : last]]) == ["tomcat"]
    assert tokenizer.decode([ids]) == ["Le tomcat."]
    assert [others] == translator.source_ids(["Le chien."])

    # Of words that no target of the training had, it reads none: it would spell them wrong.
    for known, is_read in (("a tomcat", True), ("a cat", False)):
        searcher.sources.clear()
        knowing = Translator(searcher, tokenizer, config, Learned(target_words=known))  # type: ignore[arg-type]
        knowing.with_glossary(Glossary((Term("chat", "Tomcat"),)))(["Le chat."])
        assert (UNK in searcher.sources[0]) == is_read


class Saying(Listening):
    """A searcher that says the same in all translations."""

    can_force = True

    def __init__(self, ids: list[int]) -> None:
        super().__init__()
        self.ids = ids

    def __call__(self, sources: list[list[int]], *_: object) -> list[list[Hypothesis]]:
        return [[Hypothesis(self.ids, 0.0)] for _ in sources]


def test_a_term_that_is_inflected_is_not_lacking(
    tiny: Config, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a model of --terms, in a form that the training had."""
    changed: list[int] = []

    def put(*given: Any) -> dict[int, list[Hypothesis]]:
        changed.extend(given[2])
        return {row: [Hypothesis([], 0.0)] for row in given[2]}

    monkeypatch.setattr("tapis.terms.with_terms_in_place", put)
    glossary = Glossary((Term("cat", "chat"),))
    (ids,) = tokenizer.encode(["Les chats dorment."])
    for terms, known, is_changed in (
        (0.3, "chats", False),
        (0.3, "chat", True),
        (0.3, "", False),
        (0.0, "chats", True),
    ):
        changed.clear()
        config, learned = replace(tiny, terms=terms), Learned(target_words=known)
        translator = Translator(Saying(ids), tokenizer, config, learned)  # type: ignore[arg-type]
        translator.with_glossary(glossary)(["Cats sleep. A cat."])
        assert bool(changed) == is_changed, (terms, known)

    # Words with vowel signs are known by their parts, as `words_of` has them.
    (ids,) = tokenizer.encode(["किताबें"])
    learned = Learned(target_words=words_of(["किताबें"]))
    translator = Translator(Saying(ids), tokenizer, replace(tiny, terms=0.3), learned)  # type: ignore[arg-type]
    changed.clear()
    translator.with_glossary(Glossary((Term("book", "किताब"),)))(["A book."])
    assert not changed


@pytest.fixture(params=["int8", "fp32"])
def translator(request: pytest.FixtureRequest, demo_run: RunFolder) -> Translator:
    return Translator.load(demo_run.path, "cpu", request.param)


@pytest.mark.slow
def test_words_that_the_model_has_not_learned_take_the_right_place(translator: Translator) -> None:
    """The rest of the translation stays as it was."""
    glossary = Glossary((Term("cat", "zorglub"), Term("dog", "Qwxz")))
    with_terms = translator.with_glossary(glossary)
    sentences = ["The cat is here.", "The dog sleeps.", "The dog sees the cat."]
    usual, found = translator(sentences, Search(5)), with_terms(sentences, Search(5))
    for one, other in zip(usual, found, strict=True):
        changed = [(a, b) for a, b in zip(one.split(), other.split(), strict=True) if a != b]
        assert {(a.strip("."), b.strip(".")) for a, b in changed} <= {("chat", "zorglub"), ("chien", "Qwxz")}, other
    assert not any(missing_terms(glossary.terms_in(s), text) for s, text in zip(sentences, found, strict=True))

    # The best of several is the best one, whatever the model thinks of words that it has not learned.
    ranked = with_terms.n_best(sentences[0], Search(5, 3))
    assert 1 < len(ranked) <= 3 and all("zorglub" in one.text for one in ranked) and ranked[0].text == found[0]
    assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)
    (log_p, n) = translator.log_probabilities([(sentences[0], found[0])])[0]
    assert ranked[0].score == pytest.approx(log_p / length_penalty(n, Search().length_penalty), rel=0.02)


@pytest.mark.slow
def test_words_that_the_model_may_say_are_searched_for(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[Any] = []

    def search(*given: Any, **flags: Any) -> list[Hypothesis]:
        searched.append(given)
        return constrained_search(*given, **flags)

    monkeypatch.setattr("tapis.terms.constrained_search", search)
    translate = translator.with_glossary(Glossary((Term("cat", "zorglub"),)))
    translate("The cat is here.")
    assert not searched, "it costs far more than EXPECTED_TERM"
    monkeypatch.setattr("tapis.terms.EXPECTED_TERM", 1000.0)
    assert "zorglub" in translate("The cat is here.")
    assert len(searched) == 1


@pytest.mark.slow
def test_the_command_puts_terms_in_place(demo_run: RunFolder, called: Command) -> None:
    Path("terms.tsv").write_text("mat\tpaillasson\n", encoding="utf-8")
    done = called(
        "translate.py",
        "--run",
        str(demo_run.path),
        "--device",
        "cpu",
        "--glossary",
        "terms.tsv",
        "--doubts",
        "The cat is sitting on the mat.",
    )
    assert done.returncode == 0 and "paillasson." in done.stdout
