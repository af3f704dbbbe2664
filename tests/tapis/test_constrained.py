"""Translations that must say phrases: they say them, end well, and are the best of those when nothing is left out."""

import itertools
import math
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Command
from numpy.typing import NDArray
from timing import takes_less_than

from checkpoint import RunFolder
from decoding.torch_searcher import TorchSearcher
from decoding.translator import Translator
from tapis.config import BOS, EOS, ConfigError, TapisError
from tapis.constrained import Borders, Phrase, constrained_search
from tapis.engine.engine import Engine
from tapis.glossary import Glossary, Term, forms_in, missing_terms
from tapis.lengths import Lengths
from tapis.search import Hypothesis, LogitsStep, Search, length_penalty
from tapis.terms import borders_of, phrase_of
from tapis.text.tokenizer import Tokenizer

V = 8  # of scripted models
FREE = Borders(*np.zeros((3, V), bool))


def scripted(seed: int) -> LogitsStep:
    """A model whose logits depend on all tokens before, of a few values."""
    prefixes: list[tuple[int, ...]] = []

    def step(tokens: NDArray[np.int64], parents: NDArray[np.int64] | None) -> NDArray[np.float32]:
        nonlocal prefixes
        before = [()] * len(tokens) if parents is None else [prefixes[row] for row in parents]
        prefixes = [(*prefix, int(token)) for prefix, token in zip(before, tokens, strict=True)]
        return np.stack([logits_of(seed, prefix) for prefix in prefixes])

    return step


def logits_of(seed: int, prefix: Sequence[int]) -> NDArray[np.float32]:
    drawn = np.random.default_rng([seed, *prefix]).normal(size=V).astype(np.float32)
    drawn[:EOS] = -np.inf
    return drawn


def log_p_of(seed: int, ids: Sequence[int]) -> float:
    """Of ids and their end."""
    total, prefix = 0.0, [BOS]
    for token in ids:
        logits = logits_of(seed, prefix).astype(np.float64)
        total += float(logits[token] - np.log(np.exp(logits).sum()))
        prefix.append(token)
    return total


def says(ids: Sequence[int], phrase: Sequence[int]) -> bool:
    return any(list(ids[i : i + len(phrase)]) == list(phrase) for i in range(len(ids)))


def phrase(*ids: int) -> Phrase:
    return Phrase(list(ids), list(ids), list(ids))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("phrases", [[(4,)], [(5, 6)], [(4,), (5, 6)], [(4, 4), (7,)]], ids=str)
def test_with_room_for_all_it_finds_the_best_that_says_everything(seed: int, phrases: list[tuple[int, ...]]) -> None:
    limit = 5
    search = Search(40, 1, 0.6)
    # Every sequence that ends, and says all phrases in places of their own
    best = -math.inf
    for length in range(limit):
        for ids in itertools.product(range(EOS + 1, V), repeat=length):
            if all(says(ids, one) for one in phrases) and length >= sum(map(len, phrases)):
                best = max(best, log_p_of(seed, [*ids, EOS]) / length_penalty(length + 1, 0.6))
    wanted = [phrase(*one) for one in phrases]
    (found,) = constrained_search(scripted(seed), limit, wanted, search, FREE, may_run_on=True)
    assert all(says(found.ids, one) for one in phrases)
    assert found.score == pytest.approx(log_p_of(seed, [*found.ids, EOS]) / length_penalty(len(found.ids) + 1, 0.6))
    assert found.score == pytest.approx(best) or len(phrases) > 1 or len(phrases[0]) > 1
    assert found.score <= best + 1e-9


@pytest.mark.parametrize("beam", [1, 5])
def test_a_phrase_is_said_as_often_as_it_is_given(beam: int) -> None:
    for seed in range(10):
        (found,) = constrained_search(
            scripted(seed), 12, [phrase(5, 6), phrase(5, 6)], Search(beam), FREE, may_run_on=True
        )
        assert str(found.ids).count("5, 6") >= 2 and EOS not in found.ids and len(found.ids) < 12


def test_no_word_goes_on_behind_a_phrase() -> None:
    borders = FREE._replace(goes_on=np.array([False] * 6 + [True, True]))
    for seed in range(20):
        (found,) = constrained_search(scripted(seed), 9, [phrase(4, 5)], Search(5), borders, may_run_on=True)
        place = str(found.ids).index("4, 5") // 3
        assert found.ids[place + 2 : place + 3] in ([], [4], [5])


