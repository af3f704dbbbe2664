"""Learning the tokenizer of a run from its pairs, once: the cache keeps it."""

from collections.abc import Iterator, Sequence
from importlib.metadata import version

from pairs.tables import Pairs
from tapis.system.files import cache_file, digest, write_text
from tapis.system.terminal import progress_bar
from tapis.text.tokenizer import MAX_TOKEN_LENGTH, WORD_PATTERN, Tokenizer


def learn_tokenizer(pairs: Pairs, vocab_size: int, languages: Sequence[str] = ()) -> Tokenizer:
    """Return a tokenizer trained on both sides of the pairs, from the cache if the same one was trained before.

    languages are those that get a tag.
    """
    key = digest(pairs.key, vocab_size, *languages, WORD_PATTERN, MAX_TOKEN_LENGTH, version("tokenizers"))
    file = cache_file("tokenizer", key, ".json")
    if not file.is_file():
        tokenizer = Tokenizer.train(_sides(pairs), vocab_size, languages)
        write_text(file, tokenizer.to_json())
    return Tokenizer.from_json(file.read_text(encoding="utf-8"), str(file))


def _sides(pairs: Pairs) -> Iterator[str]:
    """Yield both sides of every pair, with a progress bar if there are many."""
    with progress_bar("counting words", len(pairs), "pair", shown=len(pairs) > 50_000) as bar:
        for source, target in pairs:
            yield source
            yield target
            bar.update()
