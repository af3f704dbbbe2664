"""Translations that lack the terms of a glossary, changed so that they have them.

A model that was trained with --terms reads them in its source, and may say them in other forms. No other model is told
of a glossary. There are two ways to make a translation have a term:

- A term takes the place of the words that come from it, by the model's attention. The rest of the translation stays.
- The model searches anew for a translation that says the term (tapis/constrained.py), and builds its sentence around
  it.

The second is better for words that the model might have said itself. Of a word that it has not learned, or never as the
translation of this one, it makes nonsense around its usual translation: it cannot know what the word is for. The
probability of the first way tells which case it is (docs/terms.md).
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tapis.constrained import Borders, Phrase, constrained_search
from tapis.doubts import words
from tapis.glossary import Glossary, Placed, Term, forms_in, is_spaceless, missing_terms
from tapis.search import Hypothesis, Search, length_penalty
from tapis.text.alignment import alignment_of
from tapis.text.language_codes import base_language
from tapis.text.sentences import LANGUAGES_WITHOUT_SPACES
from tapis.text.tokenizer import Tokenizer
from tapis.text.words import MARKS

if TYPE_CHECKING:
    from tapis.translator import Translator

LANGUAGES_WITHOUT_WORDS = {*LANGUAGES_WITHOUT_SPACES, "th", "lo", "km", "my"}  # that spaces would separate
EXPECTED_TERM = 10.0  # nats that a term may cost in its place: one that costs more, the model has not learned
LENGTHENED = 1.2  # times the tokens of the usual translation: what a search may make of it, besides the terms
_SPACE = re.compile(r"\s")  # of any kind, as for `str.split`
_POSSESSIVE = re.compile(r"\A['’]s(?!\w)")
# Languages whose articles, pronouns and prepositions lose their vowel before a word and are written as one with it:
# l'homme, nell'acqua, jusqu'ici. In others, an apostrophe is a letter: М'яч, to'p.
ELIDING = {
    *("an", "ast", "ca", "co", "eml", "fr", "frp", "fur", "ga", "it", "lb", "lij"),
    *("lld", "lmo", "mt", "nap", "oc", "pms", "rm", "sc", "scn", "vec", "wa"),
}
_ELIDED = r"(?:[bcdfjlmnstvx]|qu|(?:jus|lors|puis|quoi)qu|un|(?:a|co|da|de|ne|que|su)ll|quest)['’](?=\w)"
_SIGNS = rf"[^\w{MARKS}]*"
_AROUND = re.compile(rf"(?P<before>{_SIGNS}).*?(?P<after>{_SIGNS})")  # a word: its signs
_AROUND_ELIDED = re.compile(rf"(?P<before>{_SIGNS}(?:{_ELIDED})?).*?(?P<after>{_SIGNS})", re.IGNORECASE)


def say_terms(
    translator: "Translator",
    glossary: Glossary,
    sentences: Sequence[str],
    sources: Sequence[list[int]],
    hypotheses: list[list[Hypothesis]],
    search: Search,
) -> None:
    """Replace the hypotheses of the sentences whose best one lacks a term, by some that have all of them.

    Args:
        translator: that has found the hypotheses.
        glossary: the terms.
        sentences: what is translated.
        sources: their token ids.
        hypotheses: of each sentence, best first; changed in place. One stays if no translation has its terms.
        search: by which they were found.

    """
    all_places = [glossary.places_in(sentence) for sentence in sentences]
    texts = [translator.texts_of(of_sentence) if all_places[i] else [] for i, of_sentence in enumerate(hypotheses)]
    known = translator.learned.known_words

    def is_inflected(placed: Placed, text: str) -> bool:
        forms = forms_in(placed.term.target, text) if translator.config.terms else []
        return any(not known or known.issuperset(words(form.lower())) for form in forms)

    def to_say(row: int, text: str) -> list[Placed]:
        """Return the terms of a sentence without those that a model of --terms has inflected: they are not lacking."""
        return [placed for placed in all_places[row] if not is_inflected(placed, text)]

    places_of = [to_say(row, texts[row][0]) if places else [] for row, places in enumerate(all_places)]
    rows = [row for row, places in enumerate(places_of) if places and lacking(places, texts[row][0])]
    found: dict[int, list[Hypothesis]] = {row: [] for row in rows}
    if {base_language(one) for one in (*translator.sources, translator.target)}.isdisjoint(LANGUAGES_WITHOUT_WORDS):
        found = with_terms_in_place(translator, sentences, {row: places_of[row] for row in rows}, texts, search)

    # Search where the model knows the terms, or where they have no places of their own.
    searched = [row for row in rows if not found[row]]
    borders = borders_of(translator.tokenizer, translator.target)

    def search_row(row: int) -> list[Hypothesis]:
        phrases = [phrase_of(term, translator.tokenizer) for _, _, term in places_of[row]]
        usual = int(LENGTHENED * len(hypotheses[row][0].ids)) + 1
        n_said = sum(len(phrase.ids) for phrase in phrases)
        limit = min(translator.lengths.limit(len(sources[row])), usual) + n_said
        results: list[Hypothesis] = []
        for may_run_on in (False, True):
            if not results:
                with translator.searcher.steps(sources[row], translator.check) as step:
                    results = constrained_search(step, limit, phrases, search, borders, may_run_on=may_run_on)
        return results

    found |= dict(zip(searched, translator.searcher.spread(search_row, searched), strict=True))
    for row in rows:
        hypotheses[row] = found[row] or hypotheses[row]

    # Leave out further translations that lack terms, where the best one has them.
    for row in set(range(len(sentences))) - set(rows):
        if all_places[row] and len(hypotheses[row]) > 1:
            ranked = zip(hypotheses[row], texts[row], strict=True)
            hypotheses[row] = [one for one, text in ranked if not lacking(to_say(row, text), text)]


def with_terms_in_place(
    translator: "Translator",
    sentences: Sequence[str],
    places_of: dict[int, list[Placed]],
    texts: Sequence[list[str]],
    search: Search,
) -> dict[int, list[Hypothesis]]:
    """Return for each row of places_of its translations with the terms that they lack in place, best first.

    A row has none if the model may know its terms, or if they have no places of their own. It may have fewer than
    search.n_best: translations that differed in the words of the terms have become one.
    """
    # Put the terms into all translations of each sentence.
    pairs = [(row, text) for row in places_of for text in dict.fromkeys(texts[row]) if text]
    changed: dict[int, list[str]] = {row: [] for row in places_of}
    alignments = translator.alignments([(sentences[row], text) for row, text in pairs])
    for (row, text), alignment in zip(pairs, alignments, strict=True):
        if any(is_part_of_word(sentences[row], placed) for placed in places_of[row]):
            continue
        lacked = lacking(places_of[row], text)
        new = put_in_place(sentences[row], text, lacked, alignment, translator.target)
        if not lacking(places_of[row], new):
            changed[row].append(new)

    # Keep them where the first is far less probable than the usual translation.
    rows = [row for row in places_of if changed[row]]
    candidates = [(row, text) for row in rows for text in dict.fromkeys([texts[row][0], *changed[row]])]
    values = translator.log_probabilities([(sentences[row], text) for row, text in candidates])
    value_of = dict(zip(candidates, values, strict=True))
    found: dict[int, list[Hypothesis]] = {row: [] for row in places_of}
    for row in rows:
        n_terms = len(lacking(places_of[row], texts[row][0]))
        cost = value_of[row, texts[row][0]][0] - value_of[row, changed[row][0]][0]
        if cost > EXPECTED_TERM * n_terms:
            # Their order is that of the translations before: the model cannot judge words that it has not learned.
            score = 0.0
            for text in dict.fromkeys(changed[row]):
                log_p, n_tokens = value_of[row, text]
                score = min(score, log_p / length_penalty(n_tokens, search.length_penalty))
                found[row].append(Hypothesis(translator.tokenizer.encode([text])[0], score))
    return found


def lacking(places: Sequence[Placed], translation: str) -> list[Placed]:
    """Return the terms that a translation lacks, each as often as it is missing; the last ones of the source."""
    missing = missing_terms([placed.term for placed in places], translation)
    found = []
    for placed in reversed(places):
        if placed.term in missing:
            missing.remove(placed.term)
            found.append(placed)
    return found[::-1]


def is_part_of_word(sentence: str, placed: Placed) -> bool:
    """Return whether a term is a part of what spaces separate, beside other letters than 's: NATO in NATO-led."""
    before, after = _SPACE.split(sentence[: placed.start])[-1], _SPACE.split(sentence[placed.end :])[0]
    return any(map(str.isalnum, before + _POSSESSIVE.sub("", after)))


