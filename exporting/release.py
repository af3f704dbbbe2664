"""A run to publish: its files without paths of this machine, a model card, checksums, and all of them in an archive."""

import gzip
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from checkpoint import RunFolder
from decoding.standard import check_standard
from exporting.card import card
from exporting.naming import data_name, public
from pairs.origins import origins
from pairs.report import DataReport
from tapis.system.files import write_whole
from tapis.system.hub import write_sums
from training.metrics import AncestorRecord, load_metrics, save_metrics
from training.records import RoundReport


def to_release(folder: RunFolder, into: Path, license: str) -> None:
    """Fill a folder with the run and a model card, without the training state and without paths of this machine.

    license is the hub's identifier, such as mit or cc-by-4.0.
    """
    config, _, model = folder.load_model(torch.device("cpu"))  # checks all files
    check_standard(model, folder.nonstandard_part(), "the package tapis, by which others translate,")
    metrics = load_metrics(folder)
    released_config = public(config)
    names = [origin.full_name for origin in origins(released_config)]
    sources = [public_report(report, name) for name, report in zip(names, metrics.data.sources, strict=False)]
    metrics.data = replace(public_report(metrics.data, ", ".join(released_config.data)), sources=sources)
    metrics.init_from = public_ancestor(metrics.init_from)
    teachers = dict(zip(config.teacher, released_config.teacher, strict=True))
    metrics.rounds = [public_round(report, teachers) for report in metrics.rounds]

    released = RunFolder(into)
    released.save_config(released_config)
    released.save_learned(folder.load_learned())
    shutil.copyfile(folder.tokenizer_file, released.tokenizer_file)  # unchanged: the model file has its digest
    shutil.copyfile(folder.model_file, released.model_file)
    save_metrics(released, metrics)
    text = card(released.load_config(), released.load_learned(), metrics, license)
    (into / "README.md").write_text(text, encoding="utf-8")
    write_sums(into)


def public_report(report: DataReport, name: str) -> DataReport:
    """Return the report of some data under another name, without notes and unreadable rows, which name files."""
    return replace(report, name=name, unreadable=replace(report.unreadable, examples=[]), notes=[])


def public_round(report: RoundReport, teachers: Mapping[str, str]) -> RoundReport:
    """Return what a round did, with the public names of teachers."""
    return replace(report, judged=[replace(one, by=teachers.get(one.by, "")) for one in report.judged])


def public_ancestor(record: AncestorRecord | None) -> AncestorRecord | None:
    """Return the record of the run that this one started from, and of those before it, without paths."""
    if not record:
        return None
    data = [data_name(name) for name in record.data]
    return replace(record, data=data, init_from=public_ancestor(record.init_from))


def pack(folder: Path, archive: Path) -> None:
    """Write a folder as a .tar.gz archive. The same files always give the same bytes."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        """Remove what depends on this machine: the time, the owner and the permissions."""
        member.mtime = 0
        member.mode = 0o644
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    def write(path: Path) -> None:
        with (
            path.open("wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=0) as zipped,
            tarfile.open(None, "w", zipped) as tar,
        ):
            for member in sorted(folder.iterdir()):
                tar.add(member, f"{folder.name}/{member.name}", filter=anonymous)

    write_whole(archive, write)
