"""The tokenizer: one joint subword vocabulary for both languages, learned from the training pairs alone.

Byte pair encoding (BPE) is Sennrich et al. 2016 (arXiv 1508.07909). It runs on bytes, as in GPT-2: every text can be
encoded and decoded back exactly, and no text becomes UNK. `Tokenizer` trains, saves, loads, encodes and decodes, by
means of the `tokenizers` library.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers, trainers

from tapis.config import TapisError
from tapis.system.terminal import in_one_line
from tapis.text.words import MARKS

WORD_PREFIX = " "  # prepended to every text, so that a word has the same tokens at the start as in the middle

# Tokens never cross these units: words, numbers, punctuation and whitespace, each with the space before it, as in
# GPT-2. Unlike GPT-2's, a word includes its combining marks, which Hindi needs, and the apostrophes inside it:
# l'homme, don't, п'ять.
WORD_PATTERN = r" ?[\p{L}\p{M}]+(?:['’][\p{L}\p{M}]+)*| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
SPECIAL_TOKENS = ["<pad>", "<unk>", "<s>", "</s>"]  # in the order of PAD, UNK, BOS, EOS

# Each character of a token stands for one byte, as in GPT-2: printable bytes for themselves, the others for the
# characters from U+0100 on.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHER_BYTES = sorted(set(range(256)) - set(_PRINTABLE))
_BYTE_OF_CHARACTER = {chr(byte): byte for byte in _PRINTABLE}
_BYTE_OF_CHARACTER |= {chr(0x100 + i): byte for i, byte in enumerate(_OTHER_BYTES)}
_TO_BYTES = {ord(character): byte for character, byte in _BYTE_OF_CHARACTER.items()}  # for `str.translate`

MAX_TOKEN_LENGTH = 1000  # bytes; a corpus may have lines of as many dashes

# How a word begins in tokens as readable text: with a space, or with a space and a part of a character (⟨20 e2 80⟩).
BEGINS_WORD = ("▁", "⟨20 ")

# Of tokens as readable text, in which ▁ is a space and ⟨e2 80⟩ a part of a character: perhaps of a letter.
_GOES_ON = re.compile(rf"[\w{MARKS}]|⟨(?!20 )")
_BINDS = re.compile(r"(?:['’(\[{„]|▁\W*[“‘]|(?<!▁)[-/])\Z")  # “ closes quotes in German: not directly behind a word
_ENDS_IN_SIGN = re.compile(rf"\A(?!⟨).*[^\w{MARKS}]\Z", re.DOTALL)

_TAG = re.compile(r"<2[A-Za-z0-9_-]{1,40}>")


class TokenizerError(TapisError):
    """A file does not contain a tokenizer of Tapis."""


class Tokenizer:
    """Text ↔ token ids. Encoded sentences contain no PAD, BOS or EOS: dataset.py adds them to batches."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        inner.encode_special_tokens = True  # "</s>" in a text is four characters, not EOS
        self.inner = inner

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, languages: Sequence[str] = ()) -> "Tokenizer":
        """Learn a vocabulary of at most `vocab_size` tokens. A small corpus may yield fewer.

        languages get a tag each: a token of its own, which no text contains. Words of more than MAX_TOKEN_LENGTH bytes
        are learned from in pieces: the library takes quadratic time for each. It also takes about 110 bytes of memory
        for each byte of all distinct words.
        """
        inner = _untrained()
        usual = inner.pre_tokenizer
        pieces = pre_tokenizers.Split(tokenizers.Regex(f".{{1,{MAX_TOKEN_LENGTH}}}"), "isolated")
        inner.pre_tokenizer = pre_tokenizers.Sequence([usual, pieces])
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[*SPECIAL_TOKENS, *map(_tag_of, languages)],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            max_token_length=MAX_TOKEN_LENGTH,
            show_progress=False,
        )
        inner.train_from_iterator((WORD_PREFIX + text for text in texts), trainer)
        inner.pre_tokenizer = usual
        return cls(inner)

    @classmethod
    def from_json(cls, text: str, origin: str) -> "Tokenizer":
        """Load a tokenizer from the text that `to_json` returned.

        `origin`, the file that the text was read from, is named in errors. Raises TokenizerError where the text is not
        a tokenizer that `train` may have made: other components of the library may crash, take any time, or print
        anything.
        """
        try:
            reason = _difference(json.loads(text))  # before the library reads it
            if not reason:
                inner = tokenizers.Tokenizer.from_str(text)
                reason = _difference(json.loads(inner.to_str()))  # as the library has read it
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library raises plain Exception for invalid input, or panics
            raise TokenizerError(f"{origin} is not a tokenizer: {in_one_line(error)}") from None
        if reason:
            raise TokenizerError(f"{origin} is not a tokenizer of Tapis: {reason}")
        return cls(inner)

    def to_json(self) -> str:
        """Return the tokenizer in the JSON format of the `tokenizers` library."""
        return self.inner.to_str()

    def __len__(self) -> int:
        """Return the size of the vocabulary, V."""
        return self.inner.get_vocab_size()

    def tokens(self) -> list[str]:
        """Return the vocabulary in the order of the ids, with one character for each byte, as other programs use it."""
        return [str(self.inner.id_to_token(i)) for i in range(len(self))]

    @cached_property
    def tags(self) -> dict[str, int]:
        """The id of the tag of each target language; empty for a model of one language pair.

        Their ids follow those of the special tokens. A source begins with the tag of the language to translate into.
        """
        ids = sorted(i for i in self.inner.get_added_tokens_decoder() if i >= len(SPECIAL_TOKENS))
        return {str(self.inner.id_to_token(i)).removeprefix("<2").removesuffix(">"): i for i in ids}

    @property
    def first_text_id(self) -> int:
        """The first id that stands for text. Those before it are special tokens and tags."""
        return len(SPECIAL_TOKENS) + len(self.tags)

    def has_tags_of(self, languages: Sequence[str]) -> bool:
        """Return whether it has a tag for each of these languages, in this order, and for no other."""
        return list(self.tags.items()) == [(language, len(SPECIAL_TOKENS) + i) for i, language in enumerate(languages)]

    @cached_property
    def merges(self) -> list[tuple[int, int]]:
        """The pairs of token ids that are merged, in the order in which they were learned."""
        id_of_token = self.inner.get_vocab()
        pairs = json.loads(self.to_json())["model"]["merges"]
        return [(id_of_token[left], id_of_token[right]) for left, right in pairs]

    @cached_property
    def merged_from(self) -> NDArray[np.int64]:
        """(V, 2): the two tokens that each token was merged from. −1 for bytes and special tokens."""
        merged_from = np.full((len(self), 2), -1, dtype=np.int64)
        tokens = self.tokens()
        id_of_token = {token: i for i, token in enumerate(tokens)}
        for left, right in self.merges:
            merged_from[id_of_token[tokens[left] + tokens[right]]] = left, right
        return merged_from

    @cached_property
    def characters(self) -> NDArray[np.int64]:
        """(V, 2): how many characters begin in each token, and how many of them the token has whole.

        A token that holds a part of a character counts as having none whole.
        """
        characters = np.zeros((len(self), 2), dtype=np.int64)
        for i in range(self.first_text_id, len(self)):
            raw = self._bytes_of(i)
            n_begun = sum(byte & 0xC0 != 0x80 for byte in raw)  # the other bytes of a character begin with the bits 10
            try:
                raw.decode("utf-8")
                characters[i] = n_begun, n_begun
            except UnicodeDecodeError:
                characters[i] = n_begun, 0
        return characters

    @cached_property
    def known_characters(self) -> frozenset[str]:
        """The characters that a token holds whole. Of the others, the training texts had few or none."""
        texts = (self._bytes_of(i).decode(errors="ignore") for i in range(self.first_text_id, len(self)))
        return frozenset(character for text in texts for character in text)

    @cached_property
    def word_borders(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Which tokens continue the word before them, which bind the next word, and which end in a sign; (V,) each.

        Those bind it that end in an apostrophe, or in a bracket, quote, hyphen or slash that words follow directly. A
        sign is what no word consists of; a space is one, too.
        """
        pieces = [self.pieces([i])[0] if i >= self.first_text_id else "" for i in range(len(self))]
        patterns = (_GOES_ON.match, _BINDS.search, _ENDS_IN_SIGN.search)
        goes_on, binds, ends_in_sign = (np.array([bool(has(piece)) for piece in pieces]) for has in patterns)
        return goes_on, binds, ends_in_sign

    def _bytes_of(self, token_id: int) -> bytes:
        """Return the bytes that a token of text stands for."""
        return str(self.inner.id_to_token(token_id)).translate(_TO_BYTES).encode("latin-1")

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, without special tokens and tags."""
        prefixed = [WORD_PREFIX + text for text in texts]
        return [encoding.ids for encoding in self.inner.encode_batch_fast(prefixed, add_special_tokens=False)]

    def encode_bound(self, text: str) -> list[int]:
        """Return the token ids of a text that follows another one without a space."""
        ids: list[int] = self.inner.encode(text, add_special_tokens=False).ids
        return ids

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each token as readable text: whitespace as ▁, an incomplete character as its bytes (⟨e2 80⟩)."""
        pieces = []
        for token_id in ids:
            raw = self._bytes_of(token_id)
            try:
                piece = "".join("▁" if character.isspace() else character for character in raw.decode("utf-8"))
            except UnicodeDecodeError:
                piece = f"⟨{raw.hex(' ')}⟩"
            pieces.append(piece)
        return pieces

    def decode(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each row of ids. Special tokens are skipped; invalid UTF-8 becomes U+FFFD (�)."""
        texts = self.inner.decode_batch([list(ids) for ids in batch], skip_special_tokens=True)
        return [text.removeprefix(WORD_PREFIX) for text in texts]


def _tag_of(language: str) -> str:
    return f"<2{language}>"


def _untrained() -> tokenizers.Tokenizer:
    """Return the tokenizer of the library, with the components of ours and without a vocabulary."""
    words = pre_tokenizers.Split(tokenizers.Regex(WORD_PATTERN), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Sequence([words, to_bytes])
    inner.decoder = decoders.ByteLevel()
    return inner


def _difference(found: dict[str, Any]) -> str:
    """Return in what a tokenizer, as JSON, differs from those of `Tokenizer.train`; empty if in nothing.

    Takes the vocabulary out of it. What the library did not write in an earlier version may be missing. Raises
    TypeError, LookupError or AttributeError for what is no tokenizer at all.
    """
    model, added = found["model"], found.pop("added_tokens")
    vocabulary = model.pop("vocab", {})
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model.pop("merges", [])]
    expected = json.loads(_untrained().to_str())
    if different := [name for name, value in found.items() if not _agrees(value, expected.get(name))]:
        return f"its {different[0]} is another"
    if missing := {"pre_tokenizer", "decoder"} - found.keys():
        return f"its {min(missing)} is missing"

    names = [token["content"] for token in added]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    if names[: len(SPECIAL_TOKENS)] != SPECIAL_TOKENS:
        return f"its first tokens must be {' '.join(SPECIAL_TOKENS)}"
    if added != [{"id": i, "content": name, **flags} for i, name in enumerate(names)]:
        return "its special tokens must be its first tokens"
    if not all(_TAG.fullmatch(name) for name in names[len(SPECIAL_TOKENS) :]):
        return "it has special tokens that are no tags of languages"
    return _difference_of_vocabulary(vocabulary, merges, names)


def _agrees(found: Any, expected: Any) -> bool:
    """Return whether a JSON value has nothing that the expected one has not; names may be missing from objects."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return all(name in expected and _agrees(value, expected[name]) for name, value in found.items())
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(_agrees, found, expected))
    return type(found) is type(expected) and bool(found == expected)


def _difference_of_vocabulary(vocabulary: dict[str, int], merges: Sequence[Sequence[str]], special: list[str]) -> str:
    """Return in what a vocabulary differs from ids 0 to V − 1 for special tokens, bytes, and merges of these.

    With an id beyond the vocabulary, the C extension would read beyond the embeddings.
    """
    size = len(vocabulary)
    if sorted(vocabulary.values()) != list(range(size)):
        return f"its ids must be 0 to {size - 1}"
    if [vocabulary.get(name) for name in special] != list(range(len(special))):
        return "its special tokens must be its first tokens"
    texts = vocabulary.keys() - set(special)
    if any(len(text) > MAX_TOKEN_LENGTH for text in texts):
        return f"it has tokens of more than {MAX_TOKEN_LENGTH:,} bytes"
    merged = {left + right for left, right in merges if left in texts and right in texts}
    if texts != merged | _BYTE_OF_CHARACTER.keys():
        return "its tokens must be the 256 bytes, and merges of other tokens"
    return ""
