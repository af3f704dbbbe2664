"""Sentences → sentences: `Translator`, which is a searcher with its tokenizer.

A searcher turns source ids into hypotheses: the engine (`tapis.engine.engine.Engine`), or CTranslate2 with the same
weights (`tapis.ctranslate2.CTranslate2Searcher`). A checkout has another, which computes with torch
(decoding/torch_searcher.py).
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from tapis.attention import Attention, word_alignment
from tapis.config import (
    ConfigError,
    DeviceName,
    Learned,
    ModelConfig,
    TranslatingPrecision,
    names_of_pairs,
)
from tapis.ctranslate2 import exported_learned, is_exported, load_exported
from tapis.doubts import words
from tapis.engine.engine import Engine
from tapis.glossary import Glossary, with_terms
from tapis.lengths import Lengths
from tapis.release import Release, RunFiles
from tapis.search import GREEDY, AttentionOf, Hypothesis, Search, Searcher, go_on
from tapis.system.terminal import progress_bar
from tapis.terms import say_terms
from tapis.text.languages import language_shares, repair
from tapis.text.letter_case import usual_case
from tapis.text.markup import Markup
from tapis.text.sentences import Line, replace_lone_surrogates, split_line
from tapis.text.tokenizer import Tokenizer
from tapis.translation import Translation, distinct
from tapis.typed_text import translate_lines

T = TypeVar("T")

ALIGNED_TOGETHER = 32  # translations in a batch, at most
MOST_WEIGHTS = 10_000_000  # of attention, in such a batch: those of all layers and heads exist at once
SHORTEST = 8  # tokens: a shorter sentence takes as much of a batch, since each has logits of its own
UNSURE_BELOW = -2.0  # nats: the limit of doubt for runs that did not learn one


class Translator:
    """A searcher with its tokenizer, as a function from sentences to sentences. It stays as it was made.

    `towards` makes one for a language pair of a model of several; `check` is called during a search, and may end it.
    """

    files: ClassVar[type[RunFiles[ModelConfig]]] = Release
    """What finds and reads the files of a run"""

    def __init__(
        self,
        searcher: Searcher,
        tokenizer: Tokenizer,
        config: ModelConfig,
        learned: Learned,
        *,
        target: str = "",
        source: str = "",
    ) -> None:
        self.searcher = searcher
        self.tokenizer = tokenizer
        self.config = config
        self.learned = learned
        self.lengths = Lengths(learned.length_ratio, learned.length_spread)
        self.unsure_below = learned.unsure_below or UNSURE_BELOW
        self.target = target or config.target
        self.source = source
        of_target = [one for one, into in config.directions if into == self.target]
        self.sources = [source] if source else of_target or [config.source]  # languages that a text may be in
        self.tag = [tokenizer.tags[target]] if target and tokenizer.tags else []  # that each source begins with
        self.check: Callable[[], None] = go_on
        self.glossary: Glossary | None = None
        self._encoded: dict[str, list[int]] = {}  # the latest texts that were split, most of which are translated next

    @classmethod
    def load(
        cls,
        run: str | Path = "",
        device: DeviceName = "auto",
        precision: TranslatingPrecision = "auto",
        *,
        plain: bool = False,
    ) -> Self:
        """Load the best model of a run, given by its name under weights/ or its folder; by default, the latest run.

        The run may also be a folder that export.py made, the archive of a release, or a release's id on the hub. Raises
        a TapisError if there is no such run, if one of its files is damaged, or if this is not to be had: the engine
        computes on CPUs, in int8; a checkout with torch, on GPUs and in other precisions, too. With plain, everything
        is computed by the formulas of model.py in fp32.
        """
        if plain and precision not in ("auto", "fp32"):
            raise ConfigError(f"--plain computes in fp32, not in {precision}")
        folder = cls.files.find(str(run))
        config: ModelConfig
        searcher: Searcher
        if is_exported(folder.path):
            if plain:
                raise ConfigError(f"--plain is for a run; {folder.path} is an export, which CTranslate2 computes")
            config, tokenizer, searcher = load_exported(folder.path, device, precision)
            return cls(searcher, tokenizer, config, exported_learned(folder.path))
        config, tokenizer, searcher = cls.load_searcher(folder, device, precision, plain)
        return cls(searcher, tokenizer, config, folder.load_learned())

    @classmethod
    def load_searcher(
        cls, folder: RunFiles[ModelConfig], device: DeviceName, precision: TranslatingPrecision, plain: bool
    ) -> tuple[ModelConfig, Tokenizer, Searcher]:
        """Load a run. Raises what `load` raises."""
        if plain or device not in ("auto", "cpu") or precision not in ("auto", "int8"):
            flags = {"--device": (device, ("auto", "cpu")), "--precision": (precision, ("auto", "int8"))}
            given = [f"{name} {value}" for name, (value, known) in flags.items() if value not in known]
            wanted = "--plain" if plain else ", ".join(given)
            raise ConfigError(f"{wanted}: this installation computes on the CPU, in int8; for more, use a checkout")
        if part := folder.nonstandard_part():
            raise ConfigError(
                f"{folder.path} was trained with an edited model.py ({part}): "
                "translate with translate.py of that checkout"
            )
        config, tokenizer, weights = folder.load_weights()
        return config, tokenizer, Engine(weights, config, list(tokenizer.tags.values()))

    def towards(self, target: str = "", source: str = "") -> Self:
        """Return the same model for one of its target languages.

        The source language matters only for taking texts apart into sentences; by default, it is that of each text.
        Without a target, the model must have one target language only. Raises ConfigError if the model has not learned
        to translate so.
        """
        directions = self.config.directions
        targets = list(dict.fromkeys(target for _, target in directions))
        pairs = names_of_pairs(directions)
        if not target and len(targets) > 1:
            raise ConfigError(f"the model translates into {', '.join(targets)}: choose one with --target")
        target = target or targets[0]
        if target not in targets:
            raise ConfigError(f"the model does not translate into {target}; its language pairs are {pairs}")
        if source and (source, target) not in directions:
            ways = [middle for one, middle in directions if one == source and (middle, target) in directions]
            hint = f"\ntranslate into {ways[0]} first, and the result into {target}" if ways else ""
            raise ConfigError(f"the model has not learned {source}-{target}; its language pairs are {pairs}{hint}")
        translator = type(self)(self.searcher, self.tokenizer, self.config, self.learned, target=target, source=source)
        translator.check, translator.glossary = self.check, self.glossary
        return translator

    def checked_by(self, check: Callable[[], None]) -> Self:
        """Return the same translator, which calls `check` every few steps. What it raises ends the translation."""
        translator = copy.copy(self)
        translator.check = check
        return translator

    def with_glossary(self, glossary: Glossary) -> Self:
        """Return the same translator, which translates terms as a glossary says.

        A model of --terms reads the translations of terms in its source. With any other, and where it says one in no
        form, what the model said for a term gives way to it, or a sentence is searched for again (tapis/terms.py).
        Raises ConfigError for an export of another model than one of --terms.
        """
        if not (self.config.terms or self.searcher.can_force):
            raise ConfigError(
                "--glossary is for a run or a release, or for an export of a model that was trained with --terms"
            )
        translator = copy.copy(self)
        translator.glossary = glossary
        return translator

    @property
    def languages(self) -> tuple[str, ...]:
        """The model's languages but the target, also those that it has not learned to translate into the target."""
        return tuple(language for language in self.config.all_languages if language != self.target)

    def identify(self, text: str) -> tuple[str, float]:
        """Return the most probable of `languages` for a text, and its probability."""
        return language_shares(text, self.languages)[0] if len(self.languages) > 1 else (self.languages[0], 1.0)

    def in_usual_case(self, sentence: str) -> str:
        """Return a sentence in usual letter case, but for the terms of the glossary that have a letter case."""
        language = self.sources[0] if len(self.sources) == 1 else ""
        return usual_case(sentence, self.tokenizer, language, lambda text: self.places_of_terms(text, cased=True))

    def places_of_terms(self, text: str, *, cased: bool = False) -> set[int]:
        """Return the places of the characters in terms of the glossary; with cased, of those that have capitals.

        The text may have many sentences.
        """
        terms = self.glossary.places_in(text, most=len(text)) if self.glossary else []
        return {
            place for start, end, term in terms for place in range(start, end) if not (cased and term.source.islower())
        }

    def source_ids(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the ids of sentences, each after the tag of the target language if the model has several pairs."""
        if self.tokenizer.tags and not self.tag:
            return self.towards().source_ids(sentences)
        texts = [replace_lone_surrogates(sentence) for sentence in sentences]
        known = self._encoded
        new = [text for text in texts if text not in known]
        found = dict(zip(new, self.tokenizer.encode(new), strict=True)) if new else {}
        return [[*self.tag, *(known[text] if text in known else found[text])] for text in texts]

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a string is an iterable of strings, too
        self, sentences: str, search: Search = GREEDY, batch_tokens: int = 0, bar: str = ""
    ) -> str: ...

    @overload
    def __call__(
        self, sentences: Iterable[str], search: Search = GREEDY, batch_tokens: int = 0, bar: str = ""
    ) -> list[str]: ...

    def __call__(
        self, sentences: str | Iterable[str], search: Search = GREEDY, batch_tokens: int = 0, bar: str = ""
    ) -> str | list[str]:
        """Return one translation of each sentence, in order; a blank sentence has an empty one.

        One string gives one translation. The sentences may be any iterable of strings, such as an open file: the line
        ends of its lines are left out.
        """
        if isinstance(sentences, str):
            return self.n_best([sentences], search, batch_tokens, bar)[0][0].text
        return [translations[0].text for translations in self.n_best(sentences, search, batch_tokens, bar)]

    def in_directions(
        self, sentences: Sequence[str], directions: Sequence[tuple[str, str]], search: Search = GREEDY, bar: str = ""
    ) -> list[str]:
        """Return one translation of each sentence, in order. directions has the source and target language of each."""
        translations = [""] * len(sentences)
        for translator, rows in self.rows_of_directions(directions):
            texts = translator([sentences[row] for row in rows], search, bar=bar)
            for row, text in zip(rows, texts, strict=True):
                translations[row] = text
        return translations

    def rows_of_directions(self, directions: Sequence[tuple[str, str]]) -> Iterator[tuple[Self, list[int]]]:
        """Yield for each language pair among directions the translator for it, and where the pair occurs."""
        for (source, target), rows in rows_by_direction(directions).items():
            yield self.towards(target, source), rows

    @overload
    def n_best(  # type: ignore[overload-overlap]  # a string is an iterable of strings, too
        self, sentences: str, search: Search, batch_tokens: int = 0, bar: str = ""
    ) -> list[Translation]: ...

    @overload
    def n_best(
        self, sentences: Iterable[str], search: Search, batch_tokens: int = 0, bar: str = ""
    ) -> list[list[Translation]]: ...

    def n_best(
        self, sentences: str | Iterable[str], search: Search, batch_tokens: int = 0, bar: str = ""
    ) -> list[Translation] | list[list[Translation]]:
        """Return up to search.n_best translations of each sentence that differ, best first; of one string, those alone.

        They are fewer if the beam found fewer, as it does of short sentences: hypotheses may differ in their tokens and
        give the same text. batch_tokens limits the size of a batch: sentences times source tokens, times a quarter of a
        beam beyond 4. Memory grows with it; 0 is the searcher's number. bar describes the progress bar; without a
        description, none is shown.
        """
        if isinstance(sentences, str):
            return self.n_best([sentences], search, batch_tokens, bar)[0]
        sentences = without_line_ends(sentences)
        batch_tokens = batch_tokens or self.searcher.batch_tokens
        n_best = search.n_best
        if n_best > 1:
            search = replace(search, n_best=search.beam)  # of which some give the same text

        # Batches of sentences of similar length, the longest first, so that memory runs out at once or not at all.
        sources = self.source_ids(sentences)
        if self.glossary and self.config.terms:
            sources = [self._with_terms(*one) for one in zip(sentences, sources, strict=True)]
        longest_first = sorted(range(len(sources)), key=lambda row: -len(sources[row]))
        rows = [row for row in longest_first if sentences[row].strip()]
        lengths = [max(SHORTEST, len(ids) + 1) for ids in sources]
        batches = list(cut_batches(rows, lengths, batch_tokens, search.beam))

        # Search.
        hypotheses = [[Hypothesis([], 0.0)] * search.n_best for _ in sources]
        progress = progress_bar(bar, len(rows), "sentence", leave=False) if bar else None
        with progress or nullcontext():
            for batch, batch_hypotheses in search_batches(
                self.searcher, sources, batches, search, self.lengths, self.check
            ):
                for row, row_hypotheses in zip(batch, batch_hypotheses, strict=True):
                    hypotheses[row] = row_hypotheses
                if progress:
                    progress.update(len(batch))

        if self.glossary and self.searcher.can_force:
            say_terms(self, self.glossary, sentences, sources, hypotheses, search)

        # Back to text, all at once.
        texts = self.texts_of([hypothesis for row in hypotheses for hypothesis in row])
        translations, start = [], 0
        for row_hypotheses in hypotheses:
            end = start + len(row_hypotheses)
            pairs = zip(texts[start:end], row_hypotheses, strict=True)
            translations.append(distinct(Translation(text, hypothesis.score) for text, hypothesis in pairs)[:n_best])
            start = end
        return translations

    def _with_terms(self, sentence: str, ids: list[int]) -> list[int]:
        """Return the ids of a sentence with its terms translated, those of known words; without any, the ids given."""
        assert self.glossary
        sentence = replace_lone_surrogates(sentence)
        known = self.learned.known_words  # others are better put in place: the model would spell them wrong
        places = [
            placed
            for placed in self.glossary.places_in(sentence)
            if not known or known.issuperset(words(placed.term.target.lower()))
        ]
        tags = [token for token in ids if token < self.tokenizer.first_text_id]
        return [*tags, *with_terms(sentence, places, self.tokenizer)] if places else ids

    @overload
    def text(  # type: ignore[overload-overlap]  # a string is an iterable of strings, too
        self, lines: str, search: Search = GREEDY, *, markup: Markup = "", with_doubts: bool = False
    ) -> list[Translation]: ...

    @overload
    def text(
        self, lines: Iterable[str], search: Search = GREEDY, *, markup: Markup = "", with_doubts: bool = False
    ) -> list[list[Translation]]: ...

    def text(
        self, lines: str | Iterable[str], search: Search = GREEDY, *, markup: Markup = "", with_doubts: bool = False
    ) -> list[Translation] | list[list[Translation]]:
        """Translate lines of text as people type them: `tapis.typed_text.translate_lines`.

        One string is one line, and gives its translations, best first. Otherwise, each line of an iterable has a list.
        """
        if isinstance(lines, str):
            return translate_lines(self, [lines], search, markup=markup, with_doubts=with_doubts)[0]
        return translate_lines(self, without_line_ends(lines), search, markup=markup, with_doubts=with_doubts)

    def split_lines(self, lines: Sequence[str]) -> list[Line]:
        """Return each line of text as the sentences that are translated one by one."""
        lines = [replace_lone_surrogates(line) for line in lines]
        is_known = len(self.sources) == 1
        languages = [self.sources[0] if is_known else language_shares(line, self.sources)[0][0] for line in lines]
        if "unicode" not in self.config.skip_rules:
            lines = [repair(line) for line in lines]
        longest = self.learned.longest_whole(self.config.max_length)

        # Most lines are one sentence. They are encoded together.
        long = [line for line in lines if len(line.encode()) > longest]
        usual = [self.in_usual_case(line) for line in long]
        encoded = self.tokenizer.encode(usual)
        self._encoded = dict(zip(usual, encoded, strict=True))
        n_tokens = dict(zip(long, map(len, encoded), strict=True))

        def fits(piece: str) -> bool:
            # A token has at least one byte, so that short pieces need not be encoded to know.
            if len(piece.encode()) <= longest:
                return True
            if piece not in n_tokens:
                n_tokens[piece] = len(self.tokenizer.encode([self.in_usual_case(piece)])[0])
            return n_tokens[piece] <= longest

        return [split_line(line, language, fits) for line, language in zip(lines, languages, strict=True)]

    def log_probabilities(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, int]]:
        """Return log P(target | source) of each pair in nats, without length penalty, and its target tokens.

        Both include the end token. Raises ConfigError for an export.
        """
        sources = self.source_ids([source for source, _ in pairs])
        targets = self.tokenizer.encode([replace_lone_surrogates(target) for _, target in pairs])
        lengths = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
        longest_first = sorted(range(len(pairs)), key=lambda row: -lengths[row])
        batches = at_least(self.searcher.at_once, list(cut_batches(longest_first, lengths, self.searcher.batch_tokens)))

        def of_rows(rows: list[int]) -> list[float]:
            return self.searcher.log_probabilities(
                [sources[row] for row in rows], [targets[row] for row in rows], self.check
            )

        values = [0.0] * len(pairs)
        for rows, of_batch in zip(batches, self.searcher.spread(of_rows, batches), strict=True):
            for row, value in zip(rows, of_batch, strict=True):
                values[row] = value
        return [(value, len(target) + 1) for value, target in zip(values, targets, strict=True)]

    def log_probabilities_in_directions(
        self, pairs: Sequence[tuple[str, str]], directions: Sequence[tuple[str, str]]
    ) -> list[tuple[float, int]]:
        """Return `log_probabilities` of pairs. directions has the source and target language of each."""
        values = [(0.0, 0)] * len(pairs)
        for translator, rows in self.rows_of_directions(directions):
            for row, value in zip(rows, translator.log_probabilities([pairs[row] for row in rows]), strict=True):
                values[row] = value
        return values

    def attention(
        self, sentence: str, search: Search = GREEDY, of: AttentionOf = "source"
    ) -> tuple[Translation, Attention]:
        """Return a translation, and what each of its tokens attended to: in the source, or within a stack of layers.

        Raises ConfigError for a blank sentence or an export, and unless PyTorch translates for a stack's own attention.
        """
        (sentence,) = without_line_ends([sentence])
        if not sentence.strip():
            raise ConfigError("a blank sentence has no translation that attends to it")
        (source,) = self.source_ids([sentence])
        if self.glossary and of == "source":
            (best_of_terms,) = self.n_best(sentence, search)[:1]
            if best_of_terms.text:
                (target,) = self.tokenizer.encode([best_of_terms.text])
                (weights,) = self.searcher.attention([source], [target], self.check)
                return best_of_terms, Attention.of(weights, self.tokenizer, source, target)
        best = self.searcher([source], [self.lengths.limit(len(source))], search, self.check)[0][0]
        (weights,) = self.searcher.attention([source], [best.ids], self.check, of=of)
        attention = Attention.of(weights, self.tokenizer, source, best.ids, of)
        return Translation(self.texts_of([best])[0], best.score), attention

    def alignments(self, pairs: Sequence[tuple[str, str]]) -> list[NDArray[np.float64]]:
        """Return for each (source, translation) how much each word comes from each: `tapis.attention.word_alignment`.

        Raises ConfigError for an export.
        """
        sources = self.source_ids([source for source, _ in pairs])
        targets = self.tokenizer.encode([target for _, target in pairs])

        # Batches of pairs of similar size, the largest first.
        n_maps = self.config.n_decoder_layers * self.config.n_heads
        n_weights = [n_maps * (len(s) + 1) * (len(t) + 1) for s, t in zip(sources, targets, strict=True)]
        sizes = [max(MOST_WEIGHTS // ALIGNED_TOGETHER, n) for n in n_weights]
        largest_first = sorted(range(len(pairs)), key=lambda row: -sizes[row])
        batches = list(cut_batches(largest_first, sizes, MOST_WEIGHTS))

        def align(rows: list[int]) -> list[NDArray[np.float64]]:
            chosen = [sources[row] for row in rows], [targets[row] for row in rows]
            weights = self.searcher.attention(*chosen, self.check)
            attentions = [
                Attention.of(of_pair, self.tokenizer, source, target)
                for of_pair, source, target in zip(weights, *chosen, strict=True)
            ]
            return list(map(word_alignment, attentions))

        alignments: dict[int, NDArray[np.float64]] = {}
        for rows, of_batch in zip(batches, self.searcher.spread(align, batches), strict=True):
            alignments |= zip(rows, of_batch, strict=True)
        return [alignments[row] for row in range(len(pairs))]

    def texts_of(self, hypotheses: Sequence[Hypothesis]) -> list[str]:
        """Return the text of each hypothesis."""
        texts = self.tokenizer.decode([hypothesis.ids for hypothesis in hypotheses])
        return [" ".join(text.split()) for text in texts]


def without_line_ends(lines: Iterable[str]) -> list[str]:
    """Return lines, as an open file has them, without LF or CRLF at their ends."""
    return [line.removesuffix("\n").removesuffix("\r") for line in lines]


def rows_by_direction(directions: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[int]]:
    """Return the positions of each language pair."""
    rows: dict[tuple[str, str], list[int]] = {}
    for row, direction in enumerate(directions):
        rows.setdefault(direction, []).append(row)
    return rows


def search_batches(
    searcher: Searcher,
    sources: Sequence[list[int]],
    batches: list[list[int]],
    search: Search,
    lengths: Lengths,
    check: Callable[[], None] = go_on,
) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
    """Search batches of rows of sources, one on each thread of a CPU: rows and, for each row, its hypotheses.

    Too few batches for the threads are cut, so that the batches that come out may be smaller than those that went in.
    """
    batches = at_least(searcher.at_once, batches)

    def search_rows(rows: list[int]) -> list[list[Hypothesis]]:
        chosen = [sources[row] for row in rows]
        return searcher(chosen, [lengths.limit(len(source)) for source in chosen], search, check)

    return zip(batches, searcher.spread(search_rows, batches), strict=True)


def at_least(n: int, batches: list[list[T]]) -> list[list[T]]:
    """Cut each batch into so many parts that equal batches make at least n. A part has a row at least.

    The rows of each part have similar lengths.
    """
    n_parts = -(-n // max(1, len(batches)))
    return [batch[start::n_parts] for batch in batches for start in range(min(n_parts, len(batch)))]


def cut_batches(rows: list[int], lengths: list[int], batch_tokens: int, beam: int = 1) -> Iterator[list[int]]:
    """Cut rows, the longest first, so that rows times the longest stays within batch_tokens, one row at least.

    A beam beyond 4 makes batches smaller.
    """
    batch_tokens = 4 * batch_tokens // max(4, beam)
    batch: list[int] = []
    for row in rows:
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
