"""A fuzzer of files: whatever a file holds, its reader ends in time, in words, and opens nothing else.

    PYTHONPATH=. python tests/fuzzing.py --cases 10000
    PYTHONPATH=. python tests/fuzzing.py --first 4711 --cases 1      one case again, with its file in ./case

A case takes one of the files in `SEEDS`, changes it in one to four places, and has it read in a process of its own,
with limits on its time, its memory, what it writes and the files that it opens. A reader may return, or raise a
TapisError of one or two lines. Everything else is a finding: another exception, a signal, a limit, a connection, and a
file that is opened outside of the case's folder. A case is determined by its number.
"""

import argparse
import bz2
import gzip
import io
import json
import lzma
import os
import random
import resource
import shutil
import signal
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import babel.dates  # noqa: F401 - importing it opens the time zone of the machine, once
import datasets
import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from document_samples import SAMPLES

from checkpoint import RunFolder, parameters
from config import PRESETS
from decoding.translator import Translator
from exporting.ctranslate2 import to_ctranslate2
from exporting.release import to_release
from model import Transformer
from pairs.batches import clean_batch
from pairs.cleaning import RULES, Cleaner
from pairs.corpus import Corpus
from pairs.origins import Origin
from pairs.readers import read_parts
from pairs.tables import Pairs
from pairs.unreadable import Unreadable
from tapis.config import TapisError
from tapis.ctranslate2 import is_exported
from tapis.documents.formats import FORMATS
from tapis.system.files import cache_folder, whole_folder
from tapis.system.hub import SUMS, unpack, write_sums
from tapis.system.terminal import printable
from tapis.text.tokenizer import Tokenizer
from tapis.typed_text import translate_lines
from training.metrics import load_metrics
from training.state import restore, state_of
from training.trainer import Training

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 20.0  # of a case
MEGABYTES = 1_000  # that a case may take more than the process that it is forked from
DESCRIPTORS = 100
WRITTEN_BYTES = 200_000_000
MAX_SHOWN = 2_000  # characters of an error

