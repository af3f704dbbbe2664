"""The HTML file of `export.py --to web`, opened from disk: the translations of Tapis, and a page that stays usable."""

import json
import random
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CHECK_ACCESSIBILITY, ROOT, Command, eventually, saved_untrained
from strict_engine import strict_engine

from checkpoint import RunFolder
from config import Config
from decoding.translator import Translator
from exporting.web import to_web
from exporting.web_page import ENGINE, PAGE_FIELDS, REMAINDERS, web_page
from model import Transformer
from pairs.corpus import Corpus
from tapis import lengths
from tapis.attention import END, Attention, word_alignment
from tapis.config import ALWAYS_WHOLE, EOS, LENGTH_PENALTY, Learned
from tapis.doubts import doubts, numbers, words
from tapis.engine import engine
from tapis.engine.weights import DEPTH, PANEL
from tapis.search import Search
from tapis.text.alignment import SMOOTHING, Alignment, SamePlaces
from tapis.text.languages import repair
from tapis.text.letter_case import MIN_CAPITALS, MIN_SHARE, MIN_WORDS, uppercase, usual_case
from tapis.text.loops import PROBE, loops, without_loops
from tapis.text.marks import take_out
from tapis.text.placement import DEEPEST, put_back
from tapis.text.sentences import split_line, take_direction
from tapis.text.tokenizer import Tokenizer
from tapis.translator import UNSURE_BELOW
from tapis.typed_text import WIDER_BEAM
from tapis.web import web_file

browsing = pytest.mark.browser
EXACT: Any = "int8" if engine.variants() else "fp32"  # the precision to compare with
SENTENCE = "The cat is sitting on the mat."

# Computes an expression in a worker that has the engine, as the page's own worker does.
EVALUATE = """
const [engine, expression, argument, done] = arguments;
const code = `${engine}\n onmessage = async ({ data }) => postMessage(await (${expression})(...data));`;
const worker = new Worker(URL.createObjectURL(new Blob([code])));
worker.onmessage = ({ data }) => done(data);
worker.onerror = (event) => done(event.message);
worker.postMessage(argument);
"""

# Of lines with marks
PIECES = (
    *(
        "the cat",
        " sits",
        " ",
        "  ",
        ".",
        ", ",
        "!",
        "l'été",
        "a",
        "中",
        " 12",
        "1,000.5",
        " x2",
        "AB-12",
        "v1.2",
        "v1.2x",
        "é",
        "constructor",
    ),
    *(
        "<b>",
        "</b>",
        "<i class='x'>",
        "</i>",
        "<br>",
        "<br/>",
        "<code>x <y</code>",
        "<SUB>2</sub>",
        "<!-- a -->",
        "<c.y z>",
        "</c>",
        "< ",
        ">",
    ),
    *("**", "*", "_", "~~", "[", "](https://a.b/c)", '](u "t")', "![", "][ref]", "[^1]", "`x y`", "(", ")", "«", "»"),
    *(
        "https://example.org/a?b=c(d)",
        "www.x.de/",
        "me@x.org",
        "{name}",
        "${X}",
        "%s",
        "%(n)d",
        "&amp;",
        "#tag",
        "@you",
    ),
    *("***", "`", "``", "``x ` y``", "<code>", "</code>", "\\]", "[x]", "](<x y>)", "](x_(y) 'z')", "<b><i>"),
    *("10–20", "≥10", "~5 €", "±", "<", "￥5", "1️⃣", "*️⃣", "#⃣", "©️", "©", "ℹ️", "〰️", "◾", "\ufe0f"),
    *("{{ x }}", "%{n}", "__x__", "<0>", "</0>", "<1/>", "%-5.2f", "\\n", "C:\\new", "[[n]]", "%name%", "%%", " # "),
    *("25’000", " 1 000", "2020 100", "١٢٫٥", "3\u2009000", " 6'2", "٬"),
    *("\u0085", "\ufeff", "a\ufeffb", "{{\ufeff\u0085}}", "<b\ufeff>", "<b\u0085>"),
    *("%s/%s", "/", "×", "({a}", "，", "（", "）", "؟", "।", "」", "။", "｡", "．"),
    "{\n n,\n select," + " x {a\n b}" * 60 + "}",
    *("https://a.b/犬_(犬)", " www.犬.c, ", "犬", "。", "("),
    *("{% so " + "so " * 50 + "%}", "{{ " + "so " * 50 + "}}", "%<PRIu64>", "<!-- a > <b> - b -- -->", "<!--", "-->"),
    *("{n, plural, one {# a} other {b {x}}}", "{n, plural, ", "{", "}", "<p>", " 5 €", "£5", "+33 6 12 34", "<%= x %>"),
    *(
        "{n, number}",
        "{ $x }",
        "%<n>d",
        "5%<n>d",
        "%1",
        "%L2",
        "%I64d",
        "%v",
        ":name",
        " :so:",
        "$t(a.b)",
        "@:a.b",
        "@:(a)",
    ),
    *(
        "&lt;b&gt;",
        "&lt;/b&gt;",
        "&lt;br/&gt;",
        "&lt;a href=u&gt;",
        "&lt;a b&gt;",
        "&lt;a b=&quot;x&amp;y&quot; c&gt;",
        "&lt;a b=&#39;x y&#39;&gt;",
        "&lt;&lt;a&gt;",
        "[b]",
        "[/b]",
        "[url=u]",
        "[/url]",
        "[i]",
        "/i]",
    ),
    *(
        "中https://example.org/d中",
        "中me@x.org中",
        "中%s",
        "%1$s님",
        "中:so:",
        "@you中",
        "#中",
        "中A47",
        "v1.2中",
        "2020年",
    ),
    *("😀", "👩‍👩‍👧", "🇫🇷", "☂︎", " — ", " - ", '"', "“", "”", "snake_case", "2*3", "${", "}", "\u00a0", "$5", "10 %"),
)

