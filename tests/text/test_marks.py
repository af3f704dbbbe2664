"""What is taken out of a line comes back in its translation, each mark once, around or beside the right words."""

import random
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from timing import seconds_of, takes_less_than

from tapis.text.alignment import Alignment, SamePlaces, same_words
from tapis.text.languages import repair
from tapis.text.mark_patterns import is_plain, marks
from tapis.text.marks import FULL_STOPS, PUNCTUATION, Mark, take_out
from tapis.text.markup import Markup
from tapis.text.placement import put_back
from tapis.text.sentences import take_direction

FRAGMENTS = (
    *("<b>", "</b>", "<i class='x y'>", "</i>", "<br/>", "<br>", "<!-- c -->", "**", "*", "_", "__", "~~", "`x y`"),
    *("[a](b)", "[", "](u)", "http://x.org/?a=1", "a@b.org", "%s", "%(n)s", "{n}", "{", "${x}", "$HOME", "&amp;"),
    *("😀", "👍🏽", "#4", "v2.1", "A-47", "12", "1,234.5", "word", "Two words", "é", "!", ", ", ". ", " ", "  "),
    *("(", ")", "«", "»", " - ", "<", "a<b"),
)


def same_order(n: int) -> Alignment:
    """The alignment of a translation with the words of its source."""
    return Alignment([np.eye(n)])


def all_shares(alignment: Alignment, start: int, end: int) -> list[float]:
    """The share of each word of the translation that comes from words of the source from start to end."""
    first, shares = alignment.shares(start, end)
    return [*[0.0] * first, *shares.tolist(), *[0.0] * (alignment.shape[0] - first - len(shares))]


def test_the_shares_of_a_span_are_the_sums_of_its_columns() -> None:
    draw = np.random.default_rng(1)
    blocks = [draw.random(shape) + 0.01 for shape in ((3, 2), (0, 1), (2, 0), (4, 5), (1, 1))]
    alignment = Alignment(blocks)
    whole = np.zeros(alignment.shape)
    for i, block in enumerate(alignment.blocks):
        whole[alignment.rows[i] : alignment.rows[i + 1], alignment.columns[i] : alignment.columns[i + 1]] = block
    for start in range(alignment.shape[1] + 1):
        for end in range(start, alignment.shape[1] + 1):
            np.testing.assert_allclose(all_shares(alignment, start, end), whole[:, start:end].sum(axis=1), atol=1e-12)


@pytest.mark.parametrize(
    ("line", "left", "n_marks"),
    [
        ("The <b>cat</b> is tired.", "The cat is tired.", 2),
        ("<p>A <i>very <b>big</b></i> dog</p>", "A very big dog", 6),
        ("**Bold**, *it*, __so so__ and [a link](http://x.y/z).", "Bold, it, so so and a link.", 8),
        ("See https://example.org/a?b=1, please.", "See, please.", 1),
        ("Write to jane.doe@example.org!", "Write to!", 1),
        ("{name}, please wait.", "please wait.", 1),
        ("A dog runs - 😀", "A dog runs", 1),
        ("It runs (v2.0.1) on %s and %(host)s.", "It runs on and.", 3),
        ("Take $HOME, ${x}, {{y}}, &amp; and #42", "Take, and", 5),
        ("Open '%s', ‘{name}’ or „{x}“ now.", "Open, or now.", 3),
        ("Open „{x}” or ”{y}” or »{z}« now.", "Open or or now.", 3),
        ("Model A-4711b has `a b` in it", "Model has in it", 2),
        ("👍🏽 Fine 🇫🇷", "Fine", 2),
        ("First<br/>second", "First second", 1),
        ("un<b>believ</b>able", "unbelievable", 2),
        ("A &lt;b&gt;big&lt;/b&gt; dog&lt;br/&gt;", "A big dog", 3),
        ("A &lt;a href='http://x.y'&gt;big&lt;/a&gt; dog", "A big dog", 2),
        ("A &lt;a href=&quot;/p?x=1&amp;amp;y=2&quot; download&gt;big&lt;/a&gt; dog", "A big dog", 2),
        ("A &lt;span class=&#39;so it is&#39;&gt;big&lt;/span&gt; dog", "A big dog", 2),
        ("A [b]big [i]old[/i][/b] [url=http://x.y]dog[/url]", "A big old dog", 6),
    ],
)
def test_marks_are_taken_out_and_put_back(line: str, left: str, n_marks: int) -> None:
    taken = take_out(line)
    assert taken.text == left and len(taken.marks) == n_marks
    back = put_back(taken.text, taken, same_order(len(taken.words)))
    if "un<b>" in line:
        line = "<b>unbelievable</b>"  # tags go around whole words
    assert "".join(back.split()) == "".join(line.split())