# What often breaks readers
TOKENS = [
    *(b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n\n", b"\t", b'"', b"'", b"\\", b"<", b"&", b"{", b"]"),
    *("\ud800".encode("utf-8", "surrogatepass"), "\u2028".encode(), "\x85".encode(), "\u202e".encode(), b"\x1b[2J"),
    *(b"---", b"-1", b"0", b"1e999", b"NaN", b"null", b"9" * 400, b"9" * 20, b"4294967296", b"0x7fffffff"),
    *(b"../../etc/passwd", b"/etc/passwd", b"/dev/zero", b"https://a.org/x", b"file:///etc/passwd", b"hf://a/b/c"),
    *(b"&a;", b'<!DOCTYPE x [<!ENTITY a "aaaa">]>', b"<tuv>", b"</tu>", b"<![CDATA[", b"&#xD800;", b"[" * 3000),
    *(b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b", b"PAR1", b"ustar", b"A" * 100_000, b"<b>" * 3000),
]
VALUES: list[Any] = [
    *(
        None,
        True,
        -1,
        0,
        1,
        2**31,
        2**63,
        10**30,
        1e-300,
        1e308,
        float("nan"),
        float("inf"),
        "",
        "x",
        "\ud800",
        "\x1b[2J",
    ),
    *("../../etc/passwd", "https://a.org/x", "a" * 100_000, [], {}, [[]], {"": {}}, ["a"] * 1000, [1, "2", None]),
]


@dataclass(frozen=True)
class Seed:
    """A file to be changed, in a folder of files as they should be, and what reads it."""

    folder: Path
    file: str
    read: Callable[[Path], object]
    """Reads the folder"""

    def __str__(self) -> str:
        return f"{self.folder.name}/{self.file}"


# The files


def make_seeds(into: Path) -> list[Seed]:
    """Write a run, a release, an export, archives, data of each format and documents, and return them as seeds."""
    torch.set_num_threads(1)  # a forked process has no threads
    pairs = [(f"The cat {i} sleeps on the mat.", f"Le chat {i} dort sur le tapis.") for i in range(60)]
    tokenizer = Tokenizer.train((side for pair in pairs for side in pair), 300)
    config = replace(
        PRESETS["demo"],
        d_model=16,
        n_heads=2,
        d_ff=32,
        vocab_size=300,
        precision="fp32",
        device="cpu",
        name="run",
    )

    # A run, with its state, and what is made of it.
    run = RunFolder(into / "run")
    train, valid, test = (part_of(pairs[start : start + 20]) for start in (0, 20, 40))
    corpus = Corpus(train, valid, test, origins=[Origin("x", "x", "en", "fr")])
    training = Training(config, corpus, tokenizer)
    run.start(config, tokenizer)
    run.save_model(parameters(Transformer(len(tokenizer), config)))
    run.save_metrics({"data": {"read": 60}, "best": {"step": 1, "loss": 1, "perplexity": 2, "bleu": 3, "chrf": 4}})
    run.save_learned(training.learned)
    run.save_state(state_of(training))
    seeds = [
        *(Seed(run.path, file, translate) for file in ("config.json", "tokenizer.json", "model.safetensors")),
        *(Seed(run.path, file, translate) for file in ("learned.json", "metrics.json")),
        Seed(run.path, "metrics.json", release),
        Seed(run.path, "training/state.safetensors", partial(resume, training=training)),
    ]

    whole_folder(into / "release", lambda folder: to_release(run, folder, "mit"))
    seeds += [Seed(into / "release", file, translate) for file in ("SHA256SUMS", "config.json", "model.safetensors")]
    archive(into / "release", into / "archive" / "x.tar.gz")
    seeds.append(Seed(into / "archive", "x.tar.gz", read_archive))

    whole_folder(into / "export", lambda folder: to_ctranslate2(run, folder, "int8"))
    for path in sorted((into / "export").iterdir()):
        if path.suffix in (".json", ".bin"):
            seeds.append(Seed(into / "export", path.name, translate))

    # Data
    lines = [side + "\n" for pair in pairs for side in pair]
    english, french = "".join(lines[::2]), "".join(lines[1::2])
    texts = {
        "x.tsv": "en\tfr\n" + "".join(f"{a}\t{b}\n" for a, b in pairs),
        "x.csv": 'en,fr\n"a ""b""\nc",d\n' + "".join(f'"{a}";"{b}"\n'.replace(";", ",") for a, b in pairs),
        "x.jsonl": "".join(json.dumps({"translation": {"en": a, "fr": b}}) + "\n" for a, b in pairs),
        "x.tmx": tmx(pairs),
    }
    files = {name: text.encode() for name, text in texts.items()}
    table, packed = io.BytesIO(), io.BytesIO()
    pq.write_table(pa.Table.from_pylist([{"translation": {"en": a, "fr": b}} for a, b in pairs]), table)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as moses:
        moses.writestr("x.en-fr.en", english)
        moses.writestr("x.en-fr.fr", french)
        moses.writestr("README", "a text")
    files |= {"x.parquet": table.getvalue(), "x.zip": packed.getvalue()}
    files |= {"x.tsv.gz": gzip.compress(files["x.tsv"]), "x.csv.xz": lzma.compress(files["x.csv"])}
    files["x.jsonl.zst"] = pa.compress(files["x.jsonl"], codec="zstd", asbytes=True)
    files["x.tmx.bz2"] = bz2.compress(files["x.tmx"])
    files |= {"x.xlsx": xlsx(pairs), "x.ods": ods(pairs)}
    for name, raw in files.items():
        folder = into / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_bytes(raw)
        seeds.append(Seed(folder, name, partial(read_data, name=name)))
    (into / "parts").mkdir()
    for part in ("train", "valid"):
        (into / "parts" / f"{part}.en").write_text(english, encoding="utf-8")
        (into / "parts" / f"{part}.fr").write_text(french, encoding="utf-8")
    seeds.append(Seed(into / "parts", "train.fr", partial(read_data, name="")))

    return [*seeds, *document_seeds(into)]


def document_seeds(into: Path) -> list[Seed]:
    """Write a document of each format, and return them as seeds."""
    seeds = []
    documents = {
        "html": "<!doctype html><p class=x>One <b>two</b> &amp; <a href='y'>three</a>.</p><script>a</script>",
        "markdown": "---\na: b\n---\n# One *two*\n\n| a | b |\n|---|---|\n| c | [d](e) |\n\n- [ ] one `two`\n",
        "srt": "1\n00:00:01,000 --> 00:00:02,000\nOne two.\n\n2\n00:00:03,000 --> 00:00:04,000\nThree\nfour.\n",
    }
    contents = {name: text.encode() * 3 for name, text in documents.items()}
    contents |= {name: document for name, (document, _) in SAMPLES.items()}
    for name, content in contents.items():
        (into / name).mkdir(exist_ok=True)
        (into / name / "x").write_bytes(content)
        seeds.append(Seed(into / name, "x", partial(read_document, kind=name)))
    return seeds


def part_of(pairs: list[tuple[str, str]]) -> Pairs:
    """A part of a corpus, in memory."""
    rows = datasets.Dataset.from_dict(clean_batch(Cleaner("en", "fr", RULES), pairs))
    return Pairs(rows, np.arange(len(pairs)), str(len(pairs)))


def tmx(pairs: list[tuple[str, str]]) -> str:
    """A translation memory."""
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{a} <bpt i="1">x</bpt></seg></tuv><tuv xml:lang="fr"><seg>{b}</seg></tuv></tu>\n'
        for a, b in pairs
    )
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>'
    )