def test_a_phrase_takes_the_form_of_its_place() -> None:
    borders = FREE._replace(binds=np.array([False] * 7 + [True]))
    forms = Phrase([4], [5], [6])
    seen = set()
    for seed in range(100):
        of_seed = scripted(seed)

        def step(
            tokens: NDArray[np.int64], parents: NDArray[np.int64] | None, of_seed: LogitsStep = of_seed
        ) -> NDArray[np.float32]:
            logits = of_seed(tokens, parents)
            logits[:, 4:7] -= 20.0  # none is said by chance
            return logits

        (found,) = constrained_search(step, 4, [forms], Search(5), borders, may_run_on=True)
        place = next(i for i, token in enumerate(found.ids) if token in (4, 5, 6))
        wanted = 5 if not place else 6 if found.ids[place - 1] == 7 else 4
        seen.add(wanted)
        assert found.ids[place] == wanted
    assert seen == {5, 6}  # there is no other token before it than 7


def test_where_no_translation_is_long_enough_there_is_none() -> None:
    assert constrained_search(scripted(1), 2, [phrase(4, 5, 6)], Search(5), FREE) == []
    (found,) = constrained_search(scripted(1), 3, [phrase(4, 5, 6)], Search(5), FREE, may_run_on=True)
    assert found.ids == [4, 5, 6]  # without an end


@pytest.fixture(params=["engine", "torch", "plain"])
def any_translator(request: pytest.FixtureRequest, run_folder: RunFolder) -> Iterator[Translator]:
    precision, plain = {"engine": ("int8", False), "torch": ("fp32", False), "plain": ("fp32", True)}[request.param]
    translator = Translator.load(run_folder.path, "cpu", precision, plain=plain)  # type: ignore[arg-type]
    assert isinstance(translator.searcher, Engine if request.param == "engine" else TorchSearcher)
    yield translator


def test_steps_are_those_of_the_search(any_translator: Translator) -> None:
    (source,) = any_translator.source_ids(["The cat is on the mat."])
    searcher = any_translator.searcher
    for limit in (1, 9):
        ids: list[int] = []
        with searcher.steps(source) as step:
            for i in range(limit):
                parents = np.array([0]) if i else None
                logits = step(np.array([ids[-1] if ids else BOS]), parents)
                assert logits.shape == (1, len(any_translator.tokenizer)) and np.isneginf(logits[0, :EOS]).all()
                ids.append(int(logits[0].argmax()))
                if ids[-1] == EOS:
                    break
        assert searcher([source], [limit], Search())[0][0].ids == [token for token in ids if token != EOS]


def test_rows_of_steps_continue_their_parents(any_translator: Translator) -> None:
    """What a row gives does not depend on the rows beside it."""
    (source,) = any_translator.source_ids(["A dog sleeps."])
    tokens = [[BOS], [10, 20, 30], [11, 21], [12, 22]]
    parents: list[list[int]] = [[], [0, 0, 0], [2, 0], [1, 1]]
    with any_translator.searcher.steps(source) as step:
        for these, before in zip(tokens, parents, strict=True):
            together = step(np.array(these), np.array(before) if before else None)
    for row, path in enumerate(([BOS, 10, 21, 12], [BOS, 10, 21, 22])):
        with any_translator.searcher.steps(source) as step:
            for i, token in enumerate(path):
                alone = step(np.array([token]), np.array([0]) if i else None)
        finite = np.isfinite(alone[0])
        np.testing.assert_allclose(together[row][finite], alone[0][finite], atol=1e-3)


def test_a_translation_says_the_terms_of_its_source_and_others_stay(any_translator: Translator) -> None:
    glossary = Glossary((Term("cat", "matou"), Term("mat", "paillasson rouge"), Term("unicorn", "licorne")))
    with_terms = any_translator.with_glossary(glossary)
    sentences = ["The cat is on the mat.", "A dog.", "Cat and cat.", "Concatenate."]
    usual, translations = any_translator(sentences), with_terms(sentences)
    assert translations[1] == usual[1] and translations[3] == usual[3]
    for sentence, translation in zip(sentences, translations, strict=True):
        assert not missing_terms(glossary.terms_in(sentence), translation), translation
    assert not any("licorne" in translation for translation in translations)
    ranked = with_terms.n_best(sentences[:1], Search(5, 3))[0]
    assert len(ranked) == 3 and all("paillasson rouge" in one.text for one in ranked)
    assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)


