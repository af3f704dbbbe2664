"""Documents that are zip archives of XML: .docx, .odt and .epub. Members that are not translated stay as they are."""

import contextlib
import io
import stat
import zipfile
import zlib
from collections.abc import Callable
from fnmatch import fnmatchcase

from tapis.documents.common import DocumentError, located
from tapis.system.terminal import in_one_line
from tapis.system.zips import OLE, content_of, has_password, problem_of_members
from tapis.text.lines import ALWAYS_ALLOWED_BYTES, MAX_EXPANSION

_IS_UTF8 = 0x800  # the flag of a member whose name is in UTF-8

Change = Callable[[str, bytes], bytes]
"""Translates the member of a name"""


def changed_archive(content: bytes, change: Change, must_have: str = "") -> bytes:
    """Return a zip archive with its members changed, but for links; the same bytes if none is.

    Raises DocumentError if it is damaged, has a password or a member twice, is far larger than it seems or compressed
    by a rare method, or has no member of the name must_have, where * stands for any characters. An error that change
    raises gets the name of the member.
    """
    if content.startswith(OLE):
        raise DocumentError("it has a password, or is an old file such as .doc: save it as .docx without a password")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if must_have and not any(fnmatchcase(name, must_have) for name in archive.namelist()):
                raise DocumentError(f"the archive has no {must_have}")
            if sum(member.file_size for member in members) > max(ALWAYS_ALLOWED_BYTES, MAX_EXPANSION * len(content)):
                raise DocumentError("it expands to far more than documents do")
            if problem := problem_of_members(archive):
                raise DocumentError(problem)
            if has_password(archive):
                raise DocumentError("it is encrypted: save it without a password")
            before = [content_of(archive, member) for member in members]
            comment = archive.comment
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, ValueError) as error:
        raise DocumentError(f"this is no whole zip archive: {error}") from None
    after = [_changed(member, one, change) for member, one in zip(members, before, strict=True)]
    if after == before:
        return content

    # Names in UTF-8 that are not marked as such, as macOS writes them, were taken for another encoding.
    for member in members:
        if not member.flag_bits & _IS_UTF8:
            with contextlib.suppress(UnicodeError):
                member.filename = member.filename.encode("cp437").decode("utf-8")
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.comment = comment
        for member, one in zip(members, after, strict=True):
            archive.writestr(member, one, member.compress_type)
    return written.getvalue()


def _changed(member: zipfile.ZipInfo, content: bytes, change: Change) -> bytes:
    """Return the changed content of a member; of a symbolic link, the path that it leads to. Errors name the member."""
    if stat.S_ISLNK(member.external_attr >> 16):
        return content
    try:
        return change(member.filename, content)
    except DocumentError as error:
        raise DocumentError(located(in_one_line(member.filename, 60), error)) from None