def xlsx(pairs: list[tuple[str, str]]) -> bytes:
    """A workbook of Excel."""
    workbook, packed = openpyxl.Workbook(), io.BytesIO()
    for row in (("en", "fr"), *pairs):
        workbook.worksheets[0].append(row)
    workbook.save(packed)
    return packed.getvalue()


def ods(pairs: list[tuple[str, str]]) -> bytes:
    """A workbook of LibreOffice."""
    table, text = (f"urn:oasis:names:tc:opendocument:xmlns:{name}:1.0" for name in ("table", "text"))
    cell = "<t:table-cell><x:p>{}</x:p></t:table-cell>"
    rows = "".join(f"<t:table-row>{cell.format(a)}{cell.format(b)}</t:table-row>" for a, b in (("en", "fr"), *pairs))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        xml = f'<a xmlns:t="{table}" xmlns:x="{text}"><t:table t:name="s">{rows}</t:table></a>'
        archive.writestr("content.xml", xml)
    return packed.getvalue()


def archive(folder: Path, file: Path) -> None:
    """Pack a folder as a release is."""
    file.parent.mkdir(exist_ok=True)
    with tarfile.open(file, "w:gz") as tar:
        tar.add(folder, folder.name)


# The readers


def translate(folder: Path) -> None:
    """Translate with a run, a release or an export."""
    translate_lines(Translator.load(folder, "cpu", "int8" if is_exported(folder) else "fp32"), ["The cat sleeps."])


def release(folder: Path) -> None:
    """Release a run, whose model card shows its metrics."""
    run = RunFolder(folder)
    load_metrics(run)
    whole_folder(folder / "out", lambda into: to_release(run, into, "mit"))


def resume(folder: Path, training: Training) -> None:
    """Resume a run."""
    restore(training, RunFolder(folder).load_state())
    state_of(training)


def read_archive(folder: Path) -> None:
    """Unpack an archive, and translate with what is in it."""
    translate(unpack(folder / "x.tar.gz"))


