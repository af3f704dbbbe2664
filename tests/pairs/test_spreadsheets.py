"""Tests of tables: every separator, quoting and header gives the same pairs, and what is ambiguous is an error."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from conftest import readable
from hypothesis import given
from hypothesis import strategies as st

from pairs.readers import read_parts
from pairs.unreadable import BLANK_LINE, Unreadable
from tapis.scoring import bleu_tokenizer
from tapis.text.language_codes import base_language
from tapis.text.lines import DataError, Pair

PAIRS = [
    ("Hello, you; and you.", "Bonjour, toi ; et toi."),
    ('A “quote”, a "quote".', "Une « citation »."),
    ("Two\nlines.", "Deux\nlignes."),
    ("A\ttab.", "Une tabulation ; oui."),
]


def read(name: str, columns: tuple[str, ...] = ()) -> list[Pair]:
    return list(readable(read_parts(name, "en", "fr", columns)["train"]))


def table(rows: list[tuple[str, ...]], separator: str) -> str:
    """The rows as CSV, with quotes only where needed."""
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


def write(name: str, text: str) -> None:
    Path(name).write_bytes(text.encode())


def error_of(name: str, columns: tuple[str, ...] = ()) -> str:
    with pytest.raises(DataError) as error:
        read(name, columns)
    message = str(error.value)
    assert message.startswith(f"{name} line ") and len(message.splitlines()) <= 2
    return message


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_every_separator_gives_the_same_pairs(separator: str, mark: str) -> None:
    numbered = [(str(number), fr, en) for number, (en, fr) in enumerate(PAIRS)]
    tables: list[tuple[list[tuple[str, ...]], tuple[str, ...]]] = [
        ([*PAIRS], ()),
        ([("en", "FR"), *PAIRS], ()),
        ([("id", " fr ", "en"), *numbered], ()),
        ([("id", "fr", "en"), *numbered], ("3", "2")),
        ([*numbered], ("3", "2")),
        ([("Nr, or; id", "Français", "Anglais"), *numbered], ("anglais", "FRANÇAIS")),
        ([("id", "Français", "Anglais"), *numbered], ("3", "français")),
    ]
    for rows, columns in tables:
        write("d.csv", mark + table(rows, separator))
        assert read("d.csv", columns) == PAIRS
        write("d.csv", f"{mark}sep={separator}\r\n" + table(rows, separator))
        assert read("d.csv", columns) == PAIRS


def test_the_ending_of_a_name_may_be_in_capitals() -> None:
    write("D.CSV", "a, b.;c.\nd.;e, f, g.\n")
    assert read("D.CSV") == [("a, b.", "c."), ("d.", "e, f, g.")]


def test_separator_line_may_be_quoted_and_counts_as_a_line() -> None:
    write("d.csv", '"sep=|"\na|b\nc\nd\n')
    assert error_of("d.csv").startswith("d.csv line 3: 1 column, expected 2 (en and fr); 2 of the first 3 rows")
    write("d.csv", "sep=;\n")
    assert read("d.csv") == []


def test_separator_is_the_one_that_makes_rows_alike() -> None:
    write("d.csv", "a, b.;c.\nd.;e, f, g.\n")
    assert read("d.csv") == [("a, b.", "c."), ("d.", "e, f, g.")]
    write("d.csv", "a;b,c;d\n")  # alike with both: the comma wins
    assert read("d.csv") == [("a;b", "c;d")]
    write("d.csv", "en;fr\na,b;c\n")  # a header decides
    assert read("d.csv") == [("a,b", "c")]


@pytest.mark.parametrize(("name", "separator"), [("d.csv", ";"), ("d.csv", "\t"), ("d.tsv", "\t")])
@pytest.mark.parametrize("n_speeches", [3, 30])
def test_speech_over_several_rows_is_no_cell_in_quotes(name: str, separator: str, n_speeches: int) -> None:
    rows = [("The guest sat down.", "L'invité s'assit.")] * 40
    for i in range(n_speeches):
        rows += [
            (f'"My {i} dogs sleep.', f"« Mes {i} chiens dorment."),
            ('Do not wake them."', "Ne les réveillez pas. »"),
        ]
    write(name, "".join(f"{en}{separator}{fr}\n" for en, fr in [("en", "fr"), *rows]))
    assert list(readable(read_parts(name, "en", "fr")["train"])) == rows


def test_speech_after_a_space_is_no_cell_in_quotes() -> None:
    rows = [
        *[("A dog.", "Un chien.")] * 90,
        *[("He said yes.", '"Oui."')] * 4,
        *[("Yes, he said.", '"Oui", dit-il.')] * 3,
    ]
    write("d.csv", "".join(f"{en}; {fr}\n" for en, fr in [("en", "fr"), *rows]))
    assert [(en, fr.strip()) for en, fr in readable(read_parts("d.csv", "en", "fr")["train"])] == rows


def test_errors_about_a_row_of_several_lines_name_its_first() -> None:
    write("d.csv", 'a,"b\nb"\nc,"d\nd",e\nc,"d\nd",e\n')
    refused = "d.csv line 3: 3 columns, expected 2 (en and fr); 2 of the first 3 rows cannot be read"
    assert error_of("d.csv") == refused
    write("d.csv", '"x\n",' + '"\na",' * 2_000_000)
    assert error_of("d.csv").startswith("d.csv line 1: not CSV (a row of more than")


def test_a_row_with_too_long_a_cell_is_skipped_and_says_so() -> None:
    write("d.csv", f'a,b\n"{"c" * 200_000}",d\ne,f\n')
    rows = [("a", "b"), Unreadable("d.csv line 2", "a cell of more than 131,072 characters"), ("e", "f")]
    assert list(read_parts("d.csv", "en", "fr")["train"].rows) == rows


def test_errors_keep_the_separator_of_the_rows_before() -> None:
    for bad_row, actual in [("x", "1 column"), ("x;y;z", "3 columns")]:
        write("d.csv", f"a, b;c\nd;e\n{bad_row}\n{bad_row}\nf;g\n")
        assert error_of("d.csv").startswith(f"d.csv line 3: {actual}, expected 2 (en and fr); 2 of the first 5 rows")


def test_rows_after_the_sample_are_read_with_its_separator() -> None:
    write("d.csv", "a.;b.\n" * 500 + "c.;d.;e.\n" * 6)
    pairs = iter(readable(read_parts("d.csv", "en", "fr")["train"]))
    assert [next(pairs) for _ in range(500)] == [("a.", "b.")] * 500
    with pytest.raises(DataError, match="line 501: 3 columns"):
        next(pairs)


# Headers in words


@pytest.mark.parametrize("header", ["Englisch,Französisch", "Anglais;Nom", "left text\tright text"])
def test_header_in_words_is_not_taken_for_a_pair(header: str) -> None:
    separator = re.sub(r"[\w ]", "", header)
    names = tuple(header.split(separator))
    write("d.csv", header + "\n" + table([*PAIRS], separator))
    message = error_of("d.csv")
    assert f'is this a header or a pair? 1 "{names[0]}", 2 "{names[1]}"\nchoose with --columns' in message
    assert read("d.csv", names) == PAIRS
    assert read("d.csv", (names[1], names[0])) == [(fr, en) for en, fr in PAIRS]
    assert read("d.csv", ("1", "2")) == [names, *PAIRS]


def test_tsv_header_in_words_is_not_taken_for_a_pair() -> None:
    write("d.tsv", "Englisch\tFranzösisch\nHello, you.\tBonjour.\n")
    assert "is this a header or a pair?" in error_of("d.tsv")
    assert read("d.tsv", ("englisch", "französisch")) == [("Hello, you.", "Bonjour.")]


@pytest.mark.parametrize(
    "rows",
    [
        [("Page", "Pages")],
        [("dog", "chien"), ("cat", "chat"), ("black cat", "chat noir")],
        [("Go.", "Va !"), ("Hello, you.", "Bonjour, toi.")],
        [("The black cat", "Le chat noir"), ("Hello, you.", "Bonjour, toi.")],
        [("", "x"), ("Hello, you.", "Bonjour, toi.")],
    ],
)
def test_pairs_are_not_taken_for_headers(rows: list[tuple[str, ...]]) -> None:
    write("d.csv", table(rows, ","))
    assert read("d.csv") == rows


@pytest.mark.parametrize(
    ("title", "rows", "n_columns"),
    [
        ("Words,,", "id,en,fr\n1,A cat.,Un chat.\n", 3),
        ("Words", "id,en,fr\n1,A cat.,Un chat.\n", 3),
        (",Words,", "1,A cat.,Un chat.\n", 3),
        ("Words,", "fr,en\nUn chat.,A cat.\n", 2),
    ],
)
def test_a_title_is_named_as_one(title: str, rows: str, n_columns: int) -> None:
    write("d.csv", f"{title}\n{rows}")
    assert error_of("d.csv").splitlines() == [
        f'd.csv line 1: only "Words" in a table of {n_columns} columns',
        "if this is a title, delete the row: the header comes first",
    ]


def test_a_first_pair_without_a_translation_is_no_title() -> None:
    """Though a row below has a remark."""
    write("d.tsv", "Good morning.\t\nA cat.\tUn chat.\nA dog.\tUn chien.\tgood\nA cow.\tUne vache.\n")
    assert ("A cat.", "Un chat.") in read("d.tsv")


# The choice of columns


def test_ambiguous_columns_are_listed() -> None:
    write("d.csv", "\u2028id,English text of the whole line,c\n1,b,c\n")
    assert error_of("d.csv").splitlines() == [
        'd.csv line 1: 3 columns, expected 2 (en and fr): 1 "id", 2 "English text of the…", 3 "c"',
        "choose with --columns 2 3, or with two names if this row is a header",
    ]
    write("d.tsv", "\t".join("abcdefghijk") + "\n")
    assert '10 "j", …\nchoose with' in error_of("d.tsv")


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (("0", "1"), "no column 0 (columns: "),
        (("4", "1"), "no column 4 (columns: "),
        (("9" * 5000, "1"), f"no column {'9' * 39}… (columns: "),
        (("German", "text"), 'no column German (columns: 1 "id", 2 "text", 3 "text"'),
        (("id", "text"), "several columns text, choose by number (columns: "),
        (("2", "2"), "both of --columns are column 2 (columns: "),
        (("id", "1"), "both of --columns are column 1 (columns: "),
    ],
)
def test_columns_that_do_not_exist_are_errors(columns: tuple[str, ...], problem: str) -> None:
    write("d.csv", "id,text,text\n1,a,b\n")
    assert error_of("d.csv", columns).startswith(f"d.csv line 1: {problem}")


@given(
    rows=st.lists(st.tuples(st.sampled_from(["A cat.", ""]), st.sampled_from(["Un chat.", ""])), min_size=1),
    header=st.sampled_from([[], [("en", "fr")]]),
    n_empty=st.integers(0, 2),
    name=st.sampled_from(["d.tsv", "d.csv"]),
)
def test_columns_at_the_end_that_are_empty_in_every_row_are_ignored(
    rows: list[Pair], header: list[Pair], n_empty: int, name: str
) -> None:
    write(name, "".join(f"{source}\t{target}" + "\t" * n_empty + "\n" for source, target in [*header, *rows]))
    assert list(filter(any, read(name))) == list(filter(any, rows))  # blank rows may be skipped


def test_a_last_column_that_is_empty_at_first_is_an_error() -> None:
    write("d.tsv", "a\tb\t\nc\td\te\nf\tg\th\n")
    first, advice = error_of("d.tsv").splitlines()
    assert first == "d.tsv line 2: 3 columns, expected 2 (en and fr); 2 of the first 3 rows cannot be read"
    assert advice == "choose with --columns 1 2"
    assert read("d.tsv", ("1", "2")) == [("a", "b"), ("c", "d"), ("f", "g")]


def test_rows_must_have_as_many_columns_as_the_first() -> None:
    write("d.tsv", "1\ta\tb\n2\tc\n3\td\n")
    assert error_of("d.tsv", ("2", "3")).startswith("d.tsv line 2: 2 columns, expected 3 (en and fr); 2 of the first 3")


# Rows that cannot be read

BAD_ROWS = {
    "d.tsv": ["x", "x\ty\tz", "", " ", "\t\t\t"],
    "d.csv": ["x", "x;y;z", "", " ", ";;;", '"x;y', '"x"y;z', 'x;"y'],
}


@pytest.mark.parametrize("name", BAD_ROWS)
@given(data=st.data())
def test_an_odd_row_is_skipped_and_located(name: str, data: st.DataObject) -> None:
    """Wherever it is: every other row is read, and the odd one is reported by its line."""
    separator = ";" if name == "d.csv" else "\t"
    good = [(f"Sentence {i} is long.", f"La phrase {i} est longue.") for i in range(data.draw(st.integers(1, 30)))]
    lines = [separator.join(pair) for pair in good]
    place = data.draw(st.integers(0, len(lines)))
    bad = data.draw(
        st.sampled_from([row for row in BAD_ROWS[name] if place or (row.count(separator) != 2 and '"' not in row)])
    )
    write(name, "".join(f"{line}\n" for line in [*lines[:place], bad, *lines[place:]]))
    rows = list(read_parts(name, "en", "fr")["train"].rows)
    assert [row for row in rows if not isinstance(row, Unreadable)] == good
    assert [row.location for row in rows if isinstance(row, Unreadable)] == [f"{name} line {place + 1}"]


@pytest.mark.parametrize("name", BAD_ROWS)
@given(n_good=st.integers(1, 500), n_bad=st.integers(0, 10), n_blank=st.integers(0, 20))
def test_many_odd_rows_are_an_error_but_blank_lines_are_not(name: str, n_good: int, n_bad: int, n_blank: int) -> None:
    separator = ";" if name == "d.csv" else "\t"
    write(name, f"a.{separator}b.\n" * n_good + "x\n" * n_bad + "\n" * n_blank)
    if n_bad > max(1, 0.01 * (n_good + n_bad)):
        assert error_of(name).startswith(f"{name} line {n_good + 1}: 1 column, expected 2")
    else:
        rows = list(read_parts(name, "en", "fr")["train"].rows)
        problems = [row.problem for row in rows if isinstance(row, Unreadable)]
        assert len(rows) == n_good + n_bad + n_blank and problems.count(BLANK_LINE) == n_blank


def test_a_header_in_words_is_found_beside_odd_rows() -> None:
    write("d.tsv", "\nEnglisch\tFranzösisch\nx\n\nHello, you.\tBonjour.\n" + "How are you?\tComment vas-tu ?\n" * 3)
    assert "d.tsv line 2: is this a header or a pair?" in error_of("d.tsv")


# Tables of office programs

TEXTS = st.text("aé,;\"'\t\n .«", min_size=1, max_size=12).filter(str.strip).map(lambda text: f"x{text}y.")
ROWS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=20)


def forms_of(name: str, source: str = "en", target: str = "fr") -> list[str]:
    return list(read_parts(name, source, target)["train"].forms)


@given(
    rows=ROWS,
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]),
    separator=st.sampled_from([",", ";", "\t"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    header=st.sampled_from(
        [("en", "fr"), ("eng", "fra"), ("en_GB", "fr-FR"), ("English", "Français"), ("Source", "Target")]
    ),
    name=st.sampled_from(["d.csv", "d.tsv", "d.txt"]),
)
def test_what_csv_writes_reads_back(
    rows: list[Pair], encoding: str, separator: str, quoting: int, header: Pair, name: str
) -> None:
    text = io.StringIO()
    separator = separator if name == "d.csv" else "\t"
    writer = csv.writer(text, delimiter=separator, quoting=quoting)  # type: ignore[arg-type]
    writer.writerows([("", ""), header, *rows, ("", "")])
    Path(name).write_bytes(text.getvalue().encode(encoding))
    assert read(name) == rows
    (form,) = forms_of(name)
    assert form.endswith(f'header "{header[0]}", "{header[1]}"')


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("header", [[], [("en", "fr")]])
@pytest.mark.parametrize("are_all_quoted", [True, False])
def test_quoted_cells_may_follow_a_space(are_all_quoted: bool, header: list[Pair], separator: str) -> None:
    rows = [("A cat.", "Un chat."), ("Cats, dogs; and\tcows.", 'Des "chats", des chiens ; et\tdes vaches.')] * 2

    def cell(text: str) -> str:
        is_quoted = are_all_quoted or separator in text or '"' in text
        return '"' + text.replace('"', '""') + '"' if is_quoted else text

    write("d.csv", "".join(f"{cell(source)}{separator} {cell(target)}\n" for source, target in [*header, *rows]))
    assert read("d.csv") == rows


@pytest.mark.parametrize(
    "rows",
    [
        ['"Stop!" he cried.\tBonjour.', '"Hello."\t"Bonjour."'],
        ['"Hello.\tBonjour.', 'Bye."\tSalut.', "It rains.\tIl pleut."],
        ['"Hello, you."\tBonjour, toi.', "Yes, no.\tOui."],
    ],
)
def test_quotes_of_sentences_stay_text_in_a_table_without_quoting(rows: list[str]) -> None:
    write("d.tsv", "".join(f"{row}\n" for row in rows))
    assert read("d.tsv") == [tuple(row.split("\t")) for row in rows]


def test_the_code_page_is_that_of_the_languages() -> None:
    for source, text, codec, name in [
        ("de", "Größe.", "cp1252", "Windows-1252"),
        ("ces", "Žluťoučký kůň.", "cp1250", "Windows-1250"),
        ("ru", "Привет.", "cp1251", "Windows-1251"),
        ("sr-Latn", "Šta radiš?", "cp1250", "Windows-1250"),
        ("sr", "Шта радиш?", "cp1251", "Windows-1251"),
        ("uz_Cyrl", "Салом.", "cp1251", "Windows-1251"),
        ("jpn", "こんにちは。", "cp932", "Shift JIS"),
        ("zh-TW", "你好。", "cp950", "Big5"),
    ]:
        Path("d.csv").write_bytes(f"{source};en\n{text};Hello.\n".encode(codec))
        part = read_parts("d.csv", source, "en")["train"]
        assert list(readable(part)) == [(text, "Hello.")] and part.forms[0].startswith(f"{name}, ")


@pytest.mark.parametrize("codec", ["cp1252", "mac_roman"])
@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("de", "Schön für größere Häuser."),
        ("fr", "L’œuvre d’à côté, c’était l’élève — où ça… déjà ?"),
        ("es", "El niño comió rápido: ¿dónde está el corazón?"),
        ("pt", "Não, são corações e lições."),
        ("sv", "Hjälp mig på vägen till sjön."),
        ("en", "A naïve café—really—isn’t there…so it’s “gone”, don’t you think?"),
        ("en", "I don’t know what we’re doing"),
    ],
)
def test_a_western_table_is_in_windows_1252_or_mac_roman(codec: str, source: str, text: str) -> None:
    """Quotes and dashes of the one are letters in the other."""
    Path("d.csv").write_bytes((f"{source};nl\n" + f"{text};Hallo.\n" * 4).encode(codec))
    assert list(readable(read_parts("d.csv", source, "nl")["train"])) == [(text, "Hallo.")] * 4


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("fr", ["Cœur", "Sœurs", "Bœufs", "Vœux", "Nœud", "ŒUVRE"]),
        ("pt", ["BOTÕES", "OPÇÕES", "AÇÕES", "LIÇÕES"]),
        ("fi", ["šakki", "maršalkka"]),
    ],
)
def test_a_western_table_whose_rare_letters_are_those_of_mac_roman_is_in_windows_1252(
    source: str, texts: list[str]
) -> None:
    Path("d.csv").write_bytes(
        "".join(f"{text};x\n" for text in [source, *texts]).replace("x", "nl", 1).encode("cp1252")
    )
    assert list(readable(read_parts("d.csv", source, "nl")["train"])) == [(text, "x") for text in texts]


@pytest.mark.parametrize(
    ("source", "cell"),
    [("de", "Deutsch"), ("de", "German (Germany)"), ("deu", "de-AT"), ("zho", "Chinese"), ("ja", "日本語")],
)
def test_a_header_names_a_language_in_many_ways(source: str, cell: str) -> None:
    write("d.csv", f"Nr,English,{cell}\n1,a,b\n")
    assert list(readable(read_parts("d.csv", source, "en")["train"])) == [("b", "a")]


@pytest.mark.parametrize(
    ("header", "target", "column"),
    [
        ("id,English,Indonesian", "id", 2),
        ("ID,Source,Target", "id", 2),
        ("No,en,Norwegian", "no", 2),
        ("en,id,comment", "id", 1),
        ("no,English,comment", "no", 0),
    ],
)
def test_numbers_of_rows_are_no_indonesian_or_norwegian(header: str, target: str, column: int) -> None:
    cells = ["a", "b", "c"]
    write("d.csv", f"{header}\n{','.join(cells)}\n")
    (pair,) = readable(read_parts("d.csv", "en", target)["train"])
    assert pair[1] == cells[column]
    record = dict(zip(header.split(","), cells, strict=True))
    write("d.jsonl", json.dumps(record) + "\n")
    assert list(readable(read_parts("d.jsonl", "en", target)["train"])) == [pair]


@pytest.mark.parametrize(
    ("name", "code"),
    [("deu", "de"), ("jpn", "ja"), ("zho", "zh"), ("ger_AT", "de"), ("German", "de"), ("pt-BR", "pt"), ("xx", "xx")],
)
def test_codes_of_three_letters_and_names_stand_for_a_language(name: str, code: str) -> None:
    assert base_language(name) == code
    assert bleu_tokenizer(name) == bleu_tokenizer(code)