PLACEHOLDERS = (
    *("{{name}}", "{{ user.name | upper }}", "{{{raw}}}", "{% if x > 1 %}", "<%= @user.name %>", "<?php echo $x; ?>"),
    *("%{count}", "#{x + 1}", "${user.name}", "@{x}", "{0}", "{0:.2f}", "{name!r:>10}", "{}", "{user[0]}", "$HOME"),
    *("%s", "%-5.2f", "%+d", "%05d", "%*d", "%.3g", "%lld", "%zu", "%1$s", "%2$@", "%@", "%(name)s", "%#x", "%%"),
    *("%name%", "%user.name%", "__name__", "__COUNT_2__", "@@PH_1@@", "[[name]]", "<1/>", "<0>", "</0>", "#"),
    *(
        "\\n",
        "\\t",
        "C:\\new\\table.txt",
        "\\\\server\\share",
        "{\\an8}",
        "{n, plural, one {# cat} other {# cats of {name}}}",
    ),
    "{ sex, select, male {He {n, plural, one {is} other {are}}} other {They} }",
    *("{n, number}", "{day, date, short}", "{ $count }", "{ -brand }", "%<count>d", "%1", "%L2", "%I64d"),
    *("%v", "%q", ":smile:", "$t(other.key)", "@:other.key", "@:(key)"),
    *("%<PRIu64>", "%-5<PRId32>", "%.3<PRIxPTR>", "<!-- a > b -->", "<!-- <b>a</b> - b -- c -->"),
    *("{% include 'a/page.html' with title='a title' " + "x" * 300 + " %}", "{{ name " + "| so " * 50 + "}}"),
    "<%= link_to 'a', so_it_is" + ", x" * 100 + " %>",
)


@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
def test_placeholders_are_carried_over(placeholder: str) -> None:
    for line, left in (
        (f"The dog of {placeholder} is tired.", "The dog of is tired."),
        (f"{placeholder} is tired", "is tired"),
        (f"The cat, {placeholder}", "The cat,"),
    ):
        taken = take_out(line)
        assert taken.text == left and [mark.text for mark in taken.marks] == [placeholder]
        assert put_back(taken.text, taken, same_order(len(taken.words))) == line


@pytest.mark.parametrize(
    ("line", "found", "left"),
    [
        ("犬はhttps://example.org/dog?a=1にいます。", "https://example.org/dog?a=1", "犬は にいます。"),
        ("狗在https://example.org/dog，猫也在。", "https://example.org/dog", "狗在， 猫也在。"),
        ("สุนัขอยู่ที่www.example.orgแล้ว", "www.example.org", "สุนัขอยู่ที่ แล้ว"),
        ("See https://example.org/wiki/犬_(動物) too.", "https://example.org/wiki/犬_(動物)", "See too."),
        ("See www.한국.example, too.", "www.한국.example", "See, too."),
        ("狗在 https://example.org/dog睡了 好", "https://example.org/dog", "狗在 睡了 好"),
        ("猫はcat@example.comまで。", "cat@example.com", "猫は まで。"),
        ("狗%s睡了", "%s", "狗 睡了"),
        ("%1$s님이 잡니다", "%1$s", "님이 잡니다"),
        ("%(dog)sさん", "%(dog)s", "さん"),
        ("%1の猫", "%1", "の猫"),
        ("犬%dog%が寝る", "%dog%", "犬 が寝る"),
        ("犬__dog__が寝る", "__dog__", "犬 が寝る"),
        ("犬:smile:が寝る", ":smile:", "犬 が寝る"),
        ("$DOGの家", "$DOG", "の家"),
        ("@dogさんが寝る", "@dog", "さんが寝る"),
        ("@小狗 睡了", "@小狗", "睡了"),
        ("#小狗 睡了", "#小狗", "睡了"),
        ("犬A47が寝る", "A47", "犬 が寝る"),
        ("v2.0.1の犬", "v2.0.1", "の犬"),
    ],
)
def test_marks_are_found_in_text_without_spaces(line: str, found: str, left: str) -> None:
    taken = take_out(line)
    assert ([mark.text for mark in taken.marks], taken.text) == ([found], left)


def test_names_and_numbers_are_found_in_text_without_spaces() -> None:
    assert [mark.text for mark in take_out("犬:dogが寝る", markup="strings").marks] == [":dog"]
    taken = take_out("犬は2020年に1,200円で3匹", with_numbers=True)
    assert [mark.text for mark in taken.marks] == ["2020", "1,200"]


@pytest.mark.parametrize("line", ["犬はABCが3匹", "10%sûr", "犬#dog", "ABCの3", "a@b", "étéA47é"])
def test_other_text_beside_letters_stays(line: str) -> None:
    assert take_out(line).text == line