def read_data(folder: Path, name: str) -> None:
    """Read and clean all pairs of a file, or of a folder."""
    cleaner = Cleaner("en", "fr", ())
    for part in read_parts(str(folder / name), "en", "fr").values():
        for pair in part.rows:
            if isinstance(pair, Unreadable):
                continue
            assert all(isinstance(side, str) for side in pair)
            cleaner.judge([pair])


def read_document(folder: Path, kind: str) -> None:
    """Translate a document by a translator that copies."""
    FORMATS[kind].translated((folder / "x").read_bytes(), list)


# The changes


def changed(raw: bytes, name: str, chance: random.Random) -> bytes:
    """Return the bytes of a file with one to four changes: of its values, of its text, or of what is packed in it."""
    unpackers: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
        ".gz": (gzip.decompress, gzip.compress),
        ".xz": (lzma.decompress, lzma.compress),
    }
    suffix = Path(name).suffix
    if chance.random() < 0.7 and suffix in unpackers:
        unpacked, packed = unpackers[suffix]
        return packed(changed(unpacked(raw), Path(name).stem, chance))
    if chance.random() < 0.7 and suffix in (".zip", ".xlsx", ".ods"):
        return changed_zip(raw, chance)
    if chance.random() < 0.5 and suffix == ".safetensors":
        size = int.from_bytes(raw[:8], "little")
        header = changed_json(raw[8 : 8 + size], chance)
        return len(header).to_bytes(8, "little") + header + raw[8 + size :]
    for _ in range(chance.randint(1, 4)):
        is_json = suffix in (".json", ".jsonl") and chance.random() < 0.7
        raw = changed_json(raw, chance) if is_json else changed_bytes(raw, chance)
    return raw


def changed_bytes(raw: bytes, chance: random.Random) -> bytes:
    """Flip a bit, cut, double or move a piece, or put in a token."""
    start, end = sorted(chance.randint(0, len(raw)) for _ in range(2))
    end = min(end, start + chance.choice([1, 4, 16, 256, len(raw)]))
    match chance.randrange(6):
        case 0 if raw:
            place = chance.randrange(len(raw))
            return raw[:place] + bytes([raw[place] ^ (1 << chance.randrange(8))]) + raw[place + 1 :]
        case 1:
            return raw[:start] + raw[end:]
        case 2:
            return raw[:end] + raw[start:end] * chance.choice([1, 2, 100]) + raw[end:]
        case 3:
            return raw[:start]
        case 4:
            return raw[:start] + chance.randbytes(end - start) + raw[end:]
        case _:
            return raw[:start] + chance.choice(TOKENS) + raw[end if chance.random() < 0.5 else start :]


def changed_json(raw: bytes, chance: random.Random) -> bytes:
    """Change a value, a key, or the nesting of a JSON text, or of a line of JSON."""
    lines = raw.splitlines(keepends=True) if raw.count(b"\n}") > 1 or b"}\n{" in raw else [raw]
    row = chance.randrange(max(1, len(lines)))
    try:
        top = json.loads(lines[row])
    except (ValueError, IndexError, RecursionError):
        return changed_bytes(raw, chance)
    place, key = top, None
    while isinstance(place, dict | list) and place and (key is None or chance.random() < 0.7):
        holder, key = place, chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
        place = holder[key]
    if key is None:
        return changed_bytes(raw, chance)
    match chance.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[chance.choice(["", "x", "\x1b[2J", str(key) * 2, "name"])] = holder.pop(key)
        case 2:
            holder[key] = [holder[key]]
        case _:
            holder[key] = chance.choice(VALUES)
    lines[row] = json.dumps(top).encode() + b"\n" * (len(lines) > 1)
    return b"".join(lines)


