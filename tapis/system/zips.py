"""Zip archives that anybody may have made: office documents, workbooks."""

import zipfile

OLE = b"\xd0\xcf\x11\xe0"  # how an old .doc or .xls begins, and a .docx or .xlsx with a password
_MANIFEST = "META-INF/manifest.xml"  # of OpenDocument


def problem_of_members(archive: zipfile.ZipFile) -> str:
    """Return why the members of an archive must not be read; nothing if they may be."""
    members = archive.infolist()
    files = [member.filename for member in members if not member.is_dir()]
    if len(set(files)) < len(files):
        return "it has a file twice"  # of which programs take the first, or the last
    # Python decompresses bzip2 and LZMA in pieces of any size. What is encrypted may have a method of its own.
    read = [member for member in members if not member.flag_bits & 1]
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in read):
        return "it is compressed by a rare method: pack it again, with Deflate"
    return ""


def has_password(archive: zipfile.ZipFile) -> bool:
    """Return whether members of an archive are encrypted, by its directory or its manifest.

    The manifest is read: call problem_of_members before.
    """
    if any(member.flag_bits & 1 for member in archive.infolist()):
        return True
    return _MANIFEST in archive.namelist() and b"encryption-data" in content_of(archive, archive.getinfo(_MANIFEST))


def content_of(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return the content of a member. One that has more than the archive says is not decompressed further."""
    with archive.open(member) as file:
        return file.read(member.file_size + 1)  # without a limit, all of it would be decompressed before it is cut
