"""Sentence pairs: from the hub, from a folder or from the built-in demo, cleaned, split, and with a report.

`load_corpus` is the whole of it: read the parts that there are (`_read_hub`, `_read_files`), repair and drop pairs by
the named rules of `clean`, make the parts that are missing (`split`), and take out of training what validation or
test also hold (`without_leaks`). Lengths in tokens are not known here: dataset.py drops what is too long.
"""

import contextlib
import hashlib
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config import Config, TapisError

Pair = tuple[str, str]
PARTS = ("train", "valid", "test")
DEMO = Path(__file__).parent / "demo"
HUB_SECONDS = 5.0  # how long the hub may take to answer that it is there


class DataError(TapisError):
    """The data cannot be had or cannot be used, and what to do about it."""


@dataclass
class Rule:
    """What one rule did: to how many pairs, and to which, for example."""

    name: str
    count: int = 0
    examples: list[Pair] = field(default_factory=list)

    def add(self, pair: Pair) -> None:
        self.count += 1
        if len(self.examples) < 2:
            self.examples.append(pair)


@dataclass
class Corpus:
    """The pairs of the three parts, source side first, and what was done to them."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]
    read: int
    rules: list[Rule]

    def report(self) -> dict[str, Any]:
        """The counts, for metrics.json."""
        return {
            "read": self.read,
            "dropped": {rule.name: rule.count for rule in self.rules},
            "train": len(self.train),
            "valid": len(self.valid),
            "test": len(self.test),
        }


def load_corpus(config: Config) -> Corpus:
    """Reads, cleans and splits `config.data`. Raises DataError, in words, where that cannot be done."""
    folder = DEMO if config.data == "demo" else Path(config.data).expanduser()
    if folder.is_dir() and any(folder.glob("train.*")) and not any(folder.glob("*/")):
        parts = _read_files(folder, config.source, config.target)
    elif folder.is_dir() or _is_hub_id(config.data):
        parts = _read_hub(config.data if not folder.is_dir() else str(folder), config.source, config.target)
    else:
        raise DataError(
            f"--data {config.data}: no such folder, and no hub id (OWNER/NAME)\n"
            "type a folder of train/valid/test.<language> files, or: python train.py demo"
        )
    read = sum(len(pairs) for pairs in parts.values())
    rules = [Rule("empty side"), Rule("exact duplicate"), Rule("in training and in another part")]
    parts = {name: list(clean(pairs, rules[0])) for name, pairs in parts.items()}
    parts["train"] = list(without_duplicates(parts["train"], rules[1]))
    parts = split(parts, config.valid_share, config.test_share)
    parts["train"] = list(without_leaks(parts["train"], parts["valid"] + parts["test"], rules[2]))
    if not parts["train"] or not parts["valid"]:
        empty = "train" if not parts["train"] else "valid"
        raise DataError(f"--data {config.data}: no pairs in the {empty} part, of {read:,} rows read")
    return Corpus(parts["train"], parts["valid"], parts["test"], read, rules)


def clean(pairs: Iterable[Pair], empty: Rule) -> Iterator[Pair]:
    """Unicode to NFC, white space to single blanks, edges stripped; pairs with an empty side dropped."""
    for source, target in pairs:
        pair = (_tidy(source), _tidy(target))
        if pair[0] and pair[1]:
            yield pair
        else:
            empty.add(pair)


def without_duplicates(pairs: Iterable[Pair], duplicate: Rule) -> Iterator[Pair]:
    """Each pair once. Not for given valid and test parts, whose published form is what scores are compared on."""
    seen: set[Pair] = set()
    for pair in pairs:
        if pair in seen:
            duplicate.add(pair)
        else:
            seen.add(pair)
            yield pair


def _tidy(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def normalize(text: str) -> str:
    """What two texts are compared by when looking for leaks: letters and digits only, without case or form."""
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())


def split(parts: dict[str, list[Pair]], valid_share: float, test_share: float) -> dict[str, list[Pair]]:
    """Train, valid and test, the missing ones taken out of train by a hash of the normalized pair.

    The same pair falls on the same side for ever: on every machine, in either direction, after the data has grown.
    """
    made: dict[str, list[Pair]] = {name: list(parts.get(name, [])) for name in PARTS}
    shares = {name: share for name, share in (("valid", valid_share), ("test", test_share)) if name not in parts}
    made["train"] = []
    for pair in parts["train"]:
        digest = hashlib.sha256("\n".join(sorted(map(normalize, pair))).encode("utf-8")).digest()
        draw = int.from_bytes(digest[:8], "big") / 2**64
        for name, share in shares.items():
            if draw < share:
                made[name].append(pair)
                break
            draw -= share
        else:
            made["train"].append(pair)
    return made


def without_leaks(train: list[Pair], held_out: list[Pair], leak: Rule) -> Iterator[Pair]:
    """The training pairs of which neither side occurs in a pair held out."""
    sources = {normalize(source) for source, _ in held_out}
    targets = {normalize(target) for _, target in held_out}
    for pair in train:
        if normalize(pair[0]) in sources or normalize(pair[1]) in targets:
            leak.add(pair)
        else:
            yield pair


def _read_files(folder: Path, source: str, target: str) -> dict[str, list[Pair]]:
    """The parts of a folder of `train.en`, `train.fr`, `valid.en` … files, one sentence a line, UTF-8."""
    languages = sorted({path.name.partition(".")[2] for path in folder.glob("train.*")})
    for language in (source, target):
        if language not in languages:
            raise DataError(
                f"{folder} has no train.{language}\n"
                f"choose among these with --source and --target: {', '.join(languages)}"
            )
    parts = {}
    for part in PARTS:
        paths = [folder / f"{part}.{language}" for language in (source, target)]
        if not any(path.exists() for path in paths):
            continue
        for path in paths:
            if not path.exists():
                raise DataError(f"{path} is missing beside its other language")
        sides = [read_lines(path) for path in paths]
        if len(sides[0]) != len(sides[1]):
            raise DataError(f"{paths[0]} has {len(sides[0]):,} lines, {paths[1]} {len(sides[1]):,}: they must be pairs")
        parts[part] = list(zip(*sides, strict=True))
    return parts


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, with or without BOM, LF or CRLF. Raises DataError for what is not that."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 at byte {error.start:,}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    lines = text.replace("\r\n", "\n").split("\n")  # not splitlines, which also cuts at U+2028 and others
    return lines[:-1] if not lines[-1] else lines


def _is_hub_id(name: str) -> bool:
    owner, slash, rest = name.partition("/")
    return bool(owner.strip(".~") and slash and rest) and "/" not in rest and "\\" not in name


def _read_hub(name: str, source: str, target: str) -> dict[str, list[Pair]]:
    """The parts of a dataset in the hub's layout, on the hub or in a folder, in either order of the pair."""
    import datasets  # noqa: PLC0415 - half a second that no other data needs
    import huggingface_hub  # noqa: PLC0415

    is_offline = not Path(name).is_dir() and not _hub_answers(name)
    if is_offline:  # what an earlier run has fetched is still used, and a dead line not retried
        datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True
    datasets.disable_progress_bars()
    try:
        loaded = _load_pair(name, source, target)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        if is_offline:
            raise DataError(
                f"the hub cannot be reached for {name}, and no earlier copy of {source}-{target} is here\n"
                "type instead: python train.py demo, or: python train.py --data FOLDER"
            ) from None
        raise DataError(f"{name} cannot be loaded: {' '.join(str(error).split())}") from None
    names = {"train": "train", "validation": "valid", "test": "test"}
    parts = {}
    for split_name, rows in loaded.items():
        if split_name not in names:
            continue
        if "translation" not in rows.column_names:
            raise DataError(f"{name}: no column `translation` among {', '.join(rows.column_names)}")
        translations = rows["translation"]
        parts[names[split_name]] = [(row[source] or "", row[target] or "") for row in translations]
    if "train" not in parts:
        raise DataError(f"{name} has no train split, only {', '.join(loaded)}")
    return parts