@pytest.mark.parametrize(
    "line",
    [
        "<c.yellow>a</c> cat",
        "<v.loud Bob>a <c.red><c.b.i>cat</c></c></v>",
        "<a.b>a <a.c>cat</a.c></a.b>",
        "<A.b>a</a.B>",
    ],
)
def test_a_tag_with_a_class_or_a_dot_in_its_name_is_one_of_a_pair(line: str) -> None:
    marks_of_line = take_out(line).marks
    partners = [(marks_of_line[mark.partner].text, mark.text) for mark in marks_of_line if mark.kind == "close"]
    assert {mark.partner for mark in marks_of_line} == set(range(len(marks_of_line)))
    assert all(closing[2] == opening[1].lower() for opening, closing in partners)


def test_escaped_tags_and_tags_of_forums_are_pairs() -> None:
    for line in ("a &lt;b&gt;c &lt;i&gt;d&lt;/i&gt;&lt;/b&gt;", "a [b]c [i]d[/i][/b]", "a [url=u]c[/url]"):
        marks_of_line = take_out(line).marks
        assert all(mark.partner >= 0 for mark in marks_of_line)
        assert all(marks_of_line[mark.partner].partner == i for i, mark in enumerate(marks_of_line))
    assert [mark.text for mark in take_out("5%<sup>2</sup> of it").marks] == ["<sup>2</sup>"]
    # What is no tag is text.
    for line in ("&lt;&lt;Bonjour à tous&gt;&gt;", "&lt;your name here&gt;", "a&lt;b, c&gt;d"):
        assert {mark.text for mark in take_out(line, markup="html").marks} <= {"&lt;", "&gt;", "&lt;&lt;", "&gt;&gt;"}
    # What a text tells of tags stays, too.
    assert [mark.text for mark in take_out("The &lt;b&gt; element.").marks] == ["&lt;b&gt;"]


def test_a_name_behind_a_colon_is_a_placeholder_in_programs() -> None:
    line = "Hello :name, you have :count_2 of :items."
    assert take_out(line).text == line
    taken = take_out(line, markup="strings")
    assert [mark.text.rstrip(",.") for mark in taken.marks] == [":name", ":count_2", ":items"]


@pytest.mark.parametrize(
    ("line", "left", "marks_of_line"),
    [
        ("A cat {: #cat .big }", "A cat", ["{: #cat .big }"]),
        ("A cat {#cat .big lang=fr}", "A cat", ["{#cat .big lang=fr}"]),
        ('![A cat](x){ width="3 0" } sleeps', "A cat sleeps", ["![", '](x){ width="3 0" }']),
        (
            "[A cat](x){ .big target=_blank download } sleeps",
            "A cat sleeps",
            ["[", "](x){ .big target=_blank download }"],
        ),
        ("[A cat](x){name} sleeps {0}", "A cat sleeps", ["[", "](x)", "{name}", "{0}"]),
        ("A cat {it is so. So}", "A cat {it is so. So}", []),
    ],
)
def test_lists_of_attributes_of_markdown_are_carried_over(line: str, left: str, marks_of_line: list[str]) -> None:
    taken = take_out(line, markup="markdown")
    assert taken.text == left and [mark.text for mark in taken.marks] == marks_of_line
    assert put_back(taken.text, taken, same_order(len(taken.words)), "markdown") == line


def test_codes_are_words_where_a_term_has_them() -> None:
    line = "The MP3 of A-47 plays <b>MP3</b>"
    assert take_out(line).text == "The of plays"
    assert take_out(line, words={4, 5, 6, 25, 26, 27}).text == "The MP3 of plays MP3"
    assert take_out(line, words=set(range(len(line)))).text == "The MP3 of A-47 plays MP3"


def test_underscores_around_a_word_are_bold_in_markdown_and_a_placeholder_elsewhere() -> None:
    assert take_out("A __big__ dog").text == "A dog"
    assert take_out("A __big__ dog", markup="markdown").text == "A big dog"
    assert take_out("A __very big__ dog").text == "A very big dog"


@pytest.mark.parametrize(
    "line",
    [
        *(
            "50% of the dogs, 100 % sure, 20% a day",
            "Is it {so}?",
            "A {big dog} sleeps",
            "5 <6 and 7> 3",
            "and/or n\\a",
        ),
        *("He said: [sic]", "C: the letter", "the key __", "5 # 6#", "50 %"),
        *("At 10:30: so it is", "a list[i] and [b], [s]he", "Note: so :P", "80%1", "It is so, {he said, then}"),
        *("Attention :le chat dort", "5 :pm", "{list, listing them}", "Nom :jean"),
    ],
)
def test_text_like_a_placeholder_stays(line: str) -> None:
    left = "5 6#" if "#" in line else "Is it?" if "{so}" in line else line
    assert take_out(line).text == left


