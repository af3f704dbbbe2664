"""One joint subword vocabulary for both languages: byte-level BPE, trained on the training pairs only.

Byte pair encoding is Sennrich et al. 2016 (arXiv 1508.07909); over bytes, as in GPT-2, every text has a token
sequence and comes back from it exactly, so that UNK is never used. `Tokenizer` trains, saves, loads, encodes and
decodes; the work is done by the `tokenizers` library.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from importlib.metadata import version

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers, trainers

from config import BOS, EOS, PAD, UNK, TapisError
from system.files import cache_file, digest, write_text
from system.terminal import progress_bar
from text.tables import Pairs

BLANK = " "  # set before every text, so that a word is the same token at the start as in the middle
# What no token crosses: words, numbers, punctuation, blanks, each with the blank before it, as in GPT-2. But a word
# holds its vowel signs too, without which Hindi falls apart, and the apostrophes inside it: l'homme, don't, п'ять.
WORDS = r" ?[\p{L}\p{M}]+(?:['’][\p{L}\p{M}]+)*| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]  # in the order of PAD, UNK, BOS, EOS

# The tokens' characters stand for bytes, as in GPT-2: printable ones for themselves, the others for those from 256 on.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_BYTE_OF = {chr(byte): byte for byte in _PRINTABLE}
_BYTE_OF |= {chr(256 + i): byte for i, byte in enumerate(sorted(set(range(256)) - set(_PRINTABLE)))}


class TokenizerError(TapisError):
    """The file is no tokenizer of ours."""


class Tokenizer:
    """Text ↔ token ids. The ids of a sentence hold no PAD, BOS or EOS: those are added where batches are made."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        inner.encode_special_tokens = True  # "</s>" in a text is four characters, not EOS
        self.inner = inner

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> "Tokenizer":
        """Learns at most vocab_size tokens from texts; a small corpus may not have so many."""
        inner = tokenizers.Tokenizer(models.BPE())
        words = pre_tokenizers.Split(tokenizers.Regex(WORDS), "isolated")
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        inner.pre_tokenizer = pre_tokenizers.Sequence([words, to_bytes])
        inner.decoder = decoders.ByteLevel()
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=SPECIAL, initial_alphabet=letters, show_progress=False
        )
        inner.train_from_iterator((BLANK + text for text in texts), trainer)
        return cls(inner)

    @classmethod
    def from_json(cls, text: str, whence: str) -> "Tokenizer":
        """The inverse of `to_json`. Raises TokenizerError, which names whence it came, where it is something else."""
        try:
            inner = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises plain Exception for what it cannot parse
            raise TokenizerError(f"{whence} is not a tokenizer: {error}") from None
        if [inner.id_to_token(i) for i in (PAD, UNK, BOS, EOS)] != SPECIAL:
            raise TokenizerError(f"{whence} is not a tokenizer of Tapis: its first tokens must be {' '.join(SPECIAL)}")
        return cls(inner)

    def to_json(self) -> str:
        return self.inner.to_str()

    def __len__(self) -> int:
        return self.inner.get_vocab_size()

    def tokens(self) -> list[str]:
        """The vocabulary by id, in the characters that stand for bytes: what other programs call the tokens."""
        return [str(self.inner.id_to_token(i)) for i in range(len(self))]

    @cached_property
    def merged_from(self) -> NDArray[np.int64]:
        """(V, 2): the two tokens that each was merged from; −1 for bytes and special tokens, which no merge made."""
        pairs = np.full((len(self), 2), -1, dtype=np.int64)
        ids = self.inner.get_vocab()
        for left, right in json.loads(self.to_json())["model"]["merges"]:
            pairs[ids[left + right]] = ids[left], ids[right]
        return pairs

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        spaced = [BLANK + text for text in texts]
        return [encoding.ids for encoding in self.inner.encode_batch_fast(spaced, add_special_tokens=False)]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each token as it reads in the text, a blank as ▁; what is but a part of a character as its bytes: ⟨e2 80⟩."""
        found = []
        for token in ids:
            raw = bytes(_BYTE_OF[char] for char in str(self.inner.id_to_token(token)))
            try:
                found.append("".join("▁" if char.isspace() else char for char in raw.decode("utf-8")))
            except UnicodeDecodeError:
                found.append(f"⟨{raw.hex(' ')}⟩")
        return found

    def decode(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Texts without the blank before the first word. Bytes that are no UTF-8 become U+FFFD."""
        texts = self.inner.decode_batch([list(ids) for ids in batch], skip_special_tokens=True)
        return [text.removeprefix(BLANK) for text in texts]


def learn_tokenizer(pairs: Pairs, vocab_size: int) -> Tokenizer:
    """A tokenizer learned from both sides of the training pairs; learned once, then read from the cache."""
    file = cache_file("tokenizer", digest(pairs.key, vocab_size, WORDS, version("tokenizers")), ".json")
    if not file.is_file():

        def texts() -> Iterator[str]:
            with progress_bar("counting words", len(pairs), "pair", shown=len(pairs) > 50_000) as bar:
                for pair in pairs:
                    yield from pair
                    bar.update()

        write_text(file, Tokenizer.train(texts(), vocab_size).to_json())
    return Tokenizer.from_json(file.read_text(encoding="utf-8"), str(file))