# Tries to reach the network in several ways. Returns the directives of the page's policy that forbid them.
REACH_OUT = """
const done = arguments[0];
const place = "https://example.org/";
const forbidden = [];
const note = (directive) => {
  forbidden.push(directive);
  if (forbidden.length === 4) done(forbidden);
};
document.addEventListener("securitypolicyviolation", ({ effectiveDirective }) => note(effectiveDirective));

fetch(place).catch(() => {});
new Image().src = place;
const form = Object.assign(document.createElement("form"), { action: place });
document.body.append(form);
form.submit();
const code = `
  addEventListener("securitypolicyviolation", ({ effectiveDirective }) => postMessage(effectiveDirective));
  fetch("${place}").catch(() => {});`;
const worker = new Worker(URL.createObjectURL(new Blob([code])));
worker.onmessage = ({ data }) => note(`worker: ${data}`);
"""


def test_constants_that_are_written_twice_are_equal() -> None:
    code = "\n".join(map(web_file, ENGINE))
    constants = dict(re.findall(r"^const (\w+) = (-?[\d.]+);", code, re.MULTILINE))
    expected = {
        "LENGTH_PENALTY": LENGTH_PENALTY,
        "LIMIT_SPREADS": lengths.LIMIT,
        "LARGEST": lengths.LARGEST,
        "EXTRA_LENGTH": lengths.EXTRA_LENGTH,
        "PAPERS_EXTRA_LENGTH": lengths.PAPERS_EXTRA_LENGTH,
        "ALWAYS_WHOLE": ALWAYS_WHOLE,
        "EOS": EOS,
        "PANEL": PANEL,
        "DEPTH": DEPTH,
        "DONE": engine.DONE,
        "REMAINDERS": REMAINDERS,
        "MIN_CAPITALS": MIN_CAPITALS,
        "MIN_WORDS": MIN_WORDS,
        "MIN_SHARE": MIN_SHARE,
        "UNSURE_BELOW": UNSURE_BELOW,
        "SMOOTHING": SMOOTHING,
        "DEEPEST": DEEPEST,
        "PROBE": PROBE,
        "BEAM": WIDER_BEAM,
    }
    assert {name: float(constants[name]) for name in expected} == expected