@pytest.mark.parametrize(
    "line", ["a < b and 3 * 4", "I paid $5.", "10:30 at 5pm, 2nd floor", "snake_case", "2*3, a*b", "A T-shirt."]
)
def test_what_is_no_mark_stays(line: str) -> None:
    assert take_out(line).marks == [] and take_out(line).text == line


@given(
    st.text(st.one_of(st.sampled_from([*"aZé9 .:,;!?'’\"()–-_*@/\\<>{}[]%#$&`~|+€🙂ǅ１\u200d\n\t"]), st.characters()))
)
@example("see www.example.org")
@settings(max_examples=1000)
def test_a_line_that_is_plain_at_a_glance_has_no_marks(line: str) -> None:
    kinds: tuple[Markup, ...] = ("", "html", "markdown")
    for markup in kinds:
        pattern = marks(markup, with_numbers=True)
        assert not (is_plain(line) and pattern.search(line))
    assert is_plain("A dog – brown, as I said – isn't here (yet); “is” it?") is False
    assert is_plain("A dog – brown, as I said – isn't here (yet); is it?")


def test_emoji_that_are_signs_of_text_too_are_carried_over() -> None:
    emoji = ("1️⃣", "#️⃣", "*️⃣", "0⃣", "ℹ️", "⏏️", "⌨️", "↗️", "↩️", "©️", "®️", "™️", "‼️", "⁉️", "▪️", "Ⓜ️", "〰️", "㊗️", "◾")
    for one in emoji:
        taken = take_out(f"See {one} or")
        assert (taken.words, [mark.text for mark in taken.marks]) == (["See", "or"], [one])
    assert [mark.text for mark in take_out("*so* 1️⃣2️⃣").marks] == ["*", "*", "1️⃣2️⃣"]
    assert not take_out("© 2020 Tapis™, 3 × 4, a ‼ b ↗ c").marks


def test_numbers_are_taken_out_only_if_wanted() -> None:
    line = "In 1969, 25 dogs ate 1,234.50 bones at 10:30."
    assert take_out(line).marks == []
    taken = take_out(line, with_numbers=True)
    assert [mark.text for mark in taken.marks] == ["1969", "25", "1,234.50", "10:30"]
    assert put_back(taken.text, taken, same_order(len(taken.words))) == line


@pytest.mark.parametrize(
    "line",
    [
        "<a href=1>Home</a><a href=2>News</a> here",
        'See <a title="a > b" href=x>this</a> now',
        "CO<sub>2</sub> emissions",
        "AT&amp;T is 10&nbsp;km away",
        "{count}th place of {name}'s dog",
        "Press <kbd>Ctrl</kbd>+<kbd>C</kbd> now",
        "* item with *emph* word",
        "![The cat](img.png) is sleeping.",
        "Compute 3*4, 2**10 and f*ck now",
        "{\\an8}Hello there",
        "See https://x.org/Cat_(animal), or (https://x.org/a_(b)/c). Fine",
        "**Bold**, then _it_ and __so so__",
        "The dog sleeps.<br>The <i>cat</i> is tired.<hr>The end.",
    ],
)
def test_a_line_that_stays_comes_back_as_it_was(line: str) -> None:
    taken = take_out(line)
    assert put_back(taken.text, taken, same_order(len(taken.words))) == line


def test_numbers_with_signs_and_units_come_back() -> None:
    line = "It costs $50, -25 degrees and 50% of the 1990s in A/12."
    taken = take_out(line, with_numbers=True)
    assert [mark.text for mark in taken.marks] == ["$50", "-25", "50%", "1990s", "12"]
    assert put_back(taken.text, taken, same_order(len(taken.words))) == line


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("It is 12,50 € or £5 or 5 $.", ["12,50 €", "£5", "5 $"]),
        ("Call +33 6 12 34 56 78 or +1 (415) 555-0100 now", ["+33 6 12 34 56 78", "+1 (415) 555-0100"]),
        ("At 5 °C, 7 % or -3°F on 2026-11-27", ["5 °C", "7 %", "-3°F", "2026-11-27"]),
        (
            "Of 1 000, 25’000 or 10–20 000 to $5 000.50 in 2020 100",
            ["1 000", "25’000", "10–20 000", "$5 000.50", "2020", "100"],
        ),
        ("Of ١٢٫٥ or 12\u2009000", ["١٢٫٥", "12\u2009000"]),
        ("From 10–20, 1990‑99 or ￥1,000 to ￡5", ["10–20", "1990‑99", "￥1,000", "￡5"]),
        ("Of ≥10 to ±2.5 or ~50 and ≈12 % of <100 dogs", ["≥10", "±2.5", "~50", "≈12 %", "<100"]),
    ],
)
def test_amounts_and_telephone_numbers_are_whole(line: str, found: list[str]) -> None:
    taken = take_out(line, with_numbers=True)
    assert [mark.text for mark in taken.marks] == found
    assert put_back(taken.text, taken, same_order(len(taken.words))) == line