def test_a_term_may_be_longer_than_translations_of_its_source(any_translator: Translator) -> None:
    """Also where it is searched for: into languages without spaces."""
    term = Term("mat", "paillasson rouge qui est devant la porte de la maison de mon ami")
    with_terms = any_translator.with_glossary(Glossary((term,)))
    with_terms.target, with_terms.lengths = "zh", Lengths(1.0, 0.1)
    assert len(phrase_of(term, with_terms.tokenizer).ids) > with_terms.lengths.limit(len("mat"))
    assert term.target in with_terms("mat").replace(term.target.capitalize(), term.target)


def test_terms_are_found_as_whole_words_the_longest_first() -> None:
    glossary = Glossary(
        (Term("cat", "a"), Term("cat food", "b"), Term("NATO", "c"), Term("e-mail", "d"), Term("C++", "e"))
    )

    def found(sentence: str) -> str:
        return "".join(term.target for term in glossary.terms_in(sentence))

    assert found("Cat food for the CAT, a cat; concatenate cats.") == "baa"
    assert found("NATO nato Nato e-mail E-Mail C++ c++ C+") == "cdde"
    assert found("cat-like, tom-cat, cat- and cat; NATO-led, e-mail-like") == "aac"
    assert found("ce cat-là, cat-ci") == "aa"
    assert found("l'cat, cat's and cat’s") == "aaa"
    assert len(glossary.terms_in("cat " * 50)) == 10


def test_a_term_is_not_found_in_a_negation() -> None:
    glossary = Glossary((Term("can", "boîte"), Term("won't", "ne"), Term("Don", "Don"), Term("renta", "wash")))
    text = "Don't, DON’T, I can't, CAN’T, won't: Don has an oil can's can'tin, a can."
    assert [term.target for term in glossary.terms_in(text)] == ["ne", "Don", "boîte", "boîte", "boîte"]
    assert len(glossary.terms_in("Renta't les mans.")) == 1  # Catalan: wash your hands


def test_terms_of_scripts_without_spaces_are_parts_of_what_is_written() -> None:
    glossary = Glossary(
        (Term("垫子", "mat"), Term("猫", "cat"), Term("猫咪", "kitty"), Term("gpu", "a"), Term("แมว", "cat"))
    )
    assert [term.target for term in glossary.terms_in("猫在垫子上。猫咪")] == ["cat", "mat", "kitty"]
    assert [term.target for term in glossary.terms_in("แมวนอนบนเสื่อ")] == ["cat"]
    assert [term.target for term in glossary.terms_in("用GPU的 gpus 猫")] == ["a", "cat"]
    assert [placed[:2] for placed in glossary.places_in("在垫子上")] == [(1, 3)]
    assert missing_terms([Term("mat", "垫子")], "猫在垫子上。") == []
    assert missing_terms([Term("mat", "垫子"), Term("cat", "狗")], "猫在垫子上。") == [Term("cat", "狗")]
    assert missing_terms([Term("北约", "NATO")], "他说NATO很好") == []
    assert missing_terms([Term("a", "tai-chi (太极拳)")], "the tai-chi (太极拳)") == []
    assert missing_terms([Term("a", "cat")], "catalogue concat, cat") == []
    assert Glossary((Term("cat", "chat"),)).terms_in("cat-like tom-cat costs 猫 ฿5") == []


@pytest.mark.parametrize("turned", [False, True])
def test_a_term_that_is_written_as_the_text_is_preferred(turned: bool) -> None:
    """Whichever comes first in the file."""
    terms = [Term("turkey", "dinde"), Term("Turkey", "Turquie"), Term("gpu", "a"), Term("GPU", "b")]
    glossary = Glossary(tuple(terms[::-1] if turned else terms))

    def found(sentence: str) -> list[str]:
        return [term.target for term in glossary.terms_in(sentence)]

    assert found("Turkey, turkey, TURKEY.") == ["Turquie", "dinde", "dinde"]
    assert found("Turkey-like, turkey-like") == ["Turquie"]
    assert found("用GPU的gpu的Gpu") == ["b", "a", "a"]


def test_the_time_to_find_terms_does_not_grow_with_their_number() -> None:
    """Here they begin alike: comparing each with each place took ten seconds and more."""
    terms = [
        Term(start + f"{i:05d}" + end, "x") for i in range(50_000) for start, end in (("the no ", ""), ("品", "产"))
    ]
    glossary = Glossary(tuple(terms))
    sentences = ["the " * 100, "品" * 100]
    assert glossary.terms_in("the no 00007") and glossary.terms_in("品00007产")
    assert not any(map(glossary.terms_in, sentences))
    assert takes_less_than(0.5, lambda: list(map(glossary.terms_in, sentences)))
    text = "the no 00007 " * 3_000
    assert takes_less_than(0.5, lambda: glossary.places_in(text, most=len(text)))