def changed_zip(raw: bytes, chance: random.Random) -> bytes:
    """Change, rename, double or drop a member of a zip."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(result, "w", zipfile.ZIP_STORED) as new:
        names = old.namelist()
        chosen = chance.choice(names)
        for name in names:
            content = old.read(name)
            if name != chosen:
                new.writestr(name, content)
                continue
            match chance.randrange(5):
                case 0:
                    new.writestr(chance.choice(["../x", "/x", "x.en-fr.en", "x" * 5000, "\x1b[2J.fr"]), content)
                case 1:
                    new.writestr(name, content * chance.choice([2, 50]), zipfile.ZIP_DEFLATED)
                case 2:
                    pass
                case _:
                    new.writestr(name, changed_bytes(content, chance))
    return result.getvalue()


# One case


def run_case(number: int, seeds: list[Seed], work: Path) -> str:
    """Run a case in a process of its own. Returns what is wrong, and an empty string if nothing is."""
    chance = random.Random(number)
    seed = seeds[number % len(seeds)]
    folder = work / "case"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(seed.folder, folder)
    file = folder / seed.file
    file.write_bytes(changed(file.read_bytes(), seed.file, chance))
    if seed.file != SUMS and (folder / SUMS).exists():  # otherwise, every change would end at the checksums
        (folder / SUMS).unlink()
        write_sums(folder)

    # In the child: limits, a watch on what is opened, and the reader.
    said = work / "said"
    said.write_bytes(b"")
    child = os.fork()
    if not child:
        os._exit(_read_within_limits(seed, folder, said))

    # In the parent: wait.
    deadline = time.monotonic() + SECONDS
    done, status = 0, 0
    while not done and time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0 if done else 0.002)
    if not done:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return f"case {number}, {seed}: no end within {SECONDS:.0f} s"
    if status:
        ended = os.waitstatus_to_exitcode(status)
        return f"case {number}, {seed}: exit status {ended}\n{said.read_text(encoding='utf-8', errors='replace')}"
    return ""


def _read_within_limits(seed: Seed, folder: Path, said: Path) -> int:
    """Return 0 if the reader returns or says in words what is wrong, and 1 after writing down what it did instead."""
    wrong: list[str] = []
    cache = cache_folder()
    places = (folder, cache, sys.prefix, sys.base_prefix, ROOT, "/proc", "/sys")
    allowed = tuple(os.path.realpath(place) for place in places)

    temporary = os.path.realpath(tempfile.gettempdir())

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str | bytes):
            path = os.path.realpath(os.fsdecode(args[0]))
            is_own = path.startswith(allowed) or path == temporary  # where Python makes files without names
            if not is_own and Path(path).exists():
                wrong.append(f"it opened {path}")
        elif event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system"):
            wrong.append(f"it did {event} {args[1:]!r:.200}")

    try:
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEGABYTES * 10**6,) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (WRITTEN_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(said, os.O_WRONLY | os.O_APPEND), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.addaudithook(watch)
        try:
            seed.read(folder)
        except TapisError as error:
            shown = printable(str(error))
            if shown.count("\n") > 1 or len(shown) > MAX_SHOWN:
                wrong.append(f"an error of {shown.count(chr(10)) + 1} lines, {len(shown)} characters")
    except BaseException:
        wrong.append(traceback.format_exc(limit=-6))
    if wrong:
        said.write_text("\n".join(wrong), encoding="utf-8", errors="backslashreplace")
    return bool(wrong)


def main() -> None:
    """Run many cases, and print what is wrong with them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--cases", type=int, default=10_000, help="how many")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        os.environ["HF_DATASETS_CACHE"] = str(work / "cache")
        datasets.config.HF_DATASETS_CACHE = work / "cache"
        seeds = make_seeds(work)
        began = time.monotonic()
        n_wrong = 0
        for number in range(options.first, options.first + options.cases):
            if wrong := run_case(number, seeds, work):
                n_wrong += 1
                print(wrong, flush=True)
        if options.cases == 1:
            shutil.copytree(work / "case", "case", dirs_exist_ok=True)
    seconds = time.monotonic() - began
    print(f"{options.cases:,} cases of {len(seeds)} files in {seconds:,.0f} s: {n_wrong} findings")
    sys.exit(n_wrong > 0)


if __name__ == "__main__":
    main()