@pytest.mark.parametrize(
    "pair",
    [
        *("%d/%d", "{x}:{y}", "{a}–{b}", "{w}×{h}", "{a}_{b}", "{a}*{b}", "{a}", "{a}{b}", "{a}({b})", '"{a}"/"{b}"'),
        *("({a}/{b})", "({a})/({b})", "$5-$10", "12×13", "%d/12", "12/{x}", "<kbd>A</kbd>+<kbd>B</kbd>"),
        *("{a}、{b}", "{h}：{m}", "{a}（{b}）"),
    ],
)
def test_the_signs_between_two_things_stay_between_them(pair: str) -> None:
    """The model does not see them, and what it changes in the words around does not divide the two."""
    taken = take_out(f"The cat sees {pair} big dogs.", with_numbers=True)
    assert taken.text == "The cat sees big dogs."
    assert pair in put_back("Die Katze sieht dort große Hunde.", taken, SamePlaces(6, 5))
    assert pair in put_back("le chat voit de grands chiens.", taken, Alignment([np.eye(6)[:, [5, 4, 3, 2, 0]]]))


def test_punctuation_of_other_scripts_between_two_things_belongs_to_the_word_before() -> None:
    """As if only one were there, so that the model sees both sentences, and the translation has its own full stop."""
    for end in FULL_STOPS.replace(".", "") + "！？؟，،）":
        taken = take_out(f"我爱{{a}}{end}{{b}}走了。")
        assert taken.words == [f"我爱{end}", "走了。"]
        back = put_back("I love. Has left.", taken, Alignment([np.eye(2)[:, :1], np.eye(2)[:, :1]]))
        assert back.startswith("I love {a}.") and end not in back and "{b}" in back


def test_characters_that_are_repaired_are_no_spaces() -> None:
    """An ellipsis of Windows-1252, and a byte order mark. Marks have them as they are."""
    taken = take_out("The c\ufeffat\x85 {{\ufeff\x85}} sleeps\x85")
    assert [repair(word) for word in taken.words] == ["The", "cat…", "sleeps…"]
    assert [mark.text for mark in taken.marks] == ["{{\ufeff\x85}}"]
    assert take_direction("\u202bA cat\x85\u202c ") == ("\u202b", "A cat\x85", "\u202c")
    assert take_direction(" A cat\x85\n")[1] == "A cat\x85"


def test_a_mark_between_two_sentences_stays_between_them() -> None:
    """Whatever the alignment says of the word before it."""
    for mark in ("<br>", "<img src=x>", "<p>", "{name}", "😀"):
        taken = take_out(f"The dog sleeps. {mark} The cat is tired.")
        first = np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
        back = put_back("Le chien dort. Le chat dort aussi.", taken, Alignment([first, np.ones((4, 4))]))
        assert back == f"Le chien dort. {mark} Le chat dort aussi."
    taken = take_out("The dog sleeps.<br>The cat is tired.")
    assert taken.text == "The dog sleeps. The cat is tired."
    back = put_back("Le chien dort. Le chat dort.", taken, Alignment([np.ones((3, 3)), np.ones((3, 4))]))
    assert back == "Le chien dort.<br>Le chat dort."


@st.composite
def well_formed(draw: st.DrawFn) -> tuple[str, dict[str, str]]:
    """A line with tags in pairs, each with a name of its own, and the name of the tag around each."""
    parents: dict[str, str] = {}

    def content(around: str, depth: int) -> str:
        parts = []
        for _ in range(draw(st.integers(0, 3))):
            kind = draw(st.sampled_from(["words", "pair", "void", "link"] if depth < 4 else ["words"]))
            if kind == "words":
                parts.append(draw(st.sampled_from(["one", "two three", "four, five.", "x"])))
            elif kind == "void":
                parts.append("<br>")
            else:
                name = f"t{len(parents)}"
                parents[name] = around
                inner = content(name, depth + 1)
                parts.append(f"<{name}>{inner}</{name}>")
        return draw(st.sampled_from([" ", ""])).join(parts)

    return content("", 0), parents