def test_vowel_signs_are_parts_of_words() -> None:
    glossary = Glossary((Term("दिल", "heart"),))
    assert glossary.terms_in("दिल्ली") == [] and len(glossary.terms_in("मेरा दिल है")) == 1
    assert missing_terms([Term("heart", "दिल")], "दिल्ली") == [Term("heart", "दिल")]


def test_nothing_is_said_behind_the_end_of_a_sentence() -> None:
    """A model that says 5 6 and ends, whatever it was made to say before; 7 must be said."""
    vocabulary = 12

    def step_of(end_everywhere: bool) -> LogitsStep:
        said: list[tuple[int, ...]] = [()]

        def step(tokens: NDArray[np.int64], parents: NDArray[np.int64] | None) -> NDArray[np.float32]:
            rows = range(len(tokens)) if parents is None else parents.tolist()
            said[:] = [(*said[row], token) for row, token in zip(rows, tokens.tolist(), strict=True)]
            logits = np.zeros((len(tokens), vocabulary), np.float32)
            for row, ids in enumerate(said):
                usual = [one for one in ids[1:] if one != 7]
                likely = [5, 6, EOS][min(len(usual), 2)]
                logits[row, EOS if end_everywhere else likely] = 5.0
            return logits

        return step

    borders = Borders(*np.zeros((3, vocabulary), bool))
    phrase = Phrase([7], [7], [7])
    for search in (Search(1), Search(5, 3)):
        found = constrained_search(step_of(False), 12, [phrase], search, borders)
        assert found and all(7 in one.ids and one.ids[-1] != 7 for one in found[:1])
        # A model that ends at once has nothing but what is behind its end.
        assert not constrained_search(step_of(True), 12, [phrase], search, borders)
        found = constrained_search(step_of(True), 12, [phrase], search, borders, may_run_on=True)
        assert found and 7 in found[0].ids


