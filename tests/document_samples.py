"""Documents of each format, with what is in them to translate."""

import io
import zipfile
from collections.abc import Mapping

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
DOCX_BODY = f"""<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<w:document {W}><w:body>
<w:p w:rsidR="1"><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>The cat</w:t></w:r></w:p>
<w:p><w:r><w:t xml:space="preserve">A </w:t></w:r><w:proofErr w:type="spellStart"/><w:r w:rsidR="2"><w:t>dog</w:t></w:r>
<w:r><w:rPr><w:b/></w:rPr><w:t xml:space="preserve"> barks</w:t></w:r>
<w:r><w:t xml:space="preserve"> at &lt;me&gt;.</w:t></w:r>
<w:r><w:footnoteReference w:id="1"/></w:r></w:p>
<w:p><w:hyperlink w:id="r1"><w:r><w:rPr><w:u/></w:rPr><w:t>A link</w:t></w:r></w:hyperlink>
<w:r><w:t xml:space="preserve"> here</w:t></w:r></w:p>
<w:p><w:r><w:t>One line</w:t><w:br/><w:t>another line</w:t></w:r></w:p>
<w:p><w:r><w:t xml:space="preserve">See page </w:t></w:r><w:r><w:fldChar w:fldCharType="begin"/></w:r>
<w:r><w:instrText>PAGEREF x</w:instrText></w:r>
<w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>seven</w:t></w:r>
<w:r><w:fldChar w:fldCharType="end"/></w:r></w:p>
<w:p><w:r><w:pict><w:txbxContent><w:p><w:r><w:t>In a box</w:t></w:r></w:p></w:txbxContent></w:pict></w:r>
<w:r><w:t>Outside</w:t></w:r></w:p>
<w:p><w:del><w:r><w:delText>Deleted</w:delText></w:r></w:del><w:ins><w:r><w:t>Inserted</w:t></w:r></w:ins></w:p>
<w:p/><w:p><w:r><w:t>12</w:t></w:r></w:p>
<w:p><w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText> HYPERLINK "x"</w:instrText></w:r>
<w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>By a field</w:t></w:r>
<w:r><w:fldChar w:fldCharType="end"/></w:r></w:p>
<w:p><w:r><w:t>Name:</w:t></w:r><w:r><w:rPr><w:u/></w:rPr><w:t xml:space="preserve">     </w:t></w:r></w:p>
<w:p><w:r><w:t>In </w:t></w:r><w:r><w:ruby><w:rt><w:r><w:t>toe-kyo</w:t></w:r></w:rt>
<w:rubyBase><w:r><w:t>Tokyo</w:t></w:r></w:rubyBase></w:ruby><w:t> now</w:t></w:r></w:p>
</w:body></w:document>"""
DOCX_TEXTS = [
    *("The cat", "A dog<g0> barks</g0> at &lt;me&gt;.<x0/>", "<g0>A link</g0> here", "One line", "another line"),
    *("See page <x0/>", "<x0/>Outside", "In a box", "<x0/><g0>Inserted</g0>"),
    *("<g0>By a field</g0>", "Name:<x0/>", "In Tokyo now"),
]
ODF = 'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
ODT_TEXT = 'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
ODT_BODY = f"""<?xml version="1.0" encoding="UTF-8"?>
<office:document-content {ODF} {ODT_TEXT}><office:body><office:text>
<text:tracked-changes><text:p>Deleted</text:p></text:tracked-changes>
<text:h text:outline-level="1">The cat</text:h>
<text:p>A <text:span text:style-name="T1">dog</text:span> barks<text:note><text:note-citation>1</text:note-citation>
<text:note-body><text:p>A note</text:p></text:note-body></text:note>.<text:line-break/>New line<text:s/>here</text:p>
<text:p/></office:text></office:body></office:document-content>"""
XHTML = """<html xmlns="http://www.w3.org/1999/xhtml"><head><title>A page</title></head>
<body><p>A <b>dog</b>.</p></body></html>"""
NCX = "<ncx><docTitle><text>The cat</text></docTitle></ncx>"

