"""Sentences → sentences, in Python with `Translator` and on the command line.

    python translate.py "The cat is sitting on the mat."     one line for each argument
    python translate.py < text.en > text.fr                  N lines in, N lines out; a line may be a paragraph

Standard output carries the translations and nothing else. On a terminal, with no argument, it prompts.
"""

from functools import partial

from system.cli import TranslateOptions, answer_early, parse, run_command

answer_early(__name__, partial(parse, TranslateOptions))  # before torch, which takes more than a second

import io
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from decoding.attention import Attention, cross_attention, draw, quiet, to_html
from checkpoint import RunFolder
from config import Config, ConfigError, DeviceName, TapisError, TranslatingPrecision
from dataset import pad, padding_mask
from decoding.search import Hypothesis, Search, Step, beam_search, greedy_search
from decoding.ctranslate2 import Engine, is_exported, load_engine
from fast.memory import keep_freed_memory
from system.devices import choose_device, choose_translating, spread
from model import DecoderCache, Transformer
from decoding.inference import in_precision
from text.sentences import Line, has_letters, take_apart, whole_characters
from system.files import write_text, write_whole
from text.tables import chunks
from text.tokenizer import Tokenizer

EXTRA_LENGTH = 50  # a translation may be this much longer than its source, in tokens (section 6.1)
LINES_AT_ONCE = 1000  # of standard input: enough to sort by length, little enough to see results soon
GREEDY = Search()


class Translation(NamedTuple):
    """A text, and how the model scores it (`Hypothesis.score`)."""

    text: str
    score: float