def test_a_second_search_begins_anew(any_translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first one finds nothing, as if every hypothesis ended at once."""
    usual = constrained_search
    calls: list[bool] = []

    def found_late(*args: Any, may_run_on: bool = False) -> list[Hypothesis]:
        calls.append(may_run_on)
        found = usual(*args, may_run_on=may_run_on)
        return found if may_run_on else []

    with_terms = any_translator.with_glossary(Glossary((Term("cat", "zorglub"),)))
    monkeypatch.setattr("tapis.terms.EXPECTED_TERM", math.inf)  # never in place
    monkeypatch.setattr("tapis.terms.constrained_search", lambda *args, **flags: usual(*args, may_run_on=True))
    expected = with_terms("The cat is on the mat.")
    monkeypatch.setattr("tapis.terms.constrained_search", found_late)
    assert with_terms("The cat is on the mat.") == expected and calls == [False, True] and "zorglub" in expected


def test_two_phrases_do_not_share_a_token() -> None:
    def step(tokens: NDArray[np.int64], parents: NDArray[np.int64] | None) -> NDArray[np.float32]:
        logits = np.zeros((len(tokens), 12), np.float32)
        logits[:, 5:9] = 2.0
        return logits

    borders = Borders(*np.zeros((3, 12), bool))
    phrases = [Phrase(ids, ids, ids) for ids in ([5, 6], [6, 7])]
    found = constrained_search(step, 12, phrases, Search(8, 5), borders)
    assert found
    for one in found:
        text = " ".join(map(str, one.ids))
        assert "6 7" in text.replace("5 6", "x", 1) or "5 6" in text.replace("6 7", "x", 1)


def test_all_translations_of_a_ranking_have_the_terms(any_translator: Translator) -> None:
    with_terms = any_translator.with_glossary(Glossary((Term("cat", "chat"),)))
    for ranked in with_terms.n_best(["The cat sees the cat.", "The cat is on the mat.", "A dog."], Search(5, 5))[:2]:
        assert ranked and not any(missing_terms([Term("cat", "chat")], one.text) for one in ranked)


def test_forms_of_a_word_have_other_endings() -> None:
    assert forms_in("chat", "Le Chat, les chats, la chatte; le chaton, le château, châteaux, ha") == [
        *("Chat", "chats", "chatte", "chaton"),
    ]
    assert forms_in("tapis", "tapisserie tapis Tapis") == ["tapis", "Tapis"]
    assert forms_in("or", "Or ors orage ort") == ["Or"]  # too short to tell
    assert forms_in("chat", "Chaque chien dort dans la chambre.") == []
    assert forms_in("OTAN", "Les otages de l'OTAN") == ["OTAN"]


@pytest.mark.parametrize(("written", "other"), ["'’", "’'"])
def test_an_apostrophe_is_found_in_either_way_to_write_it(written: str, other: str) -> None:
    licence = Term(f"driver{written}s licence", f"attestation d{written}aptitude")
    for sentence in (f"A driver{other}s licence.", f"一个driver{other}s licence"):
        ((start, end, term),) = Glossary((licence,)).places_in(sentence)
        assert term == licence and sentence[start:end] == f"driver{other}s licence"
    assert missing_terms([licence], f"une attestation d{other}aptitude") == []
    assert missing_terms([licence], f"Attestation d{other}aptitude") == []


def test_a_term_is_found_in_any_unicode_form() -> None:
    """With its place in the text as it is."""
    Path("terms.tsv").write_text("cafe\u0301\tKaffee\u00adhaus\n한국\tKorea\n", encoding="utf-8")
    glossary = Glossary.read(Path("terms.tsv"))
    assert glossary.terms == (Term("café", "Kaffeehaus"), Term("한국", "Korea"))
    for text in ("Le café, à 한국.", "\u202aLe (cafe\u0301) de 한국"):
        for form in ("NFC", "NFD"):
            written = unicodedata.normalize(form, text)
            found = [written[start:end] for start, end, _ in glossary.places_in(written)]
            assert found == [unicodedata.normalize(form, term) for term in ("café", "한국")], ascii(written)
    assert not glossary.places_in("cafe\u0301\u0301") and not glossary.places_in("cafe\ufe20\u0323")


def test_the_time_to_find_terms_grows_with_a_run_of_marks_and_no_faster() -> None:
    """Normalizing the run as a whole took seconds."""
    glossary = Glossary((Term("café", "Kaffeehaus"),))
    text = "a" + "\u0301\u0323" * 40_000 + " cafe\u0301"
    assert len(glossary.places_in(text)) == 1
    assert takes_less_than(0.5, lambda: glossary.places_in(text))


def test_what_is_missing_is_counted() -> None:
    cat, big_cat = Term("x", "chat"), Term("y", "grand chat")
    assert missing_terms([cat, cat], "un chat, chaton") == [cat]
    assert missing_terms([cat, big_cat], "un grand chat") == [cat]
    assert missing_terms([cat, big_cat], "Chat et grand chat") == []
    assert missing_terms([cat], "le CHAT") == [cat]


def test_forms_of_a_phrase_and_borders_of_words(tokenizer: Tokenizer) -> None:
    said = phrase_of(Term("x", "eau"), tokenizer)
    assert tokenizer.decode([said.ids, said.ids_at_start]) == ["eau", "Eau"]
    assert tokenizer.decode([[*tokenizer.encode(["l'"])[0], *said.ids_bound]]) == ["l'eau"]
    borders = borders_of(tokenizer, "fr")
    (ids,) = tokenizer.encode(["eaux l'"])
    assert not borders.goes_on[ids[0]] and not borders.goes_on[EOS] and borders.goes_on[tokenizer.encode_bound("x")[0]]
    assert borders.binds[ids[-1]] and not borders.binds[ids[0]]
    assert not borders_of(tokenizer, "zh").goes_on.any()


def saying(text: str, tokenizer: Tokenizer) -> LogitsStep:
    """A model that says a text, whatever it was made to say before."""
    wanted = [*tokenizer.encode([text])[0], EOS]
    lengths = [0]

    def step(tokens: NDArray[np.int64], parents: NDArray[np.int64] | None) -> NDArray[np.float32]:
        lengths[:] = [1] * len(tokens) if parents is None else [lengths[row] + 1 for row in parents]
        logits = np.zeros((len(tokens), len(tokenizer)), np.float32)
        logits[:, :EOS] = -np.inf
        for row, length in enumerate(lengths):
            logits[row, wanted[min(length, len(wanted)) - 1]] = 12.0
        return logits

    return step


def test_signs_bind_words_or_only_end_them() -> None:
    binding, others = ["a (", "a l'(", "a “", "a-", "a/"], ["a“", "a -", "a /", "a,", 'a "']
    tokenizer = Tokenizer.train([*binding, *others] * 5, 300)
    borders = borders_of(tokenizer, "de")
    for text in (*binding, *others):
        (first, *_, last) = tokenizer.encode([text])[0]
        assert tokenizer.decode([[last]])[0] in (text[-1], text[-2:]), text
        assert borders.binds[last] == (text in binding), text
        assert borders.ends_in_sign[last] and not borders.ends_in_sign[first] and not borders.goes_on[last]


@pytest.mark.parametrize("text", ["Un (chat) dort.", 'Un "chat" dort.', "Un x-chat dort.", "Un chien/chat dort."])
def test_a_term_directly_behind_a_sign_is_said(text: str, tokenizer: Tokenizer) -> None:
    phrases = [phrase_of(Term("x", "chat"), tokenizer)]
    borders = borders_of(tokenizer, "fr")
    (found,) = constrained_search(saying(text, tokenizer), 30, phrases, Search(5), borders)
    assert tokenizer.decode([found.ids]) == [text]


def test_a_term_is_not_said_where_its_word_goes_on_with_a_mark() -> None:
    heart = "दिल"
    tokenizer = Tokenizer.train([f"{heart}्ली में है", f"{heart} की बात"] * 50, 400)
    phrases = [phrase_of(Term("heart", heart), tokenizer)]
    borders = borders_of(tokenizer, "hi")
    assert borders.goes_on[tokenizer.encode_bound("्")[0]] and borders.goes_on[tokenizer.encode_bound("_")[0]]
    said = [*tokenizer.encode([heart])[0], *tokenizer.encode_bound("्ली")]
    (found,) = constrained_search(saying(tokenizer.decode([said])[0], tokenizer), 12, phrases, Search(5), borders)
    assert not missing_terms([Term("heart", heart)], tokenizer.decode([found.ids])[0])


FLAGS = ["translate.py", "--run", "tiny", "--device", "cpu"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "terms.tsv has no terms"),
        (b"# cat\tchat\n\n", "terms.tsv has no terms"),
        (b"cat\n", "terms.tsv line 1: a term, a tab and its translation are expected, not 'cat'"),
        (b"a\tb\ncat\t \n", "terms.tsv line 2: a term, a tab"),
        (b"cat\tchat\ndog\tchien\ncat\tmatou\n", "line 3: 'cat' is 'matou', but 'chat' in line 1: keep one of them"),
        (b"cat\t" + b"x" * 300 + b"\n", "line 1: a term of more than 200 characters"),
        (b"caf\xe9\tx\n", "not UTF-8"),
        ("cat\tchat\n".encode("utf-16"), "UTF-16"),
        (b"".join(b"%d\tx\n" % i for i in range(100_001)), "more than 100,000 terms"),
    ],
)
def test_a_glossary_that_is_none_is_an_error_in_words(
    content: bytes, says: str, run_folder: RunFolder, called: Command
) -> None:
    Path("terms.tsv").write_bytes(content)
    done = called(*FLAGS, "--glossary", "terms.tsv", "A cat.")
    assert done.returncode == 1 and says in done.stderr and len(done.stderr.splitlines()) <= 2
    assert called(*FLAGS, "--glossary", "none.tsv", "A cat.").returncode == 1


def test_the_command_says_terms_also_in_documents(run_folder: RunFolder, called: Command) -> None:
    Path("terms.tsv").write_text(
        "# a comment\ncat\tmatou\tnotes\ncat\tmatou\n\nBig Dog\tgros chien\n", encoding="utf-8"
    )
    flags = [*FLAGS, "--glossary", "terms.tsv"]
    done = called(*flags, "A cat and a Big Dog.", "THE CAT.")
    assert done.returncode == 0
    first, second = done.stdout.splitlines()
    assert "matou" in first and "gros chien" in first and "MATOU" in second
    Path("page.html").write_text("<p>The <b>cat</b> sleeps.</p>", encoding="utf-8")
    page = called(*flags, "--input", "page.html").stdout
    assert "matou" in page and page.count("<b>") == page.count("</b>") == 1


def test_an_export_is_told_no_terms(run_folder: RunFolder) -> None:
    translator = Translator.load(run_folder.path, "cpu")
    translator.searcher = type("Exported", (), {"can_force": False})()
    with pytest.raises(ConfigError, match="--glossary is for a run or a release"):
        translator.with_glossary(Glossary((Term("a", "b"),)))
    assert issubclass(ConfigError, TapisError)