def part(page: str, name: str) -> str:
    """A part of the file that its page reads as text."""
    match = re.search(rf'<script type="text/plain" id="{name}"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert match
    return match[1]


def evaluate(browser: Any, page: str, expression: str, *arguments: Any) -> Any:
    """What a JavaScript function of the engine returns."""
    return browser.execute_async_script(EVALUATE, part(page, "engine"), expression, arguments)


def exported(folder: RunFolder, browser: Any = None) -> str:
    """Export a run, and open the page until it is ready. Returns the text of the file."""
    file = Path("page.html").resolve()
    file.unlink(missing_ok=True)
    to_web(folder, file, "mit")
    if browser:
        browser.get(file.as_uri())
        eventually(lambda: is_ready(browser))
    return file.read_text(encoding="utf-8")


def is_ready(browser: Any) -> bool:
    return browser.execute_script("return target.value !== ''") is True


def text_of(browser: Any, name: str) -> str:
    """The text of an element, without what only screen readers read."""
    script = """
        const copy = document.getElementById(arguments[0]).cloneNode(true);
        for (const element of copy.querySelectorAll(".unselectable")) element.remove();
        return copy.textContent;"""
    return str(browser.execute_script(script, name))


def type_text(browser: Any, text: str) -> None:
    """Puts a text into the page as a paste does."""
    script = "text.value = arguments[0]; text.dispatchEvent(new Event('input'))"
    browser.execute_script(script, text)


def choose(browser: Any, name: str, value: str) -> None:
    script = "const choice = document.getElementById(arguments[0]); choice.value = arguments[1];"
    browser.execute_script(script + "choice.dispatchEvent(new Event('change'))", name, value)


@pytest.fixture(autouse=True)
def same_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Translators round weights as the page does: the variant avx2, the default on many CPUs, has its own scales."""
    monkeypatch.setenv("TAPIS_VARIANT", "plain")


def translated(browser: Any, lines: Sequence[str]) -> list[str]:
    """The page's translation of some lines, which begins at once."""
    script = "text.value = arguments[0]; search.dispatchEvent(new Event('change'))"
    browser.execute_script(script, "\n".join(lines))
    return finished(browser)


def translated_with_extras(browser: Any, text: str) -> str:
    """The translation of a single sentence, once its alternatives are there."""
    (line,) = translated(browser, [text])
    eventually(lambda: browser.execute_script("return document.querySelector('.take')"))
    return line


def finished(browser: Any) -> list[str]:
    eventually(lambda: text_of(browser, "status").endswith(" ms"))
    return text_of(browser, "output").split("\n")


def searched(browser: Any, page: str, sentences: Sequence[str], target: str, beam: int = 1) -> list[str]:
    """What the search of the engine finds: untrained models repeat themselves, which the page would not show."""
    function = """(description, code, weights, sentences, target, beam) => {
        const translator = new Translator(JSON.parse(description), bytesOf(code));
        for (const part of weights) translator.engine.takeWeights(bytesOf(part));
        return sentences.map((sentence) => translator.nBest(sentence, target, { beam })[0].text);
    }"""
    parts = [part(page, name) for name in ("description", "module")]
    weights = re.findall(r'id="weights-\d+"[^>]*>(.*?)</script>', page)
    return list(evaluate(browser, page, function, *parts, weights, sentences, target, beam))


def n_different(ours: Sequence[str], theirs: Sequence[str]) -> int:
    return sum(a != b for a, b in zip(ours, theirs, strict=True))


@browsing
def test_the_page_gives_the_translations_of_tapis(demo_run: RunFolder, demo: Corpus, browser: Any) -> None:
    exported(demo_run, browser)
    translate = Translator.load(demo_run.path, "cpu", EXACT)
    sentences = [source for source, _ in demo.test[:30]]
    assert n_different(translated(browser, sentences), translate(sentences)) <= 1
    choose(browser, "search", "beam")
    beam = translate(sentences, Search(beam=5))
    assert n_different(translated(browser, sentences), beam) <= 1

    # lines stay lines, and what has no letters is copied
    lines = translated(browser, [f"{SENTENCE} {SENTENCE}", "", f"- {SENTENCE}", "12 + 3", f"-{SENTENCE}"])
    (one,) = translate([SENTENCE], Search(beam=5))
    assert lines == [f"{one} {one}", "", f"- {one}", "12 + 3", f"-{one}"]
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


@browsing
@pytest.mark.parametrize("beam", [1, 5])
def test_hundreds_of_translations_are_those_of_the_engine_in_c(
    beam: int, demo_run: RunFolder, browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine adds in the same order and has the same embeddings."""
    page = exported(demo_run, browser)
    config, tokenizer, model = demo_run.load_model(torch.device("cpu"))
    strict = strict_engine(model, [], tmp_path, monkeypatch)
    translate = Translator(strict, tokenizer, config, demo_run.load_learned())
    lines = [line for part in ("test", "valid") for line in (ROOT / f"demo/{part}.en").read_text("utf-8").splitlines()]
    sentences = lines[::3]
    assert len(sentences) == 200
    found = [
        one
        for start in range(0, len(sentences), 100)
        for one in searched(browser, page, sentences[start : start + 100], "fr", beam)
    ]
    assert n_different(found, translate(sentences, Search(beam=beam))) == 0


@browsing
def test_a_single_sentence_shows_its_attention_and_the_page_its_model(
    demo_run: RunFolder, translator: Translator, browser: Any
) -> None:
    exported(demo_run, browser)
    translated_with_extras(browser, SENTENCE)
    browser.execute_script("attention.open = true; byId('model').open = true")
    cells = eventually(lambda: browser.find_elements("css selector", "#attention tbody td"))
    titles = [cell.get_attribute("title") for cell in cells]
    _, attention = translator.attention(SENTENCE)
    weights = attention.weights[-1].mean(axis=0).flatten().tolist()
    assert len(titles) == len(weights)
    for title, weight in zip(titles, weights, strict=True):
        assert float(title.split()[-2]) == pytest.approx(100 * weight, abs=5)  # 8 bits
    facts = text_of(browser, "facts")
    assert "English to French" in facts and "mit" in facts and "BLEU" in facts


@browsing
@pytest.mark.parametrize(("norm", "tie"), [("pre", False), ("post", True)])
def test_models_of_other_shapes_give_the_same_translations(
    norm: Any, tie: bool, tiny: Config, tokenizer: Tokenizer, demo: Corpus, browser: Any
) -> None:
    shape = replace(tiny, norm=norm, tie_embeddings=tie, d_ff=40, n_encoder_layers=1, n_decoder_layers=2)
    folder = saved_untrained(shape, tokenizer)
    folder.save_learned(Learned(1.1, 0.7))
    page = exported(folder, browser)
    sentences = [source for source, _ in demo.test[:30]]
    expected = Translator.load(folder.path, "cpu", EXACT)(sentences)
    assert len(set(expected)) > 3
    found = searched(browser, page, sentences, "fr")
    assert n_different(found, expected) <= 3  # untrained models decide by little


@browsing
def test_a_model_of_several_languages_offers_its_targets(tiny: Config, demo: Corpus, browser: Any) -> None:
    texts = [side for pair in demo.train[:300] for side in pair]
    pairs = replace(tiny, pairs=("en-fr", "fr-en"))
    folder = saved_untrained(pairs, Tokenizer.train(texts, 300, ["en", "fr"]))
    page = exported(folder, browser)
    translate = Translator.load(folder.path, "cpu", EXACT)
    sentences = [source for source, _ in demo.test[:10]]
    for source, target in (("en", "fr"), ("fr", "en")):
        choose(browser, "source", source)
        assert browser.execute_script("return target.value") == target
        found = searched(browser, page, sentences, target)
        assert n_different(found, translate.towards(target)(sentences)) <= 1

    # swapped
    choose(browser, "source", "en")
    translation = translated(browser, [SENTENCE])
    browser.find_element("id", "swap").click()
    assert browser.execute_script("return [source.value, target.value, text.value]") == ["fr", "en", *translation]


@browsing
def test_the_tokenizer_gives_the_ids_of_python(run_folder: RunFolder, tokenizer: Tokenizer, browser: Any) -> None:
    page = exported(run_folder, browser)
    choice = random.Random(0)
    characters = f"{string.printable}l'été’n \u00a0\u0085\ufeff\u2028 ß中文हिन्दी п'ять 😀٣²\u0301\u200d</s>"
    texts = ["".join(choice.choices(characters, k=choice.randrange(40))) for _ in range(300)]
    texts += ["", " ", "  a  b ", "</s> <pad>", "don't l'homme", "\n\n x", "a" * 3000, "\ufffd"]
    description = part(page, "description")
    function = """(description, texts) => {
        const { tokens, merges, first_text_id } = JSON.parse(description);
        const tokenizer = new Tokenizer(tokens, merges, first_text_id);
        const ids = texts.map((text) => tokenizer.encode(text));
        return [ids, ids.map((row) => tokenizer.decode(row)), ids.map((row) => tokenizer.pieces(row))];
    }"""
    ids, decoded, pieces = evaluate(browser, page, function, description, texts)
    expected = tokenizer.encode(texts)
    assert ids == expected
    assert decoded == texts
    assert pieces[-8:] == [tokenizer.pieces(row) for row in expected[-8:]]

    # ids that do not come from a text: incomplete characters, and special tokens
    rows = [choice.choices(range(len(tokenizer)), k=12) for _ in range(100)]
    function = function.replace("texts.map((text) => tokenizer.encode(text))", "texts")
    assert evaluate(browser, page, function, description, rows)[1] == tokenizer.decode(rows)


def open_damaged(browser: Any, page: str, damage: str) -> None:
    """Opens a page that was truncated or lacks weights, or of which a character of the part `damage` was changed."""
    if damage == "truncated":
        page = page[: -len(page) // 4]
    elif damage == "no Base64":
        page = page.replace(part(page, "weights-0")[:100], "!" * 100)
    elif damage == "missing weights":
        page = re.sub(r'<script type="text/plain" id="weights-0".*\n<script>.*\n', "", page)
    else:
        text = part(page, damage)
        page = page.replace(text, text[:100] + ("x" if text[100] != "x" else "y") + text[101:])
    file = Path("damaged.html").resolve()
    file.write_text(page, encoding="utf-8")
    browser.get(file.as_uri())
    eventually(lambda: "This file is damaged" in text_of(browser, "fatal"))


@browsing
@pytest.mark.parametrize(
    "damage",
    ["engine", "worker", "module", "description", "weights-0", "no Base64", "missing weights", "truncated"],
)
def test_a_damaged_file_says_so(damage: str, run_folder: RunFolder, browser: Any) -> None:
    open_damaged(browser, exported(run_folder), damage)


@pytest.fixture
def emulated(browser: Any) -> Iterator[Any]:
    """The browser, with its usual window and colours again after the test."""
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@browsing
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1300, 320])
def test_axe_finds_no_barrier(scheme: str, width: int, run_folder: RunFolder, emulated: Any) -> None:
    browser = emulated
    axe = (files("selenium_axe_python") / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def check() -> None:
        browser.execute_script(axe)
        violations, passed = browser.execute_async_script(CHECK_ACCESSIBILITY)
        assert not violations and "color-contrast" in passed
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")

    # freshly loaded
    page = exported(run_folder, browser)
    assert browser.execute_script("return matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
    check()

    # with a translation and its attention, which a narrow window scrolls
    translated_with_extras(browser, f"{SENTENCE[:-1]} in the ∑ garden.")
    browser.execute_script("attention.open = true; byId('model').open = true")
    eventually(lambda: browser.execute_script("return document.querySelector('#attention td')"))
    is_scrolled = "const map = byId('attention-map'); return map.scrollWidth > map.clientWidth"
    assert browser.execute_script(is_scrolled) == (width == 320)
    assert text_of(browser, "notices")
    check()

    # with an error
    open_damaged(browser, page, "weights-0")
    check()


@browsing
def test_a_long_text_leaves_the_page_responsive_and_a_newer_one_replaces_it(demo_run: RunFolder, browser: Any) -> None:
    exported(demo_run, browser)
    choose(browser, "search", "beam")
    browser.execute_script(
        """window.longest = 0;
        let last = performance.now();
        setInterval(() => {
            longest = Math.max(longest, performance.now() - last);
            last = performance.now();
        }, 10);"""
    )
    type_text(browser, f"{SENTENCE} " * 320 + "a" * 100)
    eventually(lambda: "of 3" in text_of(browser, "status"))  # of more than 300 sentences
    type_text(browser, SENTENCE)
    assert finished(browser) == Translator.load(demo_run.path, "cpu", EXACT)([SENTENCE], Search(beam=5))
    assert browser.execute_script("return longest") < 500


@browsing
def test_the_page_loads_nothing_and_escapes_what_it_shows(tiny: Config, tokenizer: Tokenizer, browser: Any) -> None:
    config, name = tiny, "</script><script>document.title = 'bad'</script><!--"
    page = web_page(config, Learned(), tokenizer, Transformer(len(tokenizer), config), name, {"Data": name})
    file = Path("page.html").resolve()
    file.write_text(page, encoding="utf-8")
    browser.get(file.as_uri())
    eventually(lambda: name in text_of(browser, "facts"))
    assert browser.title == "Tapis" and name in browser.find_element("name", "description").get_attribute("content")
    forbidden = browser.execute_async_script(REACH_OUT)
    assert sorted(forbidden) == ["connect-src", "form-action", "img-src", "worker: connect-src"]
    page = re.sub(r"<script type.*", "", page)
    assert not re.search(r"""(?:src|href)=|https?://|import\s*\(|@import|url\(""", page)
    assert not re.search(r"localStorage|sessionStorage|indexedDB|cookie|caches", page)


@browsing
def test_marks_and_capitals_are_kept_and_what_the_model_lacks_is_said(demo_run: RunFolder, browser: Any) -> None:
    exported(demo_run, browser)
    (usual,) = translated(browser, [SENTENCE])
    assert translated(browser, [f"😀 {SENTENCE} https://example.org/a?b=c."]) == [
        f"😀 {usual} https://example.org/a?b=c."
    ]
    assert translated(browser, [f"<b>{SENTENCE}</b>"]) == [f"<b>{usual}</b>"]
    assert translated(browser, [SENTENCE.upper()]) == [usual.upper()]
    assert text_of(browser, "notices") == ""

    # marks within a sentence, and numbers
    marked = [
        *("<i>The cat</i> is 😀 sitting on the mat.", "- See https://example.org/ and {name}: 1,234 cats."),
        *(
            "**The cat** is sitting [on the mat](https://example.org). The <b>dog</b> is here.",
            "12 <br> cats, 4,567 dogs",
        ),
    ]
    expected = [one.text for (one,) in Translator.load(demo_run.path, "cpu", EXACT).text(marked)]
    assert [one for line in marked for one in translated(browser, [line])] == expected
    assert translated(browser, marked) == expected
    assert text_of(browser, "notices") == ""

    # what the model has never seen
    translated(browser, ["The cat sees ☂︎ ع and ∑."])
    assert "The model has never seen: ع, ∑. They will be lost or invented." in text_of(browser, "notices")
    translated(browser, ["القطار يغادر"])
    assert text_of(browser, "notices").startswith("This text is in Arabic script, which this model has never seen.")
    translated(browser, ["12 😀 https://example.org"])
    assert (text_of(browser, "notices"), text_of(browser, "output")) == ("", "12 😀 https://example.org")


@browsing
def test_doubts_are_those_of_python(demo_run: RunFolder, demo: Corpus, browser: Any) -> None:
    """Of sentences that are not like those of the corpus, whose translations are often doubtful."""
    exported(demo_run, browser)
    translator = Translator.load(demo_run.path, "cpu", "fp32")
    choice = random.Random(1)
    words = [word for source, _ in demo.test[:60] for word in source.rstrip(".?").split()]
    sentences = [" ".join(choice.choices(words, k=choice.randint(2, 14))) + "." for _ in range(40)]
    sentences += [source for source, _ in demo.test[:20]] + ["It is 10:45 and 1,000.", "qqq zzz xxx."]
    result = browser.execute_async_script(
        """const [text, done] = arguments;
        const request = { text, source: "en", target: "fr", search: "greedy" };
        offlineBackEnd.translate(request, { signal: new AbortController().signal }).then(done);""",
        "\n".join(sentences),
    )
    translations = [line["text"] for line in result["lines"]]
    found = [set(line["doubts"]) - {"loop"} for line in result["lines"]]  # the page has searched again
    expected = [marks - {"loop"} for marks in doubts(translator, sentences, translations)]
    assert set().union(*expected) == {"short", "long", "invented", "unsure"}  # missing numbers were put back
    differing = [i for i in range(len(sentences)) if found[i] != expected[i]]
    assert len(differing) <= len(sentences) // 10, [(sentences[i], found[i], expected[i]) for i in differing]


@browsing
def test_loops_numbers_and_letter_case_are_those_of_python(
    run_folder: RunFolder, tokenizer: Tokenizer, browser: Any
) -> None:
    page = exported(run_folder, browser)
    choice = random.Random(2)
    parts = [
        "very ",
        "le ",
        "grand ",
        "ab",
        "ort",
        " 12 000",
        "1.000,5",
        "10:45",
        "٣٤",
        " 7 ",
        "é",
        "!",
        "\u00a0",
        "the cat ",
        "l'Été",
        "m²Ⅷ½_",
        "猫が𠀀ไทย",
        "किताब",
        "मुझे ",
        "O'Neil मुझे ",
        "𝟘𝟙",
        " 𝟗𝟎𝟿",
        " 10–20",
        "3‑4",
        "25’000",
        " 000",
        "1:25",
        "2020 100",
        "١٢٫٥",
        "3\u2009000",
        " 6'2",
        "+1 415 555 1234",
        "￥5",
        "¥",
    ]
    texts = ["".join(choice.choices(parts, k=choice.randint(1, 3)) * choice.randint(1, 4)) for _ in range(300)]
    texts += ["The O'Neil मुझे The O'Neil मुझे "]
    texts += ["very, very, very big", "dortortort", "Le grand grand grand chat", "", "a" * 12, "......"]
    function = """(texts) => texts.map((text, i) => {
        const source = texts[(i + 7) % texts.length];
        return [loops(source, text), withoutLoops(text), numbersOf(text), wordsOf(text)];
    })"""
    found = evaluate(browser, page, function, texts)
    for i, text in enumerate(texts):
        source = texts[(i + 7) % len(texts)]
        expected = [loops(source, text), without_loops(text), sorted(numbers(text).elements()), words(text)]
        assert found[i] == expected, (source, text)

    typed = [
        "THE CAT IS ON THE MAT.",
        "The Cat Is On The Mat",
        "NATO",
        "L'HOMME DORT ÇA",
        "The cat is.",
        "I Am In Paris Now",
        "AVENIDA DE LA PAZ Nº 3",
        "LA 2ª PARTE",
        "BİR KIZ IRMAKTA",
        "İyi Bir Kız Irmakta",
        "ΈΛΑ ΕΔΩ",
        "犬はABCDEFの中で寝る",
        "THE DOG OF 東京 SLEEPS",
        "ПРИВЕ\u0301Т ДРУЗЬЯ\u0301",
        "\u0301THE ZX\u0323\u0301Q'Y\u0323X DOG",
        "A\u0301 C\u0301at Is O\u0323\u0301n The M\u0323at",
    ]
    languages = ["en", "tr", "az-AZ", "el", "lt", ""]
    function = """(description, texts, languages) => {
        const { tokens, merges, first_text_id } = JSON.parse(description);
        const tokenizer = new Tokenizer(tokens, merges, first_text_id);
        return languages.map((language) => texts.map((text) => usualCase(text, tokenizer, language)));
    }"""
    cased = evaluate(browser, page, function, part(page, "description"), typed, languages)
    assert cased == [[usual_case(text, tokenizer, language) for text in typed] for language in languages]
    assert cased[0] != cased[1] == cased[2] and cased[0] == cased[3] == cased[4] == cased[5]


@browsing
def test_capitals_are_those_of_both_languages_as_in_python(
    run_folder: RunFolder, tokenizer: Tokenizer, browser: Any
) -> None:
    page = exported(run_folder, browser)
    function = """(description, code, unit, source, target) => {
        const translator = new Translator(JSON.parse(description), bytesOf(code));
        const ids = translator.tokenizer.encode("iyi ışık");
        const sentences = [];
        translator.nBest = (sentence) => {
            sentences.push(sentence);
            return [{ text: "iyi ışık", ids, source: [1], logP: 0, score: 0 }];
        };
        const [{ text }] = translator.translateUnit(unit, source, target, {});
        return [text, sentences];
    }"""
    parts = [part(page, name) for name in ("description", "module")]
    for language, text in (("tr", "İYİ IŞIK"), ("en", "IYI IŞIK")):
        found = evaluate(browser, page, function, *parts, "BİR KIZ", language, language)
        assert found == [text, [usual_case("BİR KIZ", tokenizer, language)]]
        assert text == uppercase("iyi ışık", language)


@browsing
def test_repairs_and_directions_are_those_of_python(run_folder: RunFolder, browser: Any) -> None:
    choice = random.Random(4)
    places = [*range(0xA0), 0xAD, 0x61C, 0x180E, 0xFEFF, *range(0x2000, 0x2070), *range(0xFFF9, 0xFFFE)]
    odd = [chr(place) for place in places]
    texts = [f"a{character}b {character} c" for character in odd] + ["a\u0085", "\u0085 \u202ba"]
    texts += ["a" + "\u0315" * n + "\u0f73" + "\u0316" * n + "☺️" * n + "b" for n in (1, 20, 30, 31, 100)]
    pieces = ["a", " b.", "e\u0301", "\u202b", "\u202c", "\u2067", "\u2069", "\u200e"]
    texts += ["".join(choice.choices(pieces, k=choice.randint(0, 9))) for _ in range(2000)]
    function = """(texts) => texts.map((text) => {
        const { before, text: rest, after } = takeDirection(text);
        return [repaired(text), [before, rest, after]];
    })"""
    found = evaluate(browser, exported(run_folder, browser), function, texts)
    for text, one in zip(texts, found, strict=True):
        assert one == [repair(text), list(take_direction(text))], ascii(text)


@browsing
def test_words_are_aligned_as_in_python(run_folder: RunFolder, browser: Any) -> None:
    pieces = ["▁a", "▁", "b", "⟨20 e2 80⟩", "⟨9c⟩", "⟨20", "é"]
    choice = random.Random(5)
    cases = []
    for _ in range(100):
        source, target = ([*choice.choices(pieces, k=choice.randint(1, 8)), END] for _ in range(2))
        cases.append((source, target, [[choice.random() for _ in source] for _ in target]))
    function = """(cases) => cases.map(([source, target, rows]) => {
        const { nTarget, nSource, weights } = wordAlignment({ source, target, rows });
        return [[nTarget, nSource], weights];
    })"""
    found = evaluate(browser, exported(run_folder, browser), function, cases)
    for (source, target, rows), (shape, weights) in zip(cases, found, strict=True):
        expected = word_alignment(Attention(np.array([[rows]], np.float32), source, target))
        assert list(expected.shape) == shape, (source, target)
        assert np.array(weights).reshape(shape) == pytest.approx(expected, abs=1e-5)


@browsing
def test_initials_end_no_sentence_as_in_python(run_folder: RunFolder, browser: Any) -> None:
    lines = ["É. Zola dort. Il rêve.", "Л. Толстой dort. Il rêve.", "𐐀. Dupont dort.", "« M. Dupont dort."]
    function = "(lines) => lines.map((line) => splitLine(line, 'fr', () => true).units)"
    found = evaluate(browser, exported(run_folder, browser), function, lines)
    assert found == [split_line(line, "fr", lambda text: True).units for line in lines]
    assert found[0] == ["É. Zola dort.", "Il rêve."]


@browsing
def test_the_patterns_of_marks_have_each_name_of_a_group_once(run_folder: RunFolder, browser: Any) -> None:
    """Browsers before ES2025 reject a pattern that has one twice."""
    function = "() => [MARK, MARK_OR_NUMBER].map(({ source }) => source)"
    for pattern in evaluate(browser, exported(run_folder, browser), function):
        names = re.findall(r"\(\?<(\w+)>", pattern)
        assert "atomic1" in names and len(set(names)) == len(names)


@browsing
@pytest.mark.parametrize("with_numbers", [False, True])
def test_marks_are_taken_out_and_put_back_as_in_python(with_numbers: bool, run_folder: RunFolder, browser: Any) -> None:
    page = exported(run_folder, browser)
    choice = random.Random(3)
    lines = ["".join(choice.choices(PIECES, k=choice.randint(1, 14))) for _ in range(3000)]
    cases = []
    for line in lines:
        taken = take_out(line, with_numbers)
        n_target, n_source = choice.randrange(6), len(taken.words)
        weights = [[choice.random() ** 4 for _ in range(n_source)] for _ in range(n_target)]
        cut = choice.randint(0, min(n_target, n_source))  # the first words are a sentence of their own
        blocks = [[row[:cut] for row in weights[:cut]], [row[cut:] for row in weights[cut:]]]
        sizes = [(cut, cut), (n_target - cut, n_source - cut)]
        translation = " ".join(
            choice.choices(["Le", "chat.", "dort", "!", "l'été,", "12", "犬が", "𠀀。", "(),"], k=n_target)
        )
        cases.append((line, translation, blocks, sizes))
    function = """(cases, withNumbers) => cases.map(([line, translation, blocks, sizes]) => {
        const taken = takeOut(line, withNumbers);
        const ofSizes = blocks.map((weights, i) => ({ nTarget: sizes[i][0], nSource: sizes[i][1], weights }));
        const same = new SamePlaces(sizes[0][0] + sizes[1][0], sizes[0][1] + sizes[1][1]);
        const marks = taken.marks.map(({ start, end, ...mark }) => Object.values(mark));
        const alignments = [new Alignment(ofSizes), same];
        return [taken.words, marks, ...alignments.map((one) => putBack(translation, taken, one))];
    })"""
    found = evaluate(browser, page, function, cases, with_numbers)
    assert isinstance(found, list), found
    for (line, translation, blocks, sizes), one in zip(cases, found, strict=True):
        taken = take_out(line, with_numbers)
        marks = [  # without places, which JavaScript counts in units of 16 bits
            [value for name, value in asdict(mark).items() if name not in ("start", "end")] for mark in taken.marks
        ]
        arrays = [np.array(block, float).reshape(size) for block, size in zip(blocks, sizes, strict=True)]
        alignment = Alignment(arrays)
        expected = [put_back(translation, taken, alignment), put_back(translation, taken, SamePlaces(*alignment.shape))]
        assert one == [taken.words, marks, *expected], line


@browsing
@pytest.mark.parametrize("words", ["7 ", "1. "])
def test_a_long_line_of_numbers_or_list_marks_is_copied(words: str, run_folder: RunFolder, browser: Any) -> None:
    """A number for each pair of words would take more memory than a browser has."""
    page = exported(run_folder, browser)
    line = f"{words * 20_000}<br>"
    function = """(description, code, text) => {
        const translator = new Translator(JSON.parse(description), bytesOf(code));
        const line = translator.splitLine(text, "en");
        return translator.joinLine(line, line.units.map(() => null), "fr");
    }"""
    parts = [part(page, name) for name in ("description", "module")]
    assert evaluate(browser, page, function, *parts, line) == line


@browsing
def test_alternatives_are_those_of_beam_search(demo_run: RunFolder, browser: Any) -> None:
    exported(demo_run, browser)
    translate = Translator.load(demo_run.path, "cpu", EXACT)
    best = translated_with_extras(browser, SENTENCE)
    shown = browser.execute_script("return Array.from(document.querySelectorAll('.take'), (one) => one.textContent)")
    ((*expected,),) = translate.n_best([SENTENCE], Search(beam=5, n_best=5))
    assert shown[0] == best
    assert len(set(shown[1:]) & {one.text for one in expected}) >= 3
    browser.find_elements("css selector", ".take")[2].click()
    assert text_of(browser, "output") == shown[2]


@browsing
def test_files_of_text_are_translated_line_by_line(demo_run: RunFolder, browser: Any) -> None:
    exported(demo_run, browser)
    (one,) = translated(browser, [SENTENCE])
    letter, image = Path("letter.txt").resolve(), Path("image.txt").resolve()
    letter.write_bytes(f"- {SENTENCE}\r\n\n12\r\r\n".encode())  # lines end in three ways
    image.write_bytes(b"\xff\xfe\x00")
    field = browser.find_element("id", "file-input")
    assert field.get_attribute("accept") == ".txt"
    browser.execute_script(
        "const create = URL.createObjectURL; URL.createObjectURL = (blob) => create(window.blob = blob)"
    )
    field.send_keys(str(letter))
    eventually(lambda: text_of(browser, "file-result") == "Download letter.fr.txt")
    content = browser.execute_async_script("blob.text().then(arguments[0])")
    assert content == f"- {one}\r\n\n12\r\r\n"
    field.send_keys(str(image))
    eventually(lambda: text_of(browser, "file-error") == "image.txt is not plain text in UTF-8.")


@browsing
def test_a_reload_keeps_the_text(demo_run: RunFolder, browser: Any) -> None:
    exported(demo_run, browser)
    type_text(browser, SENTENCE)
    expected = finished(browser)
    choose(browser, "search", "beam")
    finished(browser)
    eventually(lambda: browser.execute_script("return history.state?.search === 'beam'"))
    browser.refresh()
    assert finished(browser) == expected
    assert browser.execute_script("return [text.value, search.value]") == [SENTENCE, "beam"]


def test_the_file_holds_no_path_and_no_setting_of_the_run(tiny: Config, tokenizer: Tokenizer) -> None:
    folder = saved_untrained(replace(tiny, data=("/home/someone/letters",)), tokenizer)
    page = exported(folder)
    assert "/home" not in page and "letters" in page
    description = json.loads(part(page, "description"))
    assert set(description) == {
        *("config", "directions", "repairs", "tags", "tokens", "merges", "first_text_id", "weights", "facts"),
    }
    assert set(description["config"]) == {*PAGE_FIELDS, *asdict(Learned()), "eps"}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--to", "web"], "--to web needs a file to create"),
        (["--to", "web", "folder"], "--to web needs a file to create"),
        (["--to", "web", "old.html"], "old.html already exists: name a new file"),
        (["--to", "web", "old.html/new.html"], "cannot be written"),
        (["--to", "web", "new.html", "--quantization", "int8"], "--quantization is for --to ctranslate2"),
        (["--to", "web", "new.html", "--run", "nowhere"], "nowhere"),
    ],
)
def test_wrong_command_lines_are_explained(args: list[str], says: str, run_folder: RunFolder, called: Command) -> None:
    Path("old.html").write_text("old", encoding="utf-8")
    done = called("export.py", *args)
    lines = done.stderr.replace("run tiny\n", "").splitlines()
    assert done.returncode in (1, 2) and len(lines) <= 2 and says in lines[0]
    assert Path("old.html").read_text(encoding="utf-8") == "old" and not Path("new.html").exists()


def test_the_command_writes_one_file(run_folder: RunFolder, called: Command) -> None:
    done = called("export.py", "--run", "tiny", "--to", "web", "new.html")
    assert (done.returncode, done.stdout) == (0, "new.html\n"), done.stderr
    assert {path.name for path in Path().iterdir()} == {"weights", "new.html"}
