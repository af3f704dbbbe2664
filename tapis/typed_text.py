"""Lines of text as people type them, translated: paragraphs, markup, links, capitals.

The model translates sentences as they are in its corpus. `translate_lines` takes a line apart into such sentences and
puts their translations together again:

1. What sets the direction of writing at the start and the end of the line is taken out, and put back at the end. Marks,
   such as tags and links, are taken out (tapis/text/marks.py).
2. The line is split into its list marker and its sentences (tapis/text/sentences.py).
3. Sentences in capitals, or with a capital before each word, get usual letter case (tapis/text/letter_case.py).
4. The model translates the sentences of all lines together. Those whose translation repeats itself are searched for
   again, with a larger beam (tapis/text/loops.py).
5. Translations of sentences in capitals are put into capitals.
6. The marks are put back, by the words that the model attended to.

If the numbers of a line do not come back, the line is translated once more with its numbers taken out, too.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tapis.config import ConfigError
from tapis.doubts import doubts, is_loop, numbers
from tapis.memory import Memory
from tapis.search import GREEDY, Search
from tapis.text.alignment import alignment_of, same_places, same_words
from tapis.text.letter_case import is_in_capitals, uppercase
from tapis.text.loops import without_loops
from tapis.text.marks import FULL_STOPS, Taken, take_out
from tapis.text.markup import ESCAPES, Markup
from tapis.text.messages import messages_in, texts_of, with_texts
from tapis.text.placement import put_back
from tapis.text.sentences import Line, has_letters, take_direction
from tapis.text.words import IN_WORD
from tapis.translation import DOUBTS, Doubt, Translation, distinct

if TYPE_CHECKING:
    from tapis.translator import Translator

# For each (source, translation), (words of the target, words of the source): how much each word comes from each.
Alignments = dict[tuple[str, str], NDArray[np.float64]]
WIDER_BEAM = 5  # for translations that repeated themselves
_BEFORE_MARK = ' ([«“"\u00a0\u202f'  # between a full stop and a mark behind it
_STOPS = tuple(FULL_STOPS)
_IN_WORD = re.compile(IN_WORD)


def translate_lines(
    translator: "Translator",
    lines: Sequence[str],
    search: Search = GREEDY,
    *,
    markup: Markup = "",
    with_doubts: bool = False,
    memory: Memory | None = None,
) -> list[list[Translation]]:
    """Translate lines of real text: N lines in, N lists out, of which each has the best translations, best first.

    A line may have several sentences, markup, links and capitals. The k-th translation of a line joins the k-th best of
    its sentences; its score is the mean of theirs. A sentence that has fewer has its last one again. A list is shorter
    than search.n_best if fewer translations of the line differ. What a document of this markup would take for markup is
    escaped in a translation; tags of the line stay tags. Only with_doubts have translations all of their doubts, for
    some work more. Lines and sentences found in the memory get its translation. Raises ConfigError for a markup that
    there is not.
    """
    if markup not in ESCAPES:
        raise ConfigError(f"markup {markup!r}: it must be one of {', '.join(map(repr, ESCAPES))}")
    translated = partial(_translated, translator, search=search, markup=markup, with_doubts=with_doubts, memory=memory)
    directions = [take_direction(line) for line in lines]
    lines = [text for _, text, _ in directions]
    around = [(before, after) for before, _, after in directions]

    # Translate the lines that are not blank, but for those that the memory has.
    results = [[Translation("", 0.0)] for _ in lines]
    remembered = {i: text for i, line in enumerate(lines) if memory and (text := memory.exact_in(line, markup))}
    for i, text in remembered.items():
        results[i] = [Translation(_without(text, around[i]), 0.0, is_remembered=True)]
    rows = [i for i, line in enumerate(lines) if line.strip() and i not in remembered]
    words = {i: translator.places_of_terms(lines[i]) for i in rows}
    taken = [take_out(lines[i], markup=markup, words=words[i]) for i in rows]
    messages_of = {i: messages_in(lines[i], one.marks) for i, one in zip(rows, taken, strict=True)}
    for i, result in zip(rows, translated(taken, [around[i] for i in rows]), strict=True):
        results[i] = result

    # Translate again where numbers are missing, with the numbers taken out.
    remembers = {i for i in rows if any(sentence.is_remembered for sentence in results[i][0].sentences)}
    changed = [i for i in rows if i not in remembers and not has_numbers_of(lines[i], results[i])]
    if changed:
        taken = [take_out(lines[i], with_numbers=True, markup=markup, words=words[i]) for i in changed]
        again = translated(taken, [around[i] for i in changed])
        for i, result in zip(changed, again, strict=True):
            if has_numbers_of(lines[i], result):
                results[i] = result

    # Translate the texts of messages, which have stayed as they are.
    messages = list(dict.fromkeys(message for i in rows for message in messages_of[i]))
    if messages:
        texts = list(dict.fromkeys(text for message in messages for text in texts_of(message)))
        ranked_of_texts = translate_lines(
            translator, texts, search, markup=markup, with_doubts=with_doubts, memory=memory
        )
        best = {
            text: without_added_stop(text, ranked[0], markup)
            for text, ranked in zip(texts, ranked_of_texts, strict=True)
        }
        for i in rows:
            if messages_of[i]:
                new = {message: _translated_message(message, best) for message in messages_of[i]}
                results[i] = [_with_messages(one, new, markup) for one in results[i]]

    # Put back what sets the direction of writing.
    return [
        [one._replace(text=f"{before}{one.text}{after}") for one in result]
        for (before, _, after), result in zip(directions, results, strict=True)
    ]


def without_added_stop(line: str, translation: Translation, markup: Markup) -> Translation:
    """Return the translation of a heading, a cell or a part of a message without a full stop that the text has not.

    A model of sentences adds it. Marks may be behind it: A dog {name}. What a memory has at the end stays as it is.
    """
    is_remembered = translation.is_remembered or any(one.is_remembered for one in translation.sentences[-1:])
    whole = translation.text
    if is_remembered or not any(stop in whole for stop in _STOPS):
        return translation
    if not _IN_WORD.match(take_out(line, markup=markup).text[-1:]):
        return translation

    # Find where the text ends before the marks.
    text = whole
    if not text.endswith(_STOPS):
        taken = take_out(whole, markup=markup)
        last = [mark.start for mark in taken.marks if mark.word == len(taken.words)]
        text = whole[: min(last, default=None)].rstrip(_BEFORE_MARK)
    if not text.endswith(_STOPS) or text[:-1].endswith(_STOPS):
        return translation
    return translation._replace(text=text[:-1].rstrip() + whole[len(text) :])


def _translated_message(message: str, best: Mapping[str, Translation]) -> Translation:
    """Return a message with the translations of its texts, and their doubts."""
    texts = {source: best[source] for source in texts_of(message)}
    text = with_texts(message, {source: translation.text for source, translation in texts.items()})
    return Translation(text, 0.0, _in_order({doubt for one in texts.values() for doubt in one.doubts}))


def _with_messages(translation: Translation, changed: Mapping[str, Translation], markup: Markup) -> Translation:
    """Return a translation with the messages in it translated, and with their doubts."""
    text = translation.text
    for mark in reversed(take_out(text, markup=markup).marks):
        for message in messages_in(text, [mark]):
            new = changed[message].text if message in changed else message
            text = text[: mark.start] + new + text[mark.start + len(message) :]
    all_doubts = {doubt for one in (translation, *changed.values()) for doubt in one.doubts}
    return translation._replace(text=text, doubts=_in_order(all_doubts))


def sentences_as_translated(translator: "Translator", line: str) -> list[str]:
    """Return the sentences of a line as the model sees them: without marks, and in usual letter case."""
    text = take_direction(line)[1]
    (split,) = translator.split_lines([take_out(text, words=translator.places_of_terms(text)).text])
    return [translator.in_usual_case(unit) for unit in split.units if has_letters(unit)]


def has_numbers_of(line: str, translations: Sequence[Translation]) -> bool:
    """Return whether each translation has the numbers of the line."""
    expected = numbers(line)
    return all(numbers(translation.text) == expected for translation in translations)


def _translated(
    translator: "Translator",
    taken: Sequence[Taken],
    around: Sequence[tuple[str, str]],
    search: Search,
    markup: Markup,
    with_doubts: bool,
    memory: Memory | None,
) -> list[list[Translation]]:
    """Translate lines whose marks were taken out, and put the marks back.

    around are the marks of direction around each line, which were taken out, too, and which the memory may repeat.
    """
    # Translate the sentences of all lines together, but for those that the memory has.
    lines = translator.split_lines([line.text for line in taken])
    sentences = [unit for line in lines for unit in line.units if has_letters(unit)]
    remembered = _remembered(lines, taken, around, memory) if memory else [None] * len(sentences)
    usual = [
        translator.in_usual_case(sentence) if known is None else sentence
        for sentence, known in zip(sentences, remembered, strict=True)
    ]
    new = [sentence for sentence, known in zip(usual, remembered, strict=True) if known is None]
    ranked = _n_best_without_loops(translator, new, search)
    if with_doubts:
        ranked = _with_doubts(translator, new, ranked)
    found = iter(ranked)
    ranked = [next(found) if known is None else [known] for known in remembered]
    translations = iter(zip(usual, ranked, strict=True))

    # Put the lines together again: the translations of each line by rank, and the marks by alignments.
    of_lines: list[list[tuple[str, Sequence[Translation]]]] = [
        [next(translations) if has_letters(unit) else (unit, []) for unit in line.units] for line in lines
    ]
    marked = [units for units, line_taken in zip(of_lines, taken, strict=True) if line_taken.marks]
    pairs = [(source, one.text) for units in marked for source, ranked in units for one in ranked]
    alignments = _alignments(translator, pairs) if pairs else {}
    results = []
    for line, line_taken, units in zip(lines, taken, of_lines, strict=True):
        n_ranks = max((len(ranked) for _, ranked in units), default=1) or 1
        results.append(
            distinct(_joined(translator, line, line_taken, units, rank, alignments, markup) for rank in range(n_ranks))
        )
    return results


def _remembered(
    lines: Sequence[Line], taken: Sequence[Taken], around: Sequence[tuple[str, str]], memory: Memory
) -> list[Translation | None]:
    """Return what the memory has of each sentence of lines.

    It is nothing if more than pairs of tags was taken from a sentence. What was between two may be of either.
    """
    found: list[Translation | None] = []
    for line, line_taken, around_line in zip(lines, taken, around, strict=True):
        places = [mark.word for mark in line_taken.marks if mark.partner < 0]
        start = line.n_marker_words
        for unit in line.units:
            end = start + len(unit.split())
            if has_letters(unit):
                text = None if any(start <= place <= end for place in places) else memory.exact(unit)
                found.append(Translation(_without(text, around_line), 0.0, is_remembered=True) if text else None)
            start = end
    return found


def _without(text: str, around: tuple[str, str]) -> str:
    """Return a text without what is around it, on the sides where that is there."""
    before, after = around
    return text.removeprefix(before).removesuffix(after)


def _n_best_without_loops(
    translator: "Translator", sentences: Sequence[str], search: Search
) -> list[list[Translation]]:
    """Return the best translations of each sentence. Those that repeat themselves give way to others, or are cut."""
    results = translator.n_best(sentences, search)
    looping = [
        i for i, ranked in enumerate(results) if any(is_loop(translator, sentences[i], one.text) for one in ranked)
    ]
    if not looping:
        return results
    width = max(search.beam, WIDER_BEAM)
    wider = Search(width, n_best=width, length_penalty=search.length_penalty)
    for i, others in zip(looping, translator.n_best([sentences[i] for i in looping], wider), strict=True):
        best_loops = is_loop(translator, sentences[i], results[i][0].text)
        candidates = [*results[i], *others]
        good = [one for one in candidates if not is_loop(translator, sentences[i], one.text)]
        good.sort(key=lambda one: -one.score)  # no score is NaN: the one result of greedy search loops
        cut = [one._replace(text=without_loops(one.text)) for one in candidates]
        ranked = [one if one in good and not best_loops else one._replace(doubts=("loop",)) for one in (*good, *cut)]
        results[i] = distinct(ranked)[: len(results[i])]
    return results


def _with_doubts(
    translator: "Translator", sentences: Sequence[str], results: Sequence[Sequence[Translation]]
) -> list[list[Translation]]:
    """Return the translations of each sentence with all of their doubts."""
    # Judge all translations of all sentences together.
    sources = [source for source, ranked in zip(sentences, results, strict=True) for _ in ranked]
    translations = [one for ranked in results for one in ranked]
    found = doubts(translator, sources, [one.text for one in translations])
    judged = [
        one._replace(doubts=_in_order({*one.doubts, *marks})) for one, marks in zip(translations, found, strict=True)
    ]

    # Cut them by sentence again.
    ends = list(accumulate(len(ranked) for ranked in results))
    return [judged[start:end] for start, end in pairwise([0, *ends])]


def _in_order(found: Iterable[Doubt]) -> tuple[Doubt, ...]:
    return tuple(doubt for doubt in DOUBTS if doubt in found)


def _joined(
    translator: "Translator",
    line: Line,
    taken: Taken,
    of_units: Sequence[tuple[str, Sequence[Translation]]],
    rank: int,
    alignments: Alignments,
    markup: Markup,
) -> Translation:
    """Return one translation of a line. of_units has each of its sentences, as translated, with its translations.

    A sentence with fewer translations has its last one again. One without is copied.
    """
    sentences = [ranked[: rank + 1][-1] if ranked else Translation(source, 0.0) for source, ranked in of_units]
    all_doubts = {doubt for sentence in sentences for doubt in sentence.doubts}
    cased = tuple(
        sentence._replace(text=uppercase(sentence.text, translator.target))
        if is_in_capitals(unit) and not sentence.is_remembered
        else sentence
        for unit, sentence in zip(line.units, sentences, strict=True)
    )
    text = line.join([sentence.text for sentence in cased], translator.target)
    if not taken.marks:
        text = ESCAPES[markup](text)
    else:
        blocks = same_words(line.n_marker_words)
        for (source, ranked), sentence in zip(of_units, sentences, strict=True):
            blocks += [alignments[source, sentence.text]] if ranked else same_words(len(source.split()))
        text = put_back(text, taken, alignment_of(blocks, len(text.split()), len(taken.words)), markup)
    score = sum(sentence.score for sentence in sentences) / max(1, len(sentences))
    with_letters = [sentence for (_, ranked), sentence in zip(of_units, sentences, strict=True) if ranked]
    is_remembered = bool(with_letters) and all(sentence.is_remembered for sentence in with_letters)
    return Translation(text, score, _in_order(all_doubts), cased, is_remembered)


def _alignments(translator: "Translator", pairs: Sequence[tuple[str, str]]) -> Alignments:
    """Return the alignment of each (source, translation) by attention; of an export, which has none, by place."""
    distinct = list(dict.fromkeys(pairs))
    alignments: Alignments = {}
    if translator.searcher.can_force:
        attended = [pair for pair in distinct if pair[1]]
        alignments = dict(zip(attended, translator.alignments(attended), strict=True))
    for source, target in distinct:
        if (source, target) not in alignments:
            alignments[source, target] = same_places(len(target.split()), len(source.split()))
    return alignments