def put_in_place(
    sentence: str, translation: str, terms: Sequence[Placed], weights: NDArray[np.float64], language: str
) -> str:
    """Return a translation with terms in the place of the words that come from them.

    Args:
        sentence: the source.
        translation: of which the spaces separate words.
        terms: those to put in, with their places in the source.
        weights: (words of the translation, words of the source), as `tapis.attention.word_alignment` has them.
        language: of the translation.

    """
    around = _AROUND_ELIDED if base_language(language) in ELIDING else _AROUND
    translated_words = translation.split()
    alignment = alignment_of([weights], len(translated_words), len(sentence.split()))
    for start, end, term in terms:
        first, last = (len(sentence[:place].split()) - 1 for place in (start + 1, end))
        places = sorted({alignment.best(word) for word in range(first, last + 1)})
        if places[-1] - places[0] >= len(places):  # they are not side by side
            places = [alignment.best(last)]
        parts = [around.fullmatch(translated_words[place]) for place in places]
        assert parts[0] and parts[-1]
        text = term.target
        if not places[0] and translated_words[0][len(parts[0]["before"]) :][:1].isupper():
            text = text[:1].upper() + text[1:]
        for place in places[1:]:
            translated_words[place] = ""
        translated_words[places[0]] = parts[0]["before"] + text + parts[-1]["after"]
    return " ".join(word for word in translated_words if word)


def phrase_of(term: Term, tokenizer: Tokenizer) -> Phrase:
    """Return what a translation must say for a term."""
    target = term.target
    capital = target[:1].upper() + target[1:]
    ids, ids_at_start = tokenizer.encode([target, capital])
    ids_bound = tokenizer.encode_bound(target)
    return Phrase(ids_bound if is_spaceless(target[0]) else ids, ids_at_start, ids_bound)


def borders_of(tokenizer: Tokenizer, language: str) -> Borders:
    """Return where words begin and end. In languages without spaces, a word may begin anywhere."""
    goes_on, binds, ends_in_sign = tokenizer.word_borders
    if base_language(language) in LANGUAGES_WITHOUT_WORDS:
        goes_on = np.zeros_like(goes_on)
    return Borders(goes_on, binds, ends_in_sign)