def _load_pair(name: str, source: str, target: str) -> Any:
    """The splits of the pair, which the hub stores once, in either order. Raises what `datasets` raises."""
    import datasets  # noqa: PLC0415

    either = [f"{source}-{target}", f"{target}-{source}"]
    if datasets.config.HF_HUB_OFFLINE and not Path(name).is_dir():  # copies have no list of pairs, so both are tried
        with contextlib.suppress(ValueError):
            return datasets.load_dataset(name, either[0])
        return datasets.load_dataset(name, either[1])
    pairs = datasets.get_dataset_config_names(name)
    if not (found := [pair for pair in either if pair in pairs]):
        raise DataError(
            f"{name} has neither {either[0]} nor {either[1]}\n"
            f"choose among these with --source and --target: {', '.join(pairs)}"
        )
    return datasets.load_dataset(name, found[0])


def _hub_answers(name: str) -> bool:
    """Whether the hub can be reached. Asked first, since its client retries a dead line for half a minute."""
    import huggingface_hub  # noqa: PLC0415

    try:
        huggingface_hub.HfApi().dataset_info(name, timeout=HUB_SECONDS)
    except huggingface_hub.errors.HfHubHTTPError:
        return True  # it answered, if only to say no
    except Exception:  # whatever the network library of the installed version raises
        return False
    return True