@given(well_formed(), st.integers(0, 8), st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_what_is_well_formed_stays_so_and_each_tag_stays_in_the_same_one(
    line_and_parents: tuple[str, dict[str, str]], n: int, choose: random.Random
) -> None:
    """Whatever the alignment: siblings do not cross, and do not nest."""
    line, parents = line_and_parents
    taken = take_out(line)
    n_source = len(taken.words)
    cut = choose.randint(0, min(n, n_source))
    blocks = [
        np.array([[choose.choice([0.0, 0.2, 1.0]) for _ in range(width)] for _ in range(height)]).reshape(height, width)
        for height, width in ((cut, cut), (n - cut, n_source - cut))
    ]
    for alignment in (Alignment(blocks), SamePlaces(n, n_source)):
        back = put_back(" ".join(["χ"] * n), taken, alignment)
        assert back.count("χ") == n and back.count("<br>") == line.count("<br>")
        around, found = [""], {}
        for slash, name in re.findall(r"<(/?)(t\d+)>", back):
            if slash:
                assert around.pop() == name, (line, back)
            else:
                found[name] = around[-1]
                around.append(name)
        assert around == [""] and found == parents, (line, back)


def test_siblings_share_the_words_by_what_comes_from_them() -> None:
    taken = take_out("<b>The</b> <i>cat</i> is tired.")
    attended = np.array([[0.3, 0.6, 0.1, 0.0], [0.1, 0.9, 0.0, 0.0], [0, 0, 1.0, 0], [0, 0, 0, 1.0]])
    back = put_back("Le chat est fatigué.", taken, Alignment([attended]))
    assert back == "<b>Le</b> <i>chat</i> est fatigué."
    taken = take_out("[The](a) [cat](b) is tired.")
    back = put_back("Le chat est fatigué.", taken, Alignment([attended]))
    assert back == "[Le](a) [chat](b) est fatigué."


def test_sentences_are_aligned_one_by_one() -> None:
    blocks = Alignment([np.eye(1), np.array([[0.0, 2.0], [1.0, 1.0], [3.0, 0.0]])])
    assert blocks.shape == (4, 3) and [blocks.best(word) for word in range(3)] == [0, 3, 1]
    assert all_shares(blocks, 1, 2) == [0, 0, 0.5, 1] and all_shares(blocks, 0, 3) == [1, 1, 1, 1]
    same = SamePlaces(4, 2)
    assert [same.best(word) for word in range(2)] == [1, 3] and all_shares(same, 1, 2) == [0, 0, 1, 1]


@pytest.mark.parametrize("n", [1, 20, 200])
def test_tags_within_tags_come_back_in_order(n: int) -> None:
    """However many they are; within fifty they are placed by the words, and deeper where the pair around them is."""
    line = "".join(f"<b>w{i} " for i in range(n)) + "end" + "</b>" * n
    taken = take_out(line)
    assert put_back(taken.text, taken, Alignment([np.eye(n + 1)])).count("<b>") == n
    if n <= 50:
        assert put_back(taken.text, taken, Alignment([np.eye(n + 1)])) == line


def test_a_thing_stays_within_a_translation_whose_last_sentence_is_empty() -> None:
    taken = take_out("The cat sleeps. The {name} dog runs.")
    alignment = Alignment([np.eye(3), np.zeros((0, 3))])
    assert put_back("Le chat dort.", taken, alignment) == "Le chat dort. {name}"


def test_code_is_kept_in_any_letter_case() -> None:
    taken = take_out("Type <CODE>make all</Code> now ⏰ \U0001f3f4\U000e0067\U000e0062\U000e007f.")
    assert taken.text == "Type now." and [mark.text for mark in taken.marks][:2] == ["<CODE>make all</Code>", "⏰"]


def test_tags_are_around_what_comes_from_the_words_that_they_were_around() -> None:
    # "the black cat sleeps." → "le chat noir dort ."
    taken = take_out("the <i><b>black</b> cat</i> sleeps {now}.")
    alignment = np.zeros((5, 4))
    for target, source in enumerate((0, 2, 1, 3, 3)):
        alignment[target, source] = 1.0
    assert taken.text == "the black cat sleeps."
    assert put_back("le chat noir dort .", taken, Alignment([alignment])) == "le <i>chat <b>noir</b></i> dort {now}."


def test_a_tag_within_a_tag_stays_within_it() -> None:
    taken = take_out("<a>one <b>two</b></a> three")
    alignment = np.array([[0, 0.1, 1], [1, 0, 0.5], [0, 1, 0.2]])
    assert put_back("x y z", taken, Alignment([alignment])) == "x <a>y <b>z</b></a>"
    assert put_back("x y z", taken, Alignment([alignment[[2, 0, 1]]])) == "<a><b>x</b></a> y z"


def test_punctuation_stays_outside_a_tag_that_it_was_outside_of() -> None:
    for line, translation, expected in (
        ("a <b>cat</b>.", "un chat.", "un <b>chat</b>."),
        ("<b>a cat.</b>", "un chat.", "<b>un chat.</b>"),
        ("a <b>cat</b>", "un chat.", "un <b>chat</b>."),
    ):
        taken = take_out(line)
        assert put_back(translation, taken, same_order(2)) == expected


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("هل ترى {name}؟", "هل ترى؟"),
        ("क्या यह {name}।", "क्या यह।"),
        ("ဒါက {name}။", "ဒါက။"),
        ("នេះជា {name}។", "នេះជា។"),
        ("猫も {name}｡", "猫も｡"),
        ("猫も {name}．", "猫も．"),
        ("猫も {name}、犬も {name}！", "猫も、 犬も！"),
        ("猫 （{name}） です。", "猫 です。"),
        ("猫{a}（{b}）。", "猫。"),
        ("Do you see {name}?", "Do you see?"),
    ],
)
def test_punctuation_of_any_script_belongs_to_the_word_before_a_mark(line: str, left: str) -> None:
    taken = take_out(line)
    assert taken.text == left
    assert put_back(left, taken, same_order(len(taken.words))).replace("、 ", "、") == line
    for end in "。？؟۔।?။។｡．":
        assert put_back(f"χ ψ{end}", take_out("I see {name}."), same_order(2)) == f"χ ψ {{name}}{end}"


