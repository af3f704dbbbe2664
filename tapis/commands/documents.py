"""Documents that the command translates: files, folders and zip archives of files, and a report of what is in them."""

import csv
import html
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from tapis.config import ConfigError, TapisError
from tapis.documents.archives import changed_archive
from tapis.documents.common import DocumentError, located, texts_left, warnings_noted
from tapis.documents.formats import FORMAT_OF_ENDING, FORMATS, TABLES, DocumentFormat, table_format
from tapis.documents.subtitles import srt_warnings
from tapis.memory import ALMOST_EQUAL, Memory
from tapis.system.cli import TranslateOptions
from tapis.system.files import write_text, write_whole
from tapis.system.terminal import say
from tapis.text.lines import COMPRESSED_ENDINGS, compressed, file_type, open_bytes
from tapis.text.markup import Markup, plain
from tapis.translation import Translation

LARGEST = 100_000_000  # bytes of a document, which is translated in memory
# How names begin of files that programs leave beside documents: the locks of Office, and the attributes of macOS
NO_DOCUMENTS = ("~$", "._")
MOST_WARNINGS = 10  # about lines of a document

TranslateLines = Callable[[Sequence[str], Markup], list[Translation]]


class Segment(NamedTuple):
    """A text of a document."""

    document: str
    number: int
    source: str
    translation: str
    doubts: tuple[str, ...]
    memory: str = ""
    """What the translation memory has: the text, or one that is like it"""


class Documents:
    """Translates documents, and keeps what they hold for a report."""

    def __init__(
        self, translate: TranslateLines, columns: Sequence[str], memory: Memory | None = None, source: str = ""
    ) -> None:
        """Take what translates lines of a markup, the columns of tables, and the memory that the report shows.

        The source language, if it is known, tells the code page of tables.
        """
        self.translate = translate
        self.columns = columns
        self.source = source
        self.memory = memory
        self.segments: list[Segment] = []

    def format_among_others(self, file: Path) -> DocumentFormat | None:
        """Return the format of a file in a folder or an archive, where .txt is text that is wrapped at a column."""
        if file.name.startswith(NO_DOCUMENTS):
            return None
        return format_of(file, self.columns) or (FORMATS["text"] if file_type(file) == ".txt" else None)

    def translated(self, content: bytes, name: str, kind: DocumentFormat) -> bytes:
        """Return a document, whose name is for messages, translated. Raises TapisError if it is not of its format."""

        def translated_lines(lines: Sequence[str]) -> list[str]:
            found = self.translate(lines, kind.markup)
            first = len(self.segments) + 1
            self.segments += [
                Segment(
                    name,
                    number,
                    plain(line, kind.markup),
                    plain(one.text, kind.markup),
                    one.doubts,
                    self.in_memory(line, one, kind.markup),
                )
                for number, (line, one) in enumerate(zip(lines, found, strict=True), first)
            ]
            return [one.text for one in found]

        try:
            with texts_left() as left, warnings_noted() as warnings:
                result = kind.translated(content, translated_lines, self.source)
        except DocumentError as error:
            raise TapisError(located(name, error)) from None
        for one in left:
            self.leave(name, one.reason, one.text)
        warn_of_lines(f"{name}:", warnings)
        if kind is FORMATS["srt"]:
            warn_of_lines(name, list(srt_warnings(content.decode())))
        return result

    def in_memory(self, line: str, translation: Translation, markup: Markup) -> str:
        """Return what the memory has of a line, for a person to read: 100 % only of a translation that is used."""
        if not self.memory:
            return ""
        if translation.is_remembered:
            return "100 %"
        sentences = translation.sentences
        if n_remembered := sum(sentence.is_remembered for sentence in sentences):
            return f"100 % of {n_remembered} of {len(sentences)} sentences"
        match = self.memory.near(plain(line, markup))
        if not match:
            return ""
        similarity = min(match.similarity, ALMOST_EQUAL)  # the same text with other marks was not used
        return f"{100 * similarity:.0f} %: {match.source} → {match.target}"

    def translated_archive(self, content: bytes, name: str) -> bytes:
        """Return a zip archive with the documents in it translated."""

        def change(member: str, one: bytes) -> bytes:
            if member.endswith("/"):  # a folder
                return one
            is_compressed = Path(member).suffix in COMPRESSED_ENDINGS  # within the archive, which remains as it is
            kind = None if is_compressed else self.format_among_others(Path(member))
            return self.translated_if_possible(one, f"{name}/{member}", kind)

        try:
            return changed_archive(content, change)
        except DocumentError as error:
            raise TapisError(f"{name}: {error}") from None

    def translated_if_possible(self, content: bytes, name: str, kind: DocumentFormat | None) -> bytes:
        """Return a document among others translated; as it was, with a warning, if it is not of its format."""
        reason = "no document"
        if kind:
            try:
                return self.translated(content, name, kind)
            except TapisError as error:
                say(f"warning: {error}; it stays as it is")
                reason = str(error)
        self.leave(name, reason)
        return content

    def leave(self, name: str, reason: str, text: str = "") -> None:
        """Add to the report a file that is left, or a text of it."""
        self.segments.append(Segment(name, len(self.segments) + 1, text, "", (f"left: {reason}",)))

    def translate_folder(self, folder: Path, output: Path) -> int:
        """Write the files of a folder, with the documents among them translated, to the same paths in another folder.

        Links are left out. A file that is there already is left as it is, so that a command that was interrupted can be
        given again. What cannot be read or translated is left out with a warning, so that the same command tries it
        again. Return how many files that are.
        """
        n_before = n_failed = 0
        output.mkdir(parents=True, exist_ok=True)
        for path in paths_in(folder):
            target = output / path.relative_to(folder)
            if path.is_file() and target.exists():
                n_before += 1
                self.leave(str(path), "it was there already")
                continue
            try:
                self.write_translated(path, target)
            except TapisError as error:
                n_failed += 1
                say(f"warning: {error}; it is left out")
                self.leave(str(path), str(error))
        if n_before:
            were, stay = ("file was", "stays as it is") if n_before == 1 else ("files were", "stay as they are")
            say(f"{n_before:,} {were} in {output} already, and {stay}")
        return n_failed

    def write_translated(self, path: Path, target: Path) -> None:
        """Write a document translated, a copy of another file with its permission bits, or an empty folder.

        Raises TapisError if it cannot be read. An error in writing is another one, which ends the command: all further
        files would have it.
        """
        kind = self.format_among_others(path)
        if path.is_file() and kind:
            write_document(target, self.translated(read_document(path), str(path), kind))
            return
        if not can_be_read(path):
            raise TapisError(f"{path} cannot be read")
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            self.leave(str(path), "no document")
            mode = path.stat().st_mode & 0o777  # without the bits that let a program run as its owner
            write_whole(target, lambda temporary: shutil.copyfile(path, temporary), mode)

    def write_report(self, report: Path) -> None:
        """Write the texts that were translated, with their translations and doubts, as a table or a page."""
        rows = [
            (one.document, str(one.number), one.source, one.translation, one.memory, ", ".join(one.doubts))
            for one in self.segments
        ]
        columns = ("document", "number", "source", "translation", "memory", "doubts")  # and what was left, and why
        if report.suffix == ".tsv":
            table = io.StringIO()
            writer = csv.writer(table, delimiter="\t", lineterminator="\n")
            writer.writerows([columns, *rows])
            content = table.getvalue()
        else:
            content = page_of(columns, rows)
        write_text(report, content.encode("utf-8", "replace").decode("utf-8"))  # without lone surrogates


