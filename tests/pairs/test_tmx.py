"""Tests of translation memories: the same pairs in every encoding, languages by their tags, and safety."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from conftest import ROOT, readable
from hypothesis import given
from hypothesis import strategies as st

from config import Config
from pairs.cleaning import RULES
from pairs.corpus import load_corpus
from pairs.readers import read_parts
from tapis.text.lines import DataError, Pair

PAIRS = [("One & two.", "Un < deux."), ("“Three”\u2028é", "« Trois »\u00a0!"), ("", "x")]
DOCTYPE = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'


def unit(**texts: str) -> str:
    """A unit. The names are language tags, with _ for -, and the texts are XML."""
    variants = [f'<tuv xml:lang="{tag.replace("_", "-")}"><seg>{text}</seg></tuv>' for tag, text in texts.items()]
    return "<tu>" + "".join(variants) + "</tu>"


def tmx(*units: str, encoding: str = "UTF-8", doctype: str = DOCTYPE) -> str:
    declaration = f'<?xml version="1.0" encoding="{encoding}"?>'
    header = '<header srclang="en"><note>No <![CDATA[text]]></note></header>'
    return "\n".join([declaration, doctype, '<tmx version="1.4">', header, "<body>", *units, "</body>", "</tmx>", ""])


def read(name: str = "d.tmx", source: str = "en", target: str = "fr") -> list[Pair]:
    return list(readable(read_parts(name, source, target)["train"]))


def read_text(text: str, source: str = "en", target: str = "fr") -> list[Pair]:
    Path("d.tmx").write_text(text, encoding="utf-8")
    return read("d.tmx", source, target)


def error_of(content: str | bytes, source: str = "en", target: str = "fr") -> str:
    Path("d.tmx").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError) as error:
        read("d.tmx", source, target)
    message = str(error.value)
    assert message.startswith("d.tmx") and len(message.splitlines()) <= 2
    return message


@pytest.mark.parametrize("doctype", ["", DOCTYPE, '<!DOCTYPE tmx PUBLIC "-//LISA//DTD" "http://[::1]:9/tmx14.dtd">'])
@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-8-sig", "UTF-16", "UTF-16-LE", "UTF-16-BE"])
def test_every_encoding_gives_the_same_pairs(encoding: str, doctype: str) -> None:
    units = [unit(en=escape(en), fr=escape(fr)) for en, fr in PAIRS]
    declared = encoding.removesuffix("-sig").removesuffix("-LE").removesuffix("-BE")
    Path("d.tmx").write_bytes(tmx(*units, encoding=declared, doctype=doctype).encode(encoding))
    assert read() == PAIRS
    assert read(source="fr", target="en") == [(fr, en) for en, fr in PAIRS]


@pytest.mark.parametrize("encoding", ["ISO-8859-1", "windows-1252", "windows-1250", "koi8-r"])
def test_encodings_of_one_byte(encoding: str) -> None:
    letters = {"koi8-r": "жЯ", "windows-1250": "čł", "windows-1252": "é€"}.get(encoding, "éß")
    Path("d.tmx").write_bytes(tmx(unit(en=letters, fr="x"), encoding=encoding).encode(encoding))
    assert read() == [(letters, "x")]


def test_compressed_memory() -> None:
    numbers = [(f"{number}", f"{-number}") for number in range(5000)]
    whole = gzip.compress(tmx(*(unit(en=en, fr=fr) for en, fr in numbers)).encode())
    Path("d.tmx.gz").write_bytes(whole)
    assert read("d.tmx.gz") == numbers
    Path("d.tmx.gz").write_bytes(whole[:-30])
    with pytest.raises(DataError, match=r"^d\.tmx\.gz is not a complete gzip file"):
        read("d.tmx.gz")


# Text


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ('a <bpt i="1">&lt;b&gt;<sub>no</sub></bpt>c<ept i="1">&lt;/b&gt;</ept> d', "a c d"),
        ("a<ph>{1}</ph>b<it pos='begin'>&lt;i&gt;</it>c<ut>x</ut>", "a bc"),
        ("a <ph/>b<ph/> c<ph/>.<ph/><hi>d</hi><ph><sub>no</sub></ph><ph/>e", "a b c.d e"),
        ("बिल्ली<ph/>सोती<ph/>है।", "बिल्ली सोती है।"),
        ("<hi>a <hi type='x'>b</hi></hi> c", "a b c"),
        ("<hi>a <ph><sub>no<hi>no</hi></sub></ph>b</hi>", "a b"),
        ("\n  a\n\tb\r\n c  ", "a b c"),
        ("&lt;&amp;&#233;&#x1F600;<![CDATA[<x>]]>", "<&é😀<x>"),
        ("a<!-- no --><?no?>b", "ab"),
        ("", ""),
    ],
)
def test_segment_without_codes(segment: str, text: str) -> None:
    assert read_text(tmx(unit(en=segment, fr="x"))) == [(text, "x")]


FORBIDDEN = [*{*map(chr, range(32))} - {*"\0\t\n\r"}, "&#x1F;", "&#31;", "&#0;", "&#xFFFE;", "&#xd800;", "&#x0000b;"]
NO_CHARACTERS = ["\ufffe", "\uffff", "\ud800", "\udfff"]  # which only encodings of Unicode have


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16", "UTF-16-LE", "UTF-16-BE", "windows-1252"])
@given(forbidden=st.lists(st.sampled_from(FORBIDDEN), min_size=1), n_before=st.integers(65_000, 66_000))
def test_characters_that_xml_forbids_are_spaces(encoding: str, forbidden: list[str], n_before: int) -> None:
    """Wherever a chunk of the file ends."""
    if encoding.startswith("UTF"):
        forbidden = [*forbidden, *NO_CHARACTERS]
    texts = ["é€ " * (n_before // 4), *(f"a{character}b é&#233;" for character in forbidden), "a&#x9;b 힣퀀\ufffd😀"]
    if encoding == "windows-1252":
        texts[-1] = "a\tb ï¿¾, así\xa0»"  # the bytes of U+FFFE and of a surrogate in UTF-8
    declared = encoding.removesuffix("-LE").removesuffix("-BE")
    content = tmx(*(unit(en=text, fr="x") for text in texts), encoding=declared)
    Path("d.tmx").write_bytes(content.encode(encoding, "strict" if declared == "windows-1252" else "surrogatepass"))
    last = texts[-1].replace("&#x9;", " ").replace("\t", " ")
    assert [source for source, _ in read()] == [texts[0].strip(), *["a b éé"] * len(forbidden), last]


def test_a_placeholder_leaves_no_space_in_languages_without_spaces() -> None:
    assert read_text(tmx(unit(zh_CN="猫<ph/>睡", fr="a<ph/>b")), "zh", "fr") == [("猫睡", "a b")]


# Languages


@pytest.mark.parametrize(
    ("tags", "source", "target", "expected"),
    [
        ("en fr", "en", "fr", ("en", "fr")),
        ("EN-US fr_ca", "en", "fr", ("EN-US", "fr_ca")),
        ("de en-GB en fr-CA FR", "en", "fr", ("en", "FR")),  # an equal tag comes first
        ("en-GB en-US fr-CA fr-FR", "en-us", "fr_fr", ("en-US", "fr-FR")),
        ("en-GB en-US fr-CA fr-FR", "en", "fr", ("en-GB", "fr-CA")),  # then the first
        ("pt-BR pt-PT", "pt-BR", "pt-PT", ("pt-BR", "pt-PT")),
        ("pt-BR pt-PT", "pt", "pt-BR", ("pt-PT", "pt-BR")),  # pt-BR is the longer language's
        ("zh-Hant-TW zh-CN", "zh", "zh-hant", ("zh-CN", "zh-Hant-TW")),
        ("enm en fro fr", "en", "fr", ("en", "fr")),
    ],
)
def test_languages_are_matched_by_their_tags(tags: str, source: str, target: str, expected: Pair) -> None:
    variants = [f'<tuv xml:lang="{tag}"><seg>{tag}</seg></tuv>' for tag in tags.split()]
    text = tmx("<tu>", *variants, "</tu>")
    assert read_text(text, source, target) == [expected]
    assert read_text(text, target, source) == [expected[::-1]]


def test_attribute_lang_of_older_versions() -> None:
    text = '<tu><tuv lang="EN"><seg>a</seg></tuv><tuv lang="FR"><seg>b</seg></tuv></tu>'
    assert read_text(tmx(text)) == [("a", "b")]


def test_units_without_both_languages_are_skipped() -> None:
    units = [unit(en="1", de="2"), unit(en="3", fr="4"), unit(fr="5"), "<tu/>", unit(fr="6", en="7", it="8")]
    assert read_text(tmx(*units)) == [("3", "4"), ("7", "6")]


@pytest.mark.parametrize(
    ("target", "n_pairs", "note"),
    [
        ("pt", 200, "1 unit without both languages, skipped (other languages: de)"),
        ("pt-BR", 100, "101 units without both languages, skipped (other languages: de, pt)"),
    ],
)
def test_the_report_says_how_many_units_are_skipped(target: str, n_pairs: int, note: str) -> None:
    units = [
        unit(**{"en": f"{i} cats and dogs", tag: f"{i} gatos e cachorros"})
        for tag in ("pt", "pt_BR")
        for i in range(100)
    ]
    Path("d.tmx").write_text(tmx(*units, unit(pt="Um.", de="Eins.")), encoding="utf-8")
    config = Config(data=("d.tmx",), pairs=(f"en:{target}",), valid_share=0.2, skip_rules=tuple(RULES))
    for _ in ("read from the file", "read from the cache"):
        report = load_corpus(config).report
        assert report.notes == [note] and report.read == report.train + report.valid + report.test == n_pairs
        assert not report.unreadable.pairs


def test_languages_are_listed_if_no_unit_has_both() -> None:
    assert error_of(tmx(unit(en_US="1", de="2"), unit(fr="3"))).splitlines() == [
        "d.tmx: no unit has both en and fr",
        "available languages (choose with --source and --target, or --pairs): de, en-US, fr",
    ]
    assert error_of(tmx()).endswith("--target, or --pairs): none")


# Broken and malicious files


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tmx(unit(en="a", fr="b"))[:-8], "d.tmx line 7: not XML (no element found)"),
        (tmx("<tu>", "</tuv>"), "d.tmx line 7: not XML (mismatched tag)"),
        (tmx(unit(en="a & b", fr="c")), "d.tmx line 6: not XML (not well-formed (invalid token)) at character 32"),
        (tmx(unit(en="é", fr="c")).encode("latin-1"), "d.tmx line 6: not XML (not well-formed (invalid token))"),
        ("", "d.tmx line 1: not XML (no element found)"),
        ("<html></html>", "d.tmx line 1: not TMX (its first element is <html>)"),
        (tmx(encoding="UTF-16"), "d.tmx line 1: not XML (encoding specified in XML declaration is incorrect)"),
        (tmx(encoding="Shift_JIS"), "d.tmx: its encoding is not supported: convert it to UTF-8"),
        (tmx(encoding="x-none"), "d.tmx: its encoding is not supported: convert it to UTF-8"),
        (tmx(unit(en="&eacute;", fr="c")), "d.tmx line 6: entity &eacute; is not defined"),
        (tmx(unit(en="&eacute;", fr="c"), doctype=""), "d.tmx line 6: not XML (undefined entity)"),
    ],
)
def test_broken_memory_is_reported_with_its_location(content: str | bytes, message: str) -> None:
    assert error_of(content).startswith(message)


def test_declarations_are_refused() -> None:
    """Entities may expand to gigabytes or name files, and none is ever expanded."""
    Path("secret").write_text("secret", encoding="utf-8")
    levels = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 30))
    for declarations in (
        f'<!ENTITY l0 "ha">{levels}',
        '<!ENTITY l29 SYSTEM "secret">',
        '<!ENTITY % p SYSTEM "secret">%p;',
    ):
        text = tmx(unit(en="&l29;", fr="b"), doctype=f"<!DOCTYPE tmx [{declarations}]>")
        assert error_of(text).startswith("d.tmx line 2: DOCTYPE with declarations in [ ]")


@pytest.mark.parametrize(
    ("start", "piece", "message"),
    [
        ("<tmx><!--", "x", "a tag or comment longer than 1 MB"),
        ('<tmx><tu a="', "x", "a tag or comment longer than 1 MB"),
        ("<tmx><tu><tuv><seg>", "x ", "a segment longer than 1 MB"),
        ("<tmx>", "<a>", "not TMX (too many nested or different elements)"),
        (
            "<tmx>" + "".join(f"<a{i}/>" for i in range(20_000)),
            "<b/>",
            "not TMX (too many nested or different elements)",
        ),
    ],
)
def test_endless_pieces_are_refused(start: str, piece: str, message: str) -> None:
    content = start.encode() + piece.encode() * (5_000_000 // len(piece))
    assert error_of(content) == f"d.tmx line 1: {message}"


MEASURE = """
import json, resource, sys
from pairs.readers import read_parts
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
n = sum(1 for _ in read_parts("d.tmx", "en", "fr")["train"].rows)
print(json.dumps([n, peak() - before]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not report the peak this way")
def test_memory_does_not_grow_with_the_file() -> None:
    n_units = 20_000
    with Path("d.tmx").open("w", encoding="utf-8") as file:
        file.write(tmx()[: -len("</body>\n</tmx>\n")])
        for i in range(n_units):
            file.write(unit(en=f"{i} " + "word " * 150, fr=f"{i} " + "mot " * 150, de="x " * 100) + "\n")
        file.write("</body></tmx>")
    assert Path("d.tmx").stat().st_size > 30_000_000
    run = [sys.executable, "-W", "error", "-c", f"import sys; sys.path[0:0] = [{str(ROOT)!r}]\n{MEASURE}"]
    done = subprocess.run(run, capture_output=True, check=True, encoding="utf-8")
    n_pairs, megabytes = json.loads(done.stdout)
    assert n_pairs == n_units
    assert megabytes < 10 * (1024 if sys.platform == "darwin" else 1)  # macOS counts bytes
