"""Validation: the model's loss and its translations on the whole validation part, shared among the processes."""

import time

import numpy as np
import torch

from dataset import batches
from decoding.scoring import score_corpus
from decoding.translator import Translator
from machine.devices import autocast
from model import Transformer
from tapis.doubts import CONFIDENCE_SAMPLE, limit_of_unsure
from tapis.scoring import score
from training.records import Validation, perplexity
from training.trainer import Training

VALIDATION_TOKENS = {"cpu": 4096, "mps": 4096, "cuda": 32_768}  # of a validation batch, at least


@torch.no_grad()
def validate(training: Training, model: Transformer | None = None) -> tuple[Validation, list[str]]:
    """Return the scores of `training.whole_model()` on the whole validation part, and its translations."""
    start = time.perf_counter()
    group, config, corpus = training.group, training.config, training.corpus
    model = model or training.whole_model()
    model_loss = training.loss_of(model)
    valid_batches = batches(
        training.valid_pairs, max(config.batch_tokens, VALIDATION_TOKENS[training.device.type]), seed=0, epoch=0
    )
    losses = []
    n_tgt = 0
    with torch.compiler.set_stance("force_eager"):  # a search has a new shape at every token
        for rows in valid_batches[group.rank :: group.size]:
            batch = training.batch_plan.batch(*training.valid_pairs.ids(rows)).to(training.device)
            with autocast(training.device, training.resolved.precision):
                losses.append(torch.stack(model_loss(batch)))
            n_tgt += batch.n_tgt
        local_texts = [source for source, _ in training.valid_texts[group.rank :: group.size]]
        local_directions = corpus.directions(corpus.valid)[group.rank :: group.size]
        translator = training.translator(model)
        hypotheses = group.gather(translator.in_directions(local_texts, local_directions, bar="validating"))
    of_batches = torch.stack(losses).tolist() if losses else []
    loss, cross_entropy = (sum(values[i] for values in of_batches) for i in (0, 1))
    loss, cross_entropy, n_scored = group.all_sums(loss, cross_entropy, n_tgt)
    references = [target for _, target in training.valid_texts]
    scores = score_corpus(hypotheses, references, corpus.valid.origins(), corpus.origins, score)
    ppl = perplexity(cross_entropy, n_scored)
    result = Validation(training.step, loss / n_scored, ppl, scores.bleu, scores.chrf, scores.by_data)
    training.seconds_per_scored_pair = (time.perf_counter() - start) / len(hypotheses)
    return result, hypotheses


def sample_rows(training: Training, n: int) -> list[int]:
    """Return the rows of n sentences of the validation part: the first ones of each origin, as many of each."""
    origins = training.corpus.valid.origins()
    numbers = np.unique(origins).tolist()
    n_each = -(-n // len(numbers))
    firsts = [np.flatnonzero(origins == number)[:n_each] for number in numbers]
    return np.concatenate(firsts)[:n].tolist()


def unsure_below(training: Training, translator: Translator) -> float:
    """Return the mean log P of a token which few of the model's translations of validation sentences are below."""
    rows = sample_rows(training, CONFIDENCE_SAMPLE)
    directions_of_valid = training.corpus.directions(training.corpus.valid)
    directions = [directions_of_valid[row] for row in rows]
    sources = [training.valid_texts[row][0] for row in rows]
    pairs = list(zip(sources, translator.in_directions(sources, directions), strict=True))
    return limit_of_unsure(translator.log_probabilities_in_directions(pairs, directions))