class Translator:
    """A model with its tokenizer, as a function from sentences to sentences."""

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        config: Config,
        device: torch.device,
        precision: TranslatingPrecision = "auto",
    ) -> None:
        self.tokenizer, self.config, self.device = tokenizer, config, device
        self.model = in_precision(model, choose_translating(precision, device))

    @classmethod
    def load(
        cls, run: str | Path = "", device: DeviceName = "auto", precision: TranslatingPrecision = "auto"
    ) -> "Translator":
        """The best model of a run, by its name under weights/ or its folder; by default, of the run trained last.

        It may also be a folder that export.py made, the archive of a release, or a release's id on the hub. Raises a
        TapisError where there is no such run or a file of it is damaged. From then on this process keeps the memory
        that it frees, without which beam search takes a quarter longer on a CPU.
        """
        keep_freed_memory()
        where, folder = choose_device(device), RunFolder.find(str(run))
        if is_exported(folder.path):
            return ExportedTranslator(*load_engine(folder.path, where, precision), where)
        config, tokenizer, model = folder.load_model(where)
        return cls(model, tokenizer, config, where, precision)

    def __call__(
        self, sentences: Sequence[str], search: Search = GREEDY, batch_tokens: int = 4096, bar: str = ""
    ) -> list[str]:
        """One translation for each sentence, in order; a blank sentence gives an empty one."""
        return [found[0].text for found in self.n_best(sentences, search, batch_tokens, bar)]

    def n_best(
        self, sentences: Sequence[str], search: Search, batch_tokens: int = 4096, bar: str = ""
    ) -> list[list["Translation"]]:
        """The search.n_best best translations of each sentence, best first.

        batch_tokens bounds source length times sentences, and times a quarter of the hypotheses; memory grows with it.
        bar names a progress bar, which a terminal shows while it lasts.
        """
        sources = self.tokenizer.encode([whole_characters(sentence) for sentence in sentences])
        order = [i for i in sorted(range(len(sources)), key=lambda i: -len(sources[i])) if sentences[i].strip()]
        outputs = [[Hypothesis([], 0.0)] * search.n_best for _ in sources]
        batches = list(_batches(order, [len(ids) + 1 for ids in sources], 4 * batch_tokens // max(4, search.beam)))
        found = spread(lambda rows: self._decode([sources[i] for i in rows], search), batches, self.device)
        with tqdm(desc=bar, total=len(order), unit="sentence", leave=False, disable=None if bar else True) as progress:
            for rows, hypotheses in zip(batches, found, strict=True):
                for row, output in zip(rows, hypotheses, strict=True):
                    outputs[row] = output
                progress.update(len(rows))
        said = iter(self._translations([one for output in outputs for one in output]))
        return [[next(said) for _ in output] for output in outputs]

    def text(self, lines: Sequence[str], search: Search = GREEDY) -> list[list["Translation"]]:
        """Lines of real text, paragraphs among them, each translated sentence by sentence: N lines in, N lists out.

        The k-th translation of a line joins the k-th best of its sentences; its score is the mean of theirs. List
        markers at a line's start, and pieces without any letter, stay as they are.
        """
        taken = [self.taken_apart(line) for line in lines]
        units = [unit for line in taken for unit in line.units]
        is_text = [has_letters(unit) for unit in units]
        found = iter(self.n_best([unit for unit, yes in zip(units, is_text, strict=True) if yes], search))
        kept = [[Translation(unit, 0.0)] * search.n_best for unit in units]
        done = iter([next(found) if yes else same for same, yes in zip(kept, is_text, strict=True)])
        lines_done = []
        for line in taken:
            ranks = list(zip(*(next(done) for _ in line.units), strict=True)) or [()] * search.n_best
            joined = [line.join([part.text for part in parts], self.config.target) for parts in ranks]
            scores = [sum(part.score for part in parts) / max(1, len(parts)) for parts in ranks]
            lines_done.append([Translation(*both) for both in zip(joined, scores, strict=True)])
        return lines_done

    def taken_apart(self, line: str) -> Line:
        """A line of text, as the sentences that are translated one by one."""
        longest = self.config.max_length

        def fits(piece: str) -> bool:
            # A token has at least one byte, so that short pieces need not be encoded to know.
            return len(piece.encode()) <= longest or len(self.tokenizer.encode([piece])[0]) <= longest

        return take_apart(whole_characters(line), self.config.source, fits)

    def attention(self, sentence: str, search: Search = GREEDY) -> tuple[Translation, Attention]:
        """The translation of a sentence, and what each of its tokens attended to."""
        source = self.tokenizer.encode([whole_characters(sentence)])[0]
        found = self._decode([source], search)[0][0]
        with torch.inference_mode():
            weights = cross_attention(self.model, self.tokenizer, source, found.ids)
        return self._translations([found])[0], weights

    def _translations(self, found: Sequence[Hypothesis]) -> list[Translation]:
        texts = self.tokenizer.decode([one.ids for one in found])
        return [Translation(" ".join(text.split()), one.score) for text, one in zip(texts, found, strict=True)]

    def _decode(self, sources: list[list[int]], search: Search) -> list[list[Hypothesis]]:
        with torch.inference_mode():
            step = model_step(self.model, pad(sources).to(self.device))
            limits = torch.tensor(_limits(sources), device=self.device)
            if search.beam == 1:
                return [[Hypothesis(ids, math.nan)] for ids in greedy_search(step, limits)]
            return beam_search(step, limits, search)


class ExportedTranslator(Translator):
    """The same with a model that CTranslate2 holds, which cannot show its attention."""

    def __init__(self, config: Config, tokenizer: Tokenizer, engine: Engine, device: torch.device) -> None:
        self.engine, self.tokenizer, self.config, self.device = engine, tokenizer, config, device

    def attention(self, sentence: str, search: Search = GREEDY) -> tuple[Translation, Attention]:
        """Raises ConfigError."""
        raise ConfigError("an exported model shows no attention; the run that it was made of does")

    def _decode(self, sources: list[list[int]], search: Search) -> list[list[Hypothesis]]:
        return self.engine(sources, _limits(sources), search)


def model_step(model: Transformer, src: Tensor) -> Step:
    """The step function of a search over the translations of src (B, S), with its caches inside."""
    src_mask, width = padding_mask(src), 1
    memory = model.encode(src, src_mask)
    cache = DecoderCache(model.config.n_decoder_layers)

    def step(tokens: Tensor, rows: Tensor | None) -> Tensor:
        nonlocal src_mask, width
        if rows is not None:
            stay = rows[:, 0] // width if len(rows) < len(src_mask) else None
            cache.select(rows.flatten(), stay)
            src_mask = src_mask if stay is None else src_mask[stay]  # memory's keys and values are in the cache
        width = tokens.size(1)
        vectors = model.decode(tokens.view(-1, 1), memory, src_mask, None, cache)
        return model.project(vectors).view(*tokens.shape, -1)

    return step


def _limits(sources: list[list[int]]) -> list[int]:
    """How long each translation may become, in tokens."""
    return [len(source) + EXTRA_LENGTH for source in sources]


def _batches(order: list[int], lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    """Cuts rows, the longest first, so that rows times the longest stays within batch_tokens, one row at least."""
    batch: list[int] = []
    for row in order:
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def main(args: Sequence[str]) -> None:
    options = parse(TranslateOptions, args)
    search = Search(options.beam, options.n_best, options.length_penalty)
    translator = Translator.load(options.run, options.device, options.precision)

    def answer(lines: Sequence[str]) -> None:
        found = [best for line in translator.text(lines, search) for best in line]
        scored = search.n_best > 1
        sys.stdout.write("".join(f"{score:.4f}\t" * scored + f"{text}\n" for text, score in found))
        sys.stdout.flush()

    if not options.run:
        print(f"run {translator.config.name}", file=sys.stderr)
    if options.attention:
        picture(translator, options.attention, options, search)
    if options.sentences:
        answer([sentence.replace("\n", " ") for sentence in options.sentences])
    elif sys.stdin.isatty():
        _converse(translator.config, answer)
    else:
        lines = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", newline="\n")
        try:
            for chunk in chunks(lines, LINES_AT_ONCE):
                answer([line.removesuffix("\n") for line in chunk])
        except UnicodeDecodeError as error:
            raise TapisError(f"standard input is not UTF-8: {error.reason}") from None


def picture(translator: Translator, file: Path, options: TranslateOptions, search: Search) -> None:
    """Draws the attention of the one sentence of the command line. Raises ConfigError where that is not possible."""
    config = translator.config
    for what, chosen, n in (("layer", options.layer, config.n_decoder_layers), ("head", options.head, config.n_heads)):
        if not 0 <= chosen <= n:
            raise ConfigError(f"--{what} is {chosen}; the model has {n}: 1 to {n}, or 0")
    if file.suffix not in (".png", ".html"):
        raise ConfigError(f"--attention {file}: a file that ends in .png or .html is drawn")
    units = [unit for text in options.sentences for unit in translator.taken_apart(text).units if has_letters(unit)]
    if len(units) != 1:
        raise ConfigError(f"--attention draws one sentence, given in quotes; these are {len(units)}")
    translation, found = translator.attention(units[0], search)
    layer = options.layer or config.n_decoder_layers
    maps = found.maps(layer - 1, options.head - 1 if options.head else None)
    title = f"{units[0]} → {translation.text} (layer {layer} of {config.n_decoder_layers})"
    if file.suffix == ".html":
        page = to_html(maps, found.source, found.target, title)
        write_text(file, page)
    else:
        figure = draw(maps, found.source, found.target, title)
        with quiet():
            write_whole(file, lambda temporary: figure.savefig(temporary, format="png"))
    print(f"attention drawn in {file}", file=sys.stderr)


def _converse(config: Config, answer: Callable[[Sequence[str]], None]) -> None:
    """A prompt on the terminal, until an end of file."""
    print(f"{config.source} → {config.target}; an end of file (Ctrl-D) ends", file=sys.stderr)
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            return
        answer([line.removesuffix("\n")])


if __name__ == "__main__":
    run_command(main)
