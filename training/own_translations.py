"""What a run learns from translations that are made on its way: of text in one language, and of its own sources.

A few times in a run, the loop pauses for a round: a model translates, and the steps to come learn from the result.
There are three kinds of translations:

- Back-translation (Sennrich et al. 2016, arXiv 1511.06709): sentences that exist in a target language alone
  (--monolingual) are translated into the source language, and are targets from then on. Their sources, which a machine
  wrote, begin with a tag (Caswell et al. 2019, arXiv 1906.06442), so that the model does not learn to expect such
  sources from its users.
- Self-distillation: the closest of the model's own translations replace the targets. This is sequence-level
  interpolation (Kim and Rush 2016, arXiv 1606.07947, section 3.3), with the model as its own teacher. It removes
  wording from the targets that the model cannot predict, which helps most where a search cannot go back: in greedy
  search.
- Distillation: the same with other runs as teachers (--teacher), before the first step, if their vocabularies differ
  from that of the run. Teachers of the same vocabulary are asked at each step instead (teachers.py).

A model that translates badly teaches worse than nothing (docs/lab). Before each round, its translations of some
validation pairs are scored, and below --least-bleu it teaches nothing.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from checkpoint import RunFolder
from config import Config
from dataset import EncodedPairs
from decoding.translator import Translator
from machine.distributed import Group
from pairs.corpus import Corpus
from pairs.origins import Origin
from pairs.tables import Pairs
from tapis.config import BOS, ConfigError, names_of_pairs
from tapis.ctranslate2 import is_exported, load_exported
from tapis.scoring import closest, score
from tapis.search import Search
from tapis.text.tokenizer import Tokenizer
from tapis.threads import chunks
from training.records import Judged, RoundKind
from training.unrelated import DROPPED_AT

SEARCH = Search(beam=5, n_best=5)  # of distillation

TRANSLATED_TOGETHER = 50_000  # sentences; the five best translations of each take some 250 MB

# Shares of a run after which its model translates the text of --monolingual. Sooner, it translates worse, and
# learning from that gains nothing (docs/lab).
BACK_TRANSLATED_AT: Sequence[float] = (0.5, 0.75)

JUDGED_PAIRS = 200  # of the validation part, by which translations are judged before a round

# The tag of back-translated sources. Every vocabulary has <s>, also that of a run to start from, and no other source
# contains it.
TAG = BOS


@dataclass(frozen=True)
class Translated:
    """The translations that are learned from after `after_step` steps; by default none, before the first round."""

    n_rounds: int = 0
    """How many of `rounds` have begun"""
    after_step: int = 0
    sources: dict[int, list[int]] = field(default_factory=dict)
    """The sources of monolingual text in token ids, by row"""
    targets: dict[int, list[int]] = field(default_factory=dict)
    """The targets of distillation in token ids, by row"""
    dropped: list[int] = field(default_factory=list)
    """The rows of unrelated pairs, which are learned from no more"""


class PlannedRound(NamedTuple):
    """When a run has a round, and what it does then."""

    share: float
    """The share of the steps that are made before it"""
    kind: Literal["dropping", "back-translation", "distillation", "self-distillation"]
    """To drop pairs, to translate monolingual text, or to learn from teachers or from its own translations"""


def rounds(config: Config) -> list[PlannedRound]:
    """Return the rounds of a run, in order. In a round, the model translates, or it judges the pairs (unrelated.py)."""
    planned: list[PlannedRound] = []
    if config.drop_unrelated:
        planned.append(PlannedRound(DROPPED_AT, "dropping"))
    if config.monolingual:
        shares = (0.0,) if config.back_translator else BACK_TRANSLATED_AT
        planned += [PlannedRound(share, "back-translation") for share in shares]
    if config.teacher:
        planned.append(PlannedRound(0.0, "distillation"))
    elif config.self_distillation:
        planned.append(PlannedRound(1 - config.self_distillation, "self-distillation"))
    return sorted(planned, key=lambda one: one.share)


class Round(NamedTuple):
    """One round of translating the training pairs, of which each process translates a share."""

    config: Config
    corpus: Corpus
    pairs: EncodedPairs
    """The training pairs as they came, without those that were dropped"""
    tokenizer: Tokenizer
    group: Group

    def back_translations(self, translator: Translator, judged: Sequence[Judged]) -> dict[int, list[int]]:
        """Return sources for the monolingual text in token ids, by row: for what is translated well enough."""

        def sources(origin: Origin, pairs: Pairs) -> list[list[int]]:
            texts = [text for _, text in pairs]
            translations = translator.towards(origin.source, origin.target)(texts, bar="translating back")
            tags = [self.tokenizer.tags[origin.target]] if self.tokenizer.tags else []
            return [[*tags, TAG, *ids][: self.config.max_length] for ids in self.tokenizer.encode(translations)]

        good = {(one.target, one.source) for one in judged if one.is_good}
        return self._by_row(True, good, sources)

    def closest_translations(self, teachers: Sequence[tuple[Translator, Sequence[Judged]]]) -> dict[int, list[int]]:
        """Return targets for the training pairs in token ids, by row, from what the teachers translate well enough.

        Monolingual text keeps its own. So do pairs whose translation has more than --max-length tokens: cut, it would
        teach a model to end within a sentence.
        """

        def targets(origin: Origin, pairs: Pairs) -> list[list[int]]:
            direction = origin.source, origin.target
            good = [
                translator.towards(origin.target, origin.source)
                for translator, judged in teachers
                if any(one.is_good and (one.source, one.target) == direction for one in judged)
            ]
            return self.tokenizer.encode(closest_translations(good, list(pairs), origin.target))

        all_judged = [one for _, judged in teachers for one in judged]
        by_row = self._by_row(False, {(one.source, one.target) for one in all_judged if one.is_good}, targets)
        return {row: ids for row, ids in by_row.items() if len(ids) <= self.config.max_length}

    def judge(self, translator: Translator, kind: RoundKind, by: str = "") -> list[Judged]:
        """Return how well a translator, that of another run if named, does what a round asks of it, by languages."""
        is_back = kind == "back-translation"
        origins = [origin for origin in self.corpus.origins if origin.is_monolingual == is_back]
        directions = dict.fromkeys(
            (origin.target, origin.source) if is_back else (origin.source, origin.target) for origin in origins
        )
        judged = []
        for source, target in directions:
            bleu = self.group.broadcast(self._bleu(translator, source, target))
            judged.append(Judged(source, target, bleu, bleu >= self.config.least_bleu, by))
        return judged

    def _bleu(self, translator: Translator, source: str, target: str) -> float:
        """Return the BLEU of translating validation pairs from source into target; 0 where there are none."""
        pairs: list[tuple[str, str]] = []
        valid = self.corpus.valid
        for number, origin in enumerate(self.corpus.origins):
            direction = origin.source, origin.target
            if direction in ((source, target), (target, source)) and len(pairs) < JUDGED_PAIRS:
                rows = np.flatnonzero(valid.origins() == number)[: JUDGED_PAIRS - len(pairs)]
                found = valid.select(rows)[:]
                pairs += found if direction == (source, target) else [(s, t) for t, s in found]
        if not pairs:
            return 0.0
        hypotheses = translator.towards(target, source)([text for text, _ in pairs])
        return score(hypotheses, [text for _, text in pairs], target).bleu

    def _by_row(
        self,
        is_monolingual: bool,
        directions: Collection[tuple[str, str]],
        translate: Callable[[Origin, Pairs], list[list[int]]],
    ) -> dict[int, list[int]]:
        """Translate the monolingual text or all else, of some language pairs. Returns token ids by row.

        A share is translated in parts, since the hypotheses of a search take far more memory than what is chosen.
        """
        by_row: dict[int, list[int]] = {}
        for number, origin in enumerate(self.corpus.origins):
            if origin.is_monolingual != is_monolingual or (origin.source, origin.target) not in directions:
                continue
            rows = self.pairs.rows[self.pairs.origins == number]
            local_rows = rows[self.group.rank :: self.group.size].tolist()
            local_ids = [
                ids
                for part in chunks(local_rows, TRANSLATED_TOGETHER)
                for ids in translate(origin, self.corpus.train.select(np.array(part)))
            ]
            by_row.update(zip(rows.tolist(), self.group.gather(local_ids), strict=True))
        return by_row


def check_other_runs(config: Config, folder: Path) -> None:
    """Raise ConfigError if --back-translator or --teacher names the run to begin, in folder, or one of other languages.

    Raises another TapisError if one cannot be used at all.
    """
    back = [(file, target, source) for file, (source, target) in config.monolingual_directions]
    if config.back_translator:
        _check_other_run("--back-translator", config.back_translator, back, folder)
    taught = [("the training pairs", source, target) for source, target in config.directions]
    for name in config.teacher:
        _check_other_run("--teacher", name, taught, folder)


def _check_other_run(flag: str, name: str, needed: Sequence[tuple[str, str, str]], folder: Path) -> None:
    """Check one run that must translate something from a language into another, as `check_other_runs` says."""
    run = RunFolder.find(name)
    loaded = load_exported(run.path, "cpu", "auto") if is_exported(run.path) else run.load_weights()
    known = loaded[0].directions
    for what, source, target in needed:
        if (source, target) not in known:
            raise ConfigError(
                f"{flag} {name} must translate {what} from {source} into {target}; "
                f"its language pairs are {names_of_pairs(known)}"
            )
    if run.path.resolve() == folder.resolve():
        raise ConfigError(f"{flag} {name} is the run to begin; choose another --name")


def closest_translations(
    translators: Sequence[Translator], pairs: Sequence[tuple[str, str]], language: str
) -> list[str]:
    """Return for each source, of the five best translations of each translator, the closest to the target.

    The closest is the one with the highest sentence BLEU.
    """
    sources = [source for source, _ in pairs]
    ranked = [translator.n_best(sources, SEARCH, bar="distilling") for translator in translators]
    return [
        closest([translation.text for translations in of_source for translation in translations], target, language)
        for of_source, (_, target) in zip(zip(*ranked, strict=True), pairs, strict=True)
    ]