@pytest.mark.parametrize(
    ("line", "translation", "expected"),
    [
        ("我的朋友{name}住在这里。", "My friend lives here.", "My friend {name} lives here."),
        ("我的朋友{name}住在这里。", "私の友達は ここに住んでいます。", "私の友達は{name}ここに住んでいます。"),
        ("我的<b>朋友</b>{name}住在这里。", "My friend lives here.", "<b>My friend</b> {name} lives here."),
        ("请看https://example.org，谢谢。", "Look, thanks.", "Look https://example.org, thanks."),
        ("สุนัขอยู่ที่www.example.orgแล้ว", "The dog is there.", "The dog www.example.org is there."),
        ("{name}님이 잡니다.", "Sir sleeps.", "{name} Sir sleeps."),
        ("请看（{a}/{b}）。", "Look ().", "Look ({a}/{b})."),
        ("犬が😀。", "A dog.", "A dog 😀."),
        ("안녕{name}!", "Hello!", "Hello {name}!"),
        ("我的{x}, 好.", "Mine, good.", "Mine {x}, good."),
        ("请看{a} {b}!", "Look!", "Look {a} {b}!"),
        ("请看Tapis{a}。", "See Tapis.", "See Tapis{a}."),
        ("看Tapis。{name}在这里。", "See Tapis. He is here.", "See Tapis. {name} He is here."),
        ("Α,{x}", "Α,", "Α,{x}"),
        ("第一<br>第二&nbsp;第三\\n第四", "One two three four", "One<br>two&nbsp;three\\nfour"),
        ("A{x}B", "Α Β", "Α{x}Β"),
    ],
)
def test_spaces_beside_a_thing_are_those_of_the_script_of_the_translation(
    line: str, translation: str, expected: str
) -> None:
    taken = take_out(line)
    n_target, n_source = len(translation.split()), len(taken.words)
    assert put_back(translation, taken, SamePlaces(n_target, n_source)) == expected


def test_a_sentence_of_any_script_ends_before_a_tag() -> None:
    for end in "。！？؟۔।.။។｡．":
        assert take_out(f"猫{end}<b>犬</b>").words == [f"猫{end}", "犬"]


def test_nothing_is_lost_whatever_the_line_and_the_alignment() -> None:
    """Every character of 10,000 random lines is either in a mark or in a word, and every mark comes back once."""
    choose = random.Random(1)
    for _ in range(10_000):
        line = "".join(choose.choice(FRAGMENTS) for _ in range(choose.randrange(1, 14)))
        taken = take_out(line, with_numbers=choose.random() < 0.5)
        n = choose.randrange(6)
        alignment = np.array([[choose.random() for _ in taken.words] for _ in range(n)]).reshape(n, len(taken.words))
        back = put_back(" ".join(["χ"] * n), taken, Alignment([alignment]))

        marks = Counter("".join("".join(mark.text for mark in taken.marks).split()))
        assert Counter("".join(line.split())) == marks + Counter("".join(taken.words)), line
        assert Counter("".join(back.split())) == marks + Counter("χ" * n), line
        places = [back.replace("χ", " ").find(mark.text) for mark in taken.marks]
        assert min(places, default=0) >= 0, line
        opened = [mark.text for mark in taken.marks if mark.partner >= 0]
        assert len(opened) % 2 == 0, line


def test_words_that_stay_are_aligned_one_by_one_as_in_one_block() -> None:
    choose = random.Random(2)
    for _ in range(2_000):
        line = "".join(choose.choice(FRAGMENTS) for _ in range(choose.randrange(1, 14)))
        taken = take_out(line, with_numbers=choose.random() < 0.5)
        n = choose.randint(0, len(taken.words))  # words that stay, before a sentence that is translated
        attended = np.array([[choose.random() for _ in taken.words[n:]] for _ in range(3)])
        words = " ".join([*taken.words[:n], "χ", "ψ.", "!"])
        one_by_one, at_once = (Alignment([*of_words, attended]) for of_words in (same_words(n), [np.eye(n)]))
        assert put_back(words, taken, one_by_one) == put_back(words, taken, at_once), line