def format_of(file: Path, columns: Sequence[str]) -> DocumentFormat | None:
    """Return the format of a file by its name, with the columns of tables to translate; None if it is no document."""
    ending = file_type(file)
    if ending in TABLES:
        return table_format(columns, "" if ending == ".csv" else "\t")
    return FORMATS[FORMAT_OF_ENDING[ending]] if ending in FORMAT_OF_ENDING else None


def page_of(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a page with a table; rows whose last cell is not empty are marked."""

    def row(cells: Sequence[str], tag: str, of_row: str = "") -> str:
        return f"<tr{of_row}>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>\n"

    body = "".join(row(cells, "td", ' class="doubtful"' if cells[-1] else "") for cells in rows)
    n_doubtful = sum(bool(cells[-1]) for cells in rows)
    style = "table {border-collapse: collapse} td, th {border: 1px solid gray; padding: 4px; text-align: left}"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Translations</title>\n'
        f"<style>{style} .doubtful {{background: #fff2cc; color: black}}</style></head>\n"
        f"<body><p>{len(rows):,} texts, {n_doubtful:,} doubtful or left.</p>\n"
        f"<table>\n{row(columns, 'th')}{body}</table></body></html>\n"
    )


def paths_in(folder: Path) -> Iterator[Path]:
    """Yield the files and folders in a folder and in those within it, in order, but no links."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink():
            say(f"warning: {path} is a link, and left out")
        elif path.is_dir():
            yield path
            if can_be_read(path):
                yield from paths_in(path)
        elif path.is_file():
            yield path


def is_begun(folder: Path, output: Path) -> bool:
    """Return whether an output folder has files that `translate_folder` leaves as they are."""
    return any(path.is_file() and (folder / path.relative_to(output)).is_file() for path in output.rglob("*"))


def can_be_read(path: Path) -> bool:
    """Return whether this user may read a file, or list a folder and reach the files in it."""
    return os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK)


def read_document(file: Path | None) -> bytes:
    """Return the content of a document, or of standard input.

    Raises TapisError if it cannot be read, or is too large.
    """
    with open_bytes(file) if file else nullcontext(sys.stdin.buffer) as stream:
        content = stream.read(LARGEST + 1)
    if len(content) > LARGEST:
        name = file or "standard input"
        raise TapisError(f"{name} is larger than {LARGEST / 1e6:,.0f} MB: translate its lines, with --format lines")
    return content


def write_document(output: Path, content: bytes) -> None:
    """Write a document, compressed as its name says."""
    write_whole(output, lambda temporary: temporary.write_bytes(compressed(content, output)))


def check_report(options: TranslateOptions, is_document: bool) -> None:
    """Raise ConfigError if a report is wanted that cannot be made."""
    if options.report and options.report.suffix not in (".tsv", ".html"):
        raise ConfigError(f"--report {options.report}: the name must end in .tsv or .html")
    if options.report and not is_document:
        raise ConfigError("--report is for documents; of lines, --doubts marks the doubtful ones")


def warn_of_lines(name: str, warnings: Sequence[str]) -> None:
    """Print the first MOST_WARNINGS warnings about lines of a document on standard error, and how many others are."""
    for warning in warnings[:MOST_WARNINGS]:
        say(f"warning: {name} {warning}")
    if len(warnings) > MOST_WARNINGS:
        say(f"warning: {name}: {len(warnings) - MOST_WARNINGS:,} more such lines")