PO = """msgid ""
msgstr "Language: fr\\n"

#: a.c:1
#, c-format
msgid "The %s is \\"here\\".\\n"
msgstr ""

msgctxt "menu"
msgid "One cat"
msgid_plural "%d cats"
msgstr[0] ""
msgstr[1] ""

#, fuzzy
msgid "old"
msgstr "vieux"

msgid ""
"Two\\n"
"lines"
msgstr ""

#~ msgid "gone"
#~ msgstr ""
"""
YAML = """# a comment
title: The cat
en:
  "k": 'isn''t it'
  list: [A dog, en-US, true, 2024-01-02, "two\\nlines"]
  block: |
    First line
    Second line
  folded: >-
    These are two
    lines.

    Another.
  anchor: &x Some text
  again: *x
"""
XLIFF = """<?xml version="1.0"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file><body>
  <trans-unit id="1">
    <source>The <g id="1">cat</g> sits<x id="2"/> &amp; waits.</source>
  </trans-unit>
  <trans-unit id="2" translate="no"><source>No</source></trans-unit>
  <trans-unit id="3"><source>No more</source><target>Fait</target></trans-unit>
  <trans-unit id="4"><source>A copy</source><target state="new">A copy</target></trans-unit>
  <trans-unit id="5"><source>Empty</source><target/></trans-unit>
</body></file></xliff>"""
XLIFF_2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0"><file id="f"><unit id="u"><segment>
<source>A <pc id="1">dog</pc><ph id="2"/>.</source></segment></unit></file></xliff>"""
VTT = """WEBVTT - a film
Kind: captions

NOTE Do not translate

STYLE
::cue { color: red }

first
00:01.000 --> 00:02.000 align:start
<v Bob>The cat <00:01.500>sleeps
here &amp; there.

00:03.000 --> 00:04.000
- A dog?
- No.
"""
WRAPPED = """Dear John,

this is a paragraph of text that was wrapped at some column, as many
people do in their e-mails, until it comes to its end.

> This was quoted from another e-mail, and it is wrapped at a column
> as well.

- an item of a list that is so long that it had to be wrapped to the
  next line
- short

12 Main Street
Springfield
"""
TABLE = 'id;name;x\r\n1;"The ""big"" cat";"a;b"\r\n2;a dog; z\r\n\r\n3;;"two\nlines"'


def zipped(members: Mapping[str, str]) -> bytes:
    """A zip archive of texts; the first is stored, as that of .odt and .epub is."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.comment = b"a comment"
        for i, (name, text) in enumerate(members.items()):
            information = zipfile.ZipInfo(name, (2020, 1, 2, 3, 4, 6))
            archive.writestr(information, text, zipfile.ZIP_DEFLATED if i else zipfile.ZIP_STORED)
    return content.getvalue()


DOCX = zipped({"[Content_Types].xml": "<Types/>", "word/document.xml": DOCX_BODY, "word/media/a.png": "The cat"})
ODT = zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": ODT_BODY, "meta.xml": "<a>No</a>"})
EPUB = zipped(
    {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": "<a/>",
        "a.xhtml": XHTML,
        "toc.ncx": NCX,
        "b.css": "No",
    }
)

# By format: a document, and the lines of it that are translated
SAMPLES: dict[str, tuple[bytes, list[str]]] = {
    "po": (PO.encode(), ['The %s is "here".', "One cat", "%d cats", "Two", "lines"]),
    "json": (
        b'{"The key": "The cat", "b": ["x_y", "en-US", "#fff", "http://x.org/a", "Save", 1, "two\\nlines"],'
        b' "c": "caf\\u00e9"}',
        ["The cat", "Save", "two", "lines", "café"],
    ),
    "yaml": (
        YAML.encode(),
        [
            *("The cat", "isn't it", "A dog", "two", "lines", "First line", "Second line", "These are two lines."),
            *("Another.", "Some text"),
        ],
    ),
    "xliff": (XLIFF.encode(), ["The <g0>cat</g0> sits<x0/> &amp; waits.", "A copy", "Empty"]),
    "vtt": (VTT.encode(), ["<v Bob>The cat <t/>sleeps here &amp; there.", "- A dog?", "- No."]),
    "text": (
        WRAPPED.encode(),
        [
            *("Dear John,", " ".join(WRAPPED.split("\n")[2:4]), " ".join(WRAPPED.split("\n")[5:7]).replace("> ", "")),
            *(" ".join(WRAPPED.split("\n")[8:10]).replace("  ", ""), "- short", "12 Main Street", "Springfield"),
        ],
    ),
    "docx": (DOCX, DOCX_TEXTS),
    "odt": (ODT, ["The cat", "A <g0>dog</g0> barks<x0/>.", "New line<x2/>here", "A note"]),
    "epub": (EPUB, ["A page", "A <b>dog</b>.", "The cat"]),
}