@pytest.mark.parametrize(
    ("line", "attended", "expected"),
    [
        ("<b>A man</b> is sleeping<i> here.</i>", [0, 1, 4], "<b>Ein Mann</b> <i>schläft.</i>"),
        ("<b>A man </b><i>is sleeping.</i>", [0, 1, 3], "<b>Ein Mann</b> <i>schläft.</i>"),
        ("A man<i> {x}sleeps.</i>", [0, 1, 2], "Ein Mann <i>{x}schläft.</i>"),
        ("A <b>man</b> is sleep<i>ing</i>.", [0, 1, 3], "Ein <b>Mann</b> <i>schläft</i>."),
        ("<i>A man</i><b>sleeps.</b>", [0, 1, 2], "<i>Ein Mann</i><b>schläft.</b>"),
        ("A man<br>sleeps.", [0, 1, 2], "Ein Mann<br>schläft."),
    ],
)
def test_a_space_within_a_tag_separates_words(line: str, attended: list[int], expected: str) -> None:
    taken = take_out(line)
    alignment = Alignment([np.eye(len(taken.words))[attended]])
    assert put_back("Ein Mann schläft.", taken, alignment) == expected


def texts_of_joining_marks(line: str, taken_marks: Sequence[Mark]) -> list[str]:
    """The marks with text on both sides, without a space; of marks that follow each other, all or none."""
    joining = []
    for mark in taken_marks:
        start, end = mark.start, mark.end
        for one in reversed(taken_marks):
            start = one.start if one.end == start else start
        for one in taken_marks:
            end = one.end if one.start == end else end
        before, after = line[start - 1 : start], line[end : end + 1]
        if before.strip() and after.strip() and after not in PUNCTUATION:
            joining.append(mark.text)
    return joining


@given(
    line=st.lists(st.sampled_from([*FRAGMENTS, " ", "<b> ", " </b>", "one"]), max_size=14).map("".join),
    words=st.lists(st.sampled_from(["α", "βγ", "δ,", "ε."]), max_size=6),
    choose=st.randoms(use_true_random=False),
    markup=st.sampled_from(["", "html", "markdown"]),
    with_numbers=st.booleans(),
)
@settings(max_examples=500, deadline=None)
def test_words_stay_apart_and_in_order(
    line: str, words: list[str], choose: random.Random, markup: Markup, with_numbers: bool
) -> None:
    """Between two words of a translation is a space that is of no mark, or a mark that joined words in the source."""
    taken = take_out(line, with_numbers, markup)
    attended = [[choose.random() ** 4 for _ in taken.words] for _ in words]
    alignment = Alignment([np.array(attended).reshape(len(words), len(taken.words))])
    back = put_back(" ".join(words), taken, alignment, markup)

    letters = re.compile("[α-ω]+")
    assert letters.findall(back) == [word.strip(PUNCTUATION) for word in words]
    joining = texts_of_joining_marks(line, taken.marks)
    for gap in letters.split(back)[1:-1]:
        spaces = gap
        for text in sorted((mark.text for mark in taken.marks), key=len, reverse=True):
            spaces = spaces.replace(text, "")
        assert re.search(r"\s", spaces) or any(text in gap for text in joining), back


@pytest.mark.parametrize(
    "fragment",
    [
        *(
            "<",
            "a",
            "{",
            "*",
            "[",
            "<b>",
            "</b>",
            "<!--",
            "`",
            "[a",
            "[a](b",
            "http://",
            "a.b@",
            "1,",
            "A1-",
            "😀",
            "%(",
            "&lt;a ",
            "&lt;/a",
            "[b]",
            ":a",
            "%<a",
        ),
        *("&a", "a_", "x**y ", ".", "$", "-", "<a b", "1", "[[a](b)", "<b>.", "a.[a](b)"),
        *("猫a", "猫www.", "https://猫", "猫a@", "%d猫", "猫1,", "猫:a:"),
    ],
)
def test_a_long_line_takes_time_in_proportion(fragment: str) -> None:
    """A megabyte takes about a second; with a quadratic step, it would take an hour."""

    def translate(size: int) -> None:
        taken = take_out(fragment * (size // len(fragment)), with_numbers=True)
        put_back("x y", taken, Alignment([np.ones((2, len(taken.words)))]))

    short = seconds_of(lambda: translate(50_000))
    assert takes_less_than(12 * short + 0.5, lambda: translate(200_000))
