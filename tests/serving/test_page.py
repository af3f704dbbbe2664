"""The page that a server offers, in a Chromium, before a double of the HTTP API."""

import re
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from conftest import CHECK_ACCESSIBILITY
from page_double import ATTENTION, PageDouble, Reply, error, line, reversed_lines, translation

from tapis.memory import Memory
from tapis.web import served_page

pytestmark = pytest.mark.browser

MARKUP = "<script>document.title = 'bad'</script><img src=x onerror=\"document.title = 'bad'\">"
AXE = (files("selenium_axe_python") / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def soon(done: Callable[[], Any], seconds: float = 8.0) -> Any:
    """What done() gives once it is not false."""
    deadline = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)
    return found


class Tab:
    """The page in a browser, as a person uses it."""

    def __init__(self, browser: Any, double: PageDouble) -> None:
        self.browser = browser
        self.double = double

    def open(self) -> None:
        self.browser.get(self.double.url)
        soon(self.is_ready)

    def is_ready(self) -> bool:
        return self.run("return source.value !== '' && target.value !== ''") is True

    def run(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def type(self, text: str) -> None:
        """Put a text into the page as a paste does."""
        self.run("text.value = arguments[0]; text.dispatchEvent(new Event('input'))", text)

    def choose(self, name: str, value: str) -> None:
        script = "const menu = document.getElementById(arguments[0]); menu.value = arguments[1];"
        self.run(script + "menu.dispatchEvent(new Event('change'))", name, value)

    def click(self, name: str) -> None:
        self.run("document.getElementById(arguments[0]).click()", name)

    def text(self, name: str) -> str:
        """The text of an element, without what only screen readers read."""
        script = """
            const copy = document.getElementById(arguments[0]).cloneNode(true);
            for (const element of copy.querySelectorAll(".unselectable")) element.remove();
            return copy.textContent.trim();"""
        return str(self.run(script, name))

    def value(self, name: str) -> str:
        return str(self.run("return document.getElementById(arguments[0]).value", name))

    def is_shown(self, name: str) -> bool:
        return self.run("return document.getElementById(arguments[0]).checkVisibility()", name) is True

    def is_disabled(self, name: str) -> bool:
        return self.run("return document.getElementById(arguments[0]).disabled", name) is True

    def expect(self, name: str, text: str) -> None:
        """Wait until an element has this text."""
        try:
            soon(lambda: self.text(name) == text)
        except AssertionError:
            assert self.text(name) == text  # shows both

    def translate(self, text: str, expected: str) -> None:
        self.type(text)
        self.expect("output", expected)

    def correct(self, text: str) -> None:
        """Begin a correction, and make it this text."""
        self.click("correct")
        self.run("correction.value = arguments[0]", text)

    def kept(self) -> list[tuple[str, str]]:
        """The languages and texts of the corrections, as the page offers them."""
        link = "document.getElementById('kept-file').href"
        memory = self.browser.execute_async_script(f"{READ_BLOB} read({link}, arguments[0])")
        return re.findall(r'lang="(\w+)"><seg>([^<]*)', memory)

    def choose_file(self, path: Path) -> None:
        self.browser.find_element("id", "file-input").send_keys(str(path))

    def resize(self, width: int, scheme: str = "light", media: str = "") -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def expect_no_barrier(self) -> None:
        """Check the page as it is with axe-core, and that nothing scrolls sideways."""
        if not self.run("return Boolean(window.axe)"):
            self.run(AXE)
        violations, passed = self.browser.execute_async_script(CHECK_ACCESSIBILITY)
        assert not violations and "color-contrast" in passed
        assert self.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.fixture
def double() -> Iterator[PageDouble]:
    double = PageDouble()
    yield double
    double.close()


@pytest.fixture
def tab(browser: Any, double: PageDouble) -> Iterator[Tab]:
    """The page, ready to type in; the browser has its usual window and network again after the test."""
    tab = Tab(browser, double)
    tab.resize(1300)
    tab.open()
    yield tab
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def rich(request: dict[str, Any]) -> Reply:
    """An answer with all that there can be, for a single line."""
    return translation(
        line("Hallo, du!", "numbers"),
        alternatives=[
            {"text": "Hallo, du!", "score": -0.2, "doubts": ["numbers"]},
            {"text": "Hallo, Sie!", "score": -0.5, "doubts": []},
            {"text": "Hallo, hallo, hallo!", "score": -0.9, "doubts": ["loop"]},
        ],
        attention=ATTENTION,
        notices=["This seems to be Dutch, which this model does not translate."],
        memory=[{"line": 1, "similarity": 0.876, "source": "Hello you", "target": "Hallo Leute"}],
    )


# The files


def test_the_page_is_small_and_asks_nobody_else(tab: Tab) -> None:
    assert sum(len(content) for _, content in served_page().values()) < 60_000
    page = "".join(content.decode() for _, content in served_page().values())
    assert not any(word in page for word in ("localStorage", "sessionStorage", "indexedDB", "cookie", "innerHTML"))
    tab.translate("abc", "cba")
    names = tab.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    paths = {name.removeprefix(tab.double.url) for name in names if not name.startswith("data:")}
    assert paths == {"page.css", "page.js", "http.js", "languages", "frontend/settings", "page/translate"}
    assert set(tab.double.paths) == {"/", *(f"/{path}" for path in paths)}
    assert not tab.browser.get_log("browser")


def test_one_can_type_at_once_and_early_text_is_translated(tab: Tab) -> None:
    assert tab.run("return document.activeElement.id") == "text"
    tab.double.delay = 0.5
    tab.browser.get(tab.double.url)
    tab.type("early")
    assert not tab.is_ready()
    tab.expect("output", "ylrae")


# Translating


def test_typing_translates_once_it_pauses(tab: Tab) -> None:
    field = tab.browser.find_element("id", "text")
    field.send_keys("ab")
    field.send_keys("c")
    tab.expect("output", "cba")
    assert [request["q"] for request in tab.double.requests] == ["abc"]
    assert tab.double.requests[0] == {"q": "abc", "source": "auto", "target": "en"}
    tab.translate("one\n\ntwo", "eno\n\nowt")
    assert tab.text("status").startswith("3 sentences, ")


def test_an_older_request_is_aborted_and_the_newest_text_wins(tab: Tab) -> None:
    tab.double.translate = lambda request: Reply(translation(line("old")).body, delay=0.6)
    tab.run(
        """window.aborted = 0;
        const original = fetch;
        window.fetch = (path, options) => {
            options?.signal?.addEventListener("abort", () => (aborted += 1));
            return original(path, options);
        };"""
    )
    tab.type("slow")
    soon(lambda: tab.double.requests)
    tab.double.translate = lambda request: translation(line("new"))
    tab.translate("quick", "new")
    assert tab.run("return aborted") == 1
    time.sleep(0.7)
    assert tab.text("output") == "new"


def test_the_language_is_detected_and_shown(tab: Tab) -> None:
    options = tab.run("return Array.from(source.options, (option) => option.textContent)")
    assert options == ["Detect language", "English", "German", "French"]  # Arabic is a target only
    assert tab.run("return Array.from(target.options, (option) => option.value)") == ["ar", "de", "fr", "en"]
    tab.translate("abc", "cba")
    assert tab.run("return source.selectedOptions[0].textContent") == "Detected: German"
    assert tab.run("return text.lang") == "de"
    assert tab.text("live") == "Detected: German"
    tab.type("")
    soon(lambda: tab.run("return source.selectedOptions[0].textContent") == "Detect language")


def test_targets_are_those_of_the_source(tab: Tab) -> None:
    tab.choose("source", "en")
    targets = tab.run("return Array.from(target.options, (option) => option.textContent)")
    assert targets == ["Arabic", "German", "French"]
    tab.choose("target", "fr")
    tab.choose("source", "de")
    assert tab.run("return Array.from(target.options, (option) => option.value)") == ["en"]


def test_swapping_moves_the_translation_into_the_text(tab: Tab) -> None:
    assert tab.is_disabled("swap")  # nothing is detected yet
    tab.translate("abc", "cba")
    tab.click("swap")
    tab.expect("output", "abc")
    assert (tab.value("source"), tab.value("target"), tab.value("text")) == ("en", "de", "cba")
    assert tab.double.requests[-1] == {"q": "cba", "source": "en", "target": "de"}
    tab.choose("target", "ar")
    assert tab.is_disabled("swap")  # nothing is translated from Arabic


def test_swapping_keeps_a_text_that_is_not_translated_yet(tab: Tab) -> None:
    tab.choose("source", "de")
    tab.translate("abc", "cba")
    tab.run("text.value = 'abc and more'")
    tab.click("swap")
    assert (tab.value("source"), tab.value("text")) == ("en", "abc and more")


def test_a_text_of_very_many_lines_is_shown(tab: Tab) -> None:
    """A function of a browser cannot be called with so many arguments."""
    lines = [{"text": str(number), "doubts": [], "sentences": []} for number in range(100_000)]
    tab.run("Page.prototype.showLines.call({ output: byId('output'), translation: () => '' }, arguments[0])", lines)
    assert tab.text("output").endswith("99998\n99999")


def test_copying_says_so_also_without_the_clipboard_api(tab: Tab) -> None:
    tab.browser.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite"], "origin": tab.double.url.rstrip("/")}
    )
    read = "navigator.clipboard.readText().then(arguments[0], (error) => arguments[0](error.message))"
    tab.translate("abc\nde", "cba\ned")
    tab.click("copy")
    tab.expect("live", "Copied.")
    assert tab.text("copy") == "Copied"
    assert tab.browser.execute_async_script(read) == "cba\ned"
    soon(lambda: tab.text("copy") == "Copy")

    tab.run("Object.defineProperty(navigator.clipboard, 'writeText', { value: undefined })")
    tab.translate("xyz", "zyx")
    tab.browser.find_element("id", "copy").click()
    soon(lambda: tab.text("copy") == "Copied")
    assert tab.browser.execute_async_script(read) == "zyx"
    assert tab.run("return document.activeElement.id") == "copy"


def test_corrections_become_a_translation_memory(tab: Tab, tmp_path: Path) -> None:
    tab.choose("source", "de")
    tab.choose("target", "en")
    tab.translate("abc\nd <&>", "cba\n>&< d")
    assert not tab.is_shown("kept")
    tab.click("correct")
    assert tab.value("correction") == "cba\n>&< d" and tab.text("correct") == "Keep" and not tab.is_shown("output")
    tab.run("correction.value = 'CBA\\n\\u0001<&> \"D\"'")
    tab.click("correct")
    assert tab.text("output") == 'CBA\n\x01<&> "D"' and not tab.is_shown("correction")
    assert tab.text("kept") == "Download 2 corrected lines as a translation memory"

    # The next text is translated as before, and what was kept stays.
    tab.translate("xyz", "zyx")
    tab.correct("Z\nY")
    tab.click("correct")
    assert tab.text("kept") == "Download 3 corrected lines as a translation memory"
    assert tab.run("return document.getElementById('kept-file').download") == "corrections.tmx"
    file = tmp_path / "corrections.tmx"
    link = "document.getElementById('kept-file').href"
    text = tab.browser.execute_async_script(f"{READ_BLOB} read({link}, arguments[0])")
    file.write_text(text, encoding="utf-8")
    memory = Memory.read(file, "de", "en")
    assert [memory.exact(one) for one in ("abc", "d <&>", "xyz")] == ["CBA", '<&> "D"', "Z Y"]
    assert len(tab.double.requests) == 2  # nothing of it is sent

    # What was downloaded is not offered again.
    tab.click("kept-file")
    tab.translate("uvw", "wvu")
    tab.correct("W")
    tab.click("correct")
    assert tab.text("kept") == "Download 1 corrected line as a translation memory"


def test_a_correction_is_kept_with_what_was_translated(tab: Tab) -> None:
    """Not with a text and languages that were chosen since, whose translation has not come yet."""
    tab.translate("Hund", "dnuH")
    expected = tab.value("target")
    tab.correct("dog")
    tab.double.translate = lambda request: Reply(reversed_lines(request).body, delay=2.0)
    tab.type("Katze")
    tab.choose("source", "fr")
    tab.choose("target", "en" if expected == "de" else "de")
    tab.click("correct")
    assert tab.kept() == [("de", "Hund"), (expected, "dog")]


def test_kept_corrections_survive_a_reload(tab: Tab) -> None:
    tab.choose("source", "de")
    tab.choose("target", "en")
    tab.translate("abc\nde", "cba\ned")
    tab.correct("CBA\nED")
    tab.click("correct")
    for _ in range(2):
        tab.browser.refresh()
        soon(tab.is_ready)
        assert tab.text("kept") == "Download 2 corrected lines as a translation memory"
        assert tab.kept() == [("de", "abc"), ("en", "CBA"), ("de", "de"), ("en", "ED")]
        assert tab.text("live") != "Kept."


def test_a_new_text_ends_a_correction_and_keeps_what_was_changed(tab: Tab) -> None:
    tab.choose("source", "de")
    tab.choose("target", "en")
    tab.translate("abc", "cba")
    tab.click("correct")
    tab.translate("xyz", "zyx")
    assert tab.is_shown("output") and not tab.is_shown("correction") and tab.text("correct") == "Correct"
    assert not tab.is_shown("kept")  # nothing was changed

    tab.correct("ZYX")
    tab.translate("xyz!", "!zyx")
    assert not tab.is_shown("correction") and tab.text("live") == "Kept."
    assert tab.kept() == [("de", "xyz"), ("en", "ZYX")]
    tab.correct("ZYX!")
    tab.double.translate = lambda request: error(504, "It took longer than 60 s.")
    tab.type("other")
    tab.expect("error", "It took longer than 60 s.")
    assert not tab.is_shown("correction")
    assert tab.kept()[2:] == [("de", "xyz!"), ("en", "ZYX!")]


def test_copying_and_swapping_take_the_correction_that_can_be_seen(tab: Tab) -> None:
    tab.run("window.copied = ''; navigator.clipboard.writeText = async (text) => (copied = text)")
    tab.choose("source", "de")
    tab.choose("target", "en")
    tab.translate("abc", "cba")
    tab.correct("CBA")
    tab.click("copy")
    assert soon(lambda: tab.run("return copied")) == "CBA"
    tab.click("swap")
    tab.expect("output", "ABC")
    assert tab.value("text") == "CBA" and tab.kept() == [("de", "abc"), ("en", "CBA")]


def test_taking_an_alternative_ends_a_correction(tab: Tab) -> None:
    tab.double.translate = rich
    tab.choose("source", "en")
    tab.choose("target", "de")
    tab.translate("Hello", "Hallo, du!")
    tab.correct("Hallo!")
    tab.browser.find_elements("css selector", "#alternatives .take")[1].click()
    assert tab.text("output") == "Hallo, Sie!" and tab.is_shown("output") and not tab.is_shown("correction")
    assert tab.kept() == [("en", "Hello"), ("de", "Hallo!")]


def test_only_a_finished_translation_can_be_corrected(tab: Tab) -> None:
    """A part of one would be kept as the translation of the whole text."""
    tab.run(
        """httpBackEnd.translate = (asked, { progress }) => {
            const result = { lines: [{ text: "ab", doubts: [] }], sentences: 2 };
            progress({ ...result, nDone: 1 });
            return new Promise((resolve) => (window.finish = () => resolve(result)));
        };"""
    )
    tab.translate("x", "ab")
    assert tab.is_shown("copy") and not tab.is_shown("correct")
    tab.run("finish()")
    soon(lambda: tab.is_shown("correct"))


def test_the_same_translation_again_leaves_a_correction_open(tab: Tab) -> None:
    """As when alternatives follow it, on the page in a file."""
    tab.translate("abc", "cba")
    tab.correct("CBA")
    tab.double.translate = lambda request: translation(
        line("cba"), alternatives=[{"text": "bca", "score": -1.0, "doubts": []}]
    )
    tab.type("abc")
    soon(lambda: tab.is_shown("alternatives"))
    assert tab.value("correction") == "CBA" and not tab.is_shown("output")
    tab.click("correct")
    assert tab.text("output") == "CBA"


def test_clearing_leaves_nothing(tab: Tab) -> None:
    tab.double.translate = rich
    tab.translate("Hello", "Hallo, du!")
    tab.click("clear")
    tab.expect("output", "")
    assert tab.run("return document.activeElement.id") == "text"
    for name in ("clear", "copy", "correct", "alternatives", "memory", "attention", "doubts"):
        assert not tab.is_shown(name)
    assert tab.text("notices") == tab.text("status") == ""


def test_the_count_becomes_an_error_over_the_limit_and_nothing_is_sent(tab: Tab) -> None:
    tab.translate("a😀", "😀a")
    assert tab.text("count") == "2 / 200 characters"
    n = len(tab.double.requests)
    tab.type("x" * 203)
    tab.expect("count-error", "The text is 3 characters too long.")
    tab.expect("output", "")
    assert tab.run("return text.getAttribute('aria-invalid')") == "true"
    time.sleep(0.4)
    assert len(tab.double.requests) == n
    tab.translate("x" * 200, "x" * 200)
    assert tab.text("count-error") == ""


# What is said about a translation


def test_alternatives_can_be_taken_and_copied(tab: Tab) -> None:
    tab.double.translate = rich
    tab.translate("Hello", "Hallo, du!")
    takes = tab.browser.find_elements("css selector", "#alternatives .take")
    assert [button.text for button in takes] == ["Hallo, du!", "Hallo, Sie!", "Hallo, hallo, hallo!"]
    pressed = "return Array.from(document.querySelectorAll('.take'), (button) => button.ariaPressed)"
    assert tab.run(pressed) == ["true", "false", "false"]
    takes[1].click()
    assert tab.text("output") == "Hallo, Sie!"
    assert tab.run(pressed) == ["false", "true", "false"]
    assert tab.run("return document.activeElement.textContent") == "Hallo, Sie!"
    assert tab.text("doubts") == ""
    assert "it repeated itself" in tab.text("alternatives-list")
    tab.browser.find_elements("css selector", "#alternatives .copy")[2].click()
    tab.expect("live", "Copied.")
    assert tab.text("output") == "Hallo, Sie!"


def test_what_a_memory_has_is_shown_and_can_be_copied(tab: Tab) -> None:
    tab.double.translate = rich
    tab.choose("source", "de")
    tab.translate("Hello", "Hallo, du!")
    texts = "return Array.from(document.querySelectorAll('#memory-list li > span'), (span) => span.textContent)"
    assert tab.run(texts) == ["Hallo Leute", "87 % like: Hello you"]
    source = tab.browser.find_element("css selector", "#memory-list bdi")  # within an English sentence
    assert (source.text, source.get_attribute("lang")) == ("Hello you", "de")
    tab.browser.find_element("css selector", "#memory .copy").click()
    tab.expect("live", "Copied.")
    of_lines = [
        {"line": 2, "similarity": 1.0, "source": "b", "target": "B"},
        {"line": 3, "similarity": 0.999, "source": "d", "target": "C"},
    ]
    tab.double.translate = lambda request: translation(line("A"), line("B"), line("C"), memory=of_lines)
    tab.translate("a\nb\nc", "A\nB\nC")
    assert tab.run(texts) == ["B", "line 2, as it is", "C", "line 3, 99 % like: d"]
    tab.double.translate = lambda request: translation(line("A"))
    tab.translate("a", "A")
    assert not tab.is_shown("memory")


def test_attention_is_a_table_that_is_made_when_it_is_opened(tab: Tab) -> None:
    tab.double.translate = rich
    tab.translate("Hello", "Hallo, du!")
    assert tab.is_shown("attention") and not tab.run("return document.querySelector('td')")
    tab.run("attention.open = true")
    cells = tab.browser.find_elements("css selector", "#attention tbody td")
    titles = [cell.get_attribute("title") for cell in cells]
    assert titles == [
        *("▁Bonjour ← ▁Hello: 90.0 %", "▁Bonjour ← ⟨end⟩: 10.0 %"),
        *("⟨end⟩ ← ▁Hello: 20.0 %", "⟨end⟩ ← ⟨end⟩: 80.0 %"),
    ]
    colours = [cell.value_of_css_property("background-color") for cell in cells]
    assert colours[0] == "rgba(8, 81, 156, 0.9)" and len(set(colours)) == 4
    assert cells[0].value_of_css_property("print-color-adjust") == "exact"
    tab.type("")
    soon(lambda: not tab.is_shown("attention"))


def test_doubts_are_underlined_where_they_are_and_explained(tab: Tab) -> None:
    parts: list[tuple[str, list[str]]] = [("Zwei.", []), ("Zwei.", ["numbers"]), ("Zwei.", [])]
    tab.double.translate = lambda request: translation(
        line("Gut."),
        line("- Zwei. Zwei. Zwei.", "numbers", sentences=parts),
        line("Anders.", "unsure", "short", sentences=[("nicht im Text", ["unsure", "short"])]),
    )
    tab.translate("a\nb\nc", "Gut.\n- Zwei. Zwei. Zwei.\nAnders.")
    marked = tab.browser.find_elements("css selector", "#output .doubtful")
    assert [element.get_attribute("title") for element in marked] == [
        "Check this: numbers differ",
        "Check this: the model is unsure, it may lack something",
    ]
    assert [tab.run("return arguments[0].textContent", element) for element in marked] == [
        "Zwei. (check: numbers differ)",
        "Anders. (check: the model is unsure, it may lack something)",
    ]
    assert "wavy" in marked[0].value_of_css_property("text-decoration")
    before = tab.run("return arguments[0].previousSibling.textContent", marked[0])
    assert before == "- Zwei. "
    summary = "Check line 2: numbers differ; line 3: the model is unsure, it may lack something."
    assert tab.text("doubts") == summary

    # what is copied has no explanations
    tab.run("window.copied = ''; navigator.clipboard.writeText = async (text) => (copied = text)")
    tab.click("copy")
    assert soon(lambda: tab.run("return copied")) == "Gut.\n- Zwei. Zwei. Zwei.\nAnders."


def test_notices_are_above_the_translation(tab: Tab) -> None:
    tab.double.translate = rich
    tab.translate("Hello", "Hallo, du!")
    assert tab.text("notices") == "This seems to be Dutch, which this model does not translate."
    above = "return notices.getBoundingClientRect().bottom <= output.getBoundingClientRect().top"
    assert tab.run(above)


# Files


def test_files_go_in_and_out(tab: Tab, tmp_path: Path) -> None:
    letter = tmp_path / "letter.md"
    letter.write_text("# Hello", encoding="utf-8")
    assert tab.run("return document.getElementById('file-input').accept") == ".txt,.html,.htm,.md,.srt"
    url = "http://elsewhere.invalid/download_file/1"  # another name of the server, as behind a proxy
    tab.double.translate_file = lambda form: Reply({"translatedFileUrl": url}, delay=0.3)
    tab.choose_file(letter)
    soon(lambda: tab.is_shown("file-progress"))
    assert tab.text("file-status") == "Translating letter.md into English…"
    tab.expect("file-result", "Download letter.en.md")
    assert tab.double.files == [{"filename": "letter.md", "file": "# Hello", "source": "auto", "target": "en"}]
    assert tab.double.keys_of_downloads == [None]
    link = "const link = document.getElementById('file-result');"
    assert tab.run(f"{link} return link.download") == "letter.en.md"
    content = tab.browser.execute_async_script(f"{READ_BLOB}{link} read(link.href, arguments[0])")
    assert content == "translated"
    tab.click("file-close")
    assert not tab.is_shown("file")


# Reads a blob by its address. The policy of the page forbids to fetch it.
READ_BLOB = """
const read = (href, done) => window.blobs.get(href).text().then(done);
"""

KEEP_BLOBS = """
window.blobs = new Map();
const create = URL.createObjectURL;
URL.createObjectURL = (blob) => {
  const href = create(blob);
  blobs.set(href, blob);
  return href;
};
"""


@pytest.fixture(autouse=True)
def _blobs_are_kept(browser: Any) -> Iterator[None]:
    script = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": KEEP_BLOBS})
    yield
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


DROP = """
const [type, name] = arguments;
const data = new DataTransfer();
data.items.add(new File(["hello"], name));
document.body.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
"""


def test_files_can_be_dropped_and_errors_are_beside_them(tab: Tab) -> None:
    tab.run(DROP, "dragover", "notes.txt")
    assert tab.is_shown("drop")
    tab.run(DROP, "drop", "notes.txt")
    assert not tab.is_shown("drop")
    tab.expect("file-result", "Download notes.en.txt")

    tab.run(DROP, "drop", "photo.png")
    tab.expect("file-error", "photo.png cannot be translated here: choose a file in .txt, .html, .htm, .md, .srt.")
    assert not tab.is_shown("file-result")
    tab.double.translate_file = lambda form: error(400, "The file is not in UTF-8.")
    tab.run(DROP, "drop", "notes.txt")
    tab.expect("file-error", "The file is not in UTF-8.")
    assert tab.text("error") == ""


def test_a_busy_server_is_given_the_file_once_more(tab: Tab) -> None:
    replies = [error(429, "Too many requests.", Retry_After="1"), Reply({"translatedFileUrl": "/download_file/1"})]
    tab.double.translate_file = lambda form: replies.pop(0)
    tab.run(DROP, "drop", "notes.txt")
    tab.expect("file-error", "Too many requests. Trying again in 1 s.")
    tab.expect("file-result", "Download notes.en.txt")
    assert tab.text("file-error") == "" and not replies


def test_a_server_without_files_offers_none(tab: Tab) -> None:
    assert tab.is_shown("choose-file")
    tab.double.settings["filesTranslation"] = False
    tab.open()
    assert not tab.is_shown("choose-file")
    tab.run(DROP, "drop", "notes.txt")
    assert not tab.is_shown("file")


# Errors


def test_a_key_is_asked_for_and_used(tab: Tab, tmp_path: Path) -> None:
    def needs_key(request: dict[str, Any]) -> Reply:
        return translation(line("yes")) if request.get("api_key") == "secret" else error(403, "This key is not valid.")

    tab.double.translate = needs_key
    assert not tab.is_shown("key-form")
    tab.type("abc")
    tab.expect("key-message", "This key is not valid.")
    assert tab.is_shown("key-form") and tab.text("error") == ""
    key = tab.browser.find_element("id", "key")
    assert (key.get_attribute("type"), key.get_attribute("autocomplete")) == ("password", "off")
    key.send_keys("wrong\n")
    soon(lambda: len(tab.double.requests) == 2)
    tab.expect("key-message", "This key is not valid.")
    key.clear()
    key.send_keys("secret\n")
    tab.expect("output", "yes")
    assert tab.text("key-message") == ""

    # files have it, too
    file = tmp_path / "a.txt"
    file.write_text("a", encoding="utf-8")
    tab.choose_file(file)
    tab.expect("file-result", "Download a.en.txt")
    assert tab.double.files[0]["api_key"] == "secret"
    assert tab.double.keys_of_downloads == ["Bearer secret"]


def test_a_key_is_asked_for_only_where_one_is_missing(tab: Tab) -> None:
    messages = ("pages of other sites are not answered", "")
    replies = [error(403, message) for message in messages]
    tab.double.translate = lambda request: replies.pop(0)
    for message in messages:
        tab.type(f"abc {message}")
        tab.expect("error", message or "The server answers with the status 403.")
        assert not tab.is_shown("key-form") and tab.text("key-message") == ""
    tab.double.translate = lambda request: error(403, "a valid api_key is needed")
    tab.type("abc")
    tab.expect("key-message", "a valid api_key is needed")


def test_a_server_that_requires_a_key_is_not_asked_without_one(tab: Tab) -> None:
    tab.double.settings["keyRequired"] = True
    tab.open()
    assert tab.is_shown("key-form") and tab.text("key-message") == ""
    tab.type("abc")
    tab.expect("key-message", "This server asks for an API key.")
    assert not tab.double.requests
    tab.browser.find_element("id", "key").send_keys("secret\n")
    tab.expect("output", "cba")
    assert tab.double.requests == [{"q": "abc", "source": "auto", "target": "en", "api_key": "secret"}]


def test_a_busy_server_is_asked_once_more_by_itself(tab: Tab) -> None:
    times: list[float] = []

    def busy(request: dict[str, Any]) -> Reply:
        times.append(time.monotonic())
        return error(429, "Too many requests.", Retry_After="1")

    tab.double.translate = busy
    tab.type("abc")
    tab.expect("error", "Too many requests. Trying again in 1 s.")
    tab.expect("error", "Too many requests.")
    assert len(times) == 2 and times[1] - times[0] >= 1
    time.sleep(1.2)
    assert len(times) == 2  # once
    tab.double.translate = lambda request: translation(line("yes"))
    tab.click("again")
    tab.expect("output", "yes")
    assert tab.text("error") == "" and not tab.is_shown("again")


def test_errors_are_said_and_end_with_the_next_translation(tab: Tab) -> None:
    messages = {504: "It took longer than 60 s.", 400: "Wrong.", 413: "Too large.", 500: ""}
    tab.double.translate = lambda request: error(int(request["q"]), messages[int(request["q"])])
    for status, message in messages.items():
        tab.type(str(status))
        tab.expect("error", message or "The server answers with the status 500.")
        assert tab.text("output") == "" and tab.is_shown("again")
    tab.double.translate = lambda request: translation(line("yes"))
    tab.translate("abc", "yes")
    assert tab.text("error") == ""


def test_a_network_that_is_down_is_said(tab: Tab) -> None:
    tab.translate("abc", "cba")
    for is_offline in (True, False):
        conditions = {"offline": is_offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        tab.browser.execute_cdp_cmd("Network.enable", {})
        tab.browser.execute_cdp_cmd("Network.emulateNetworkConditions", conditions)
        if is_offline:
            tab.type("abcd")
            tab.expect("error", "The server cannot be reached. Check the connection and try again.")
    tab.click("again")
    tab.expect("output", "dcba")


def test_a_server_that_fails_at_first_can_be_tried_again(tab: Tab) -> None:
    languages, tab.double.languages = tab.double.languages, None
    tab.browser.get(tab.double.url)
    soon(lambda: tab.text("error"))
    tab.double.languages = languages
    tab.click("again")
    soon(tab.is_ready)
    tab.translate("abc", "cba")


def test_texts_names_and_errors_are_no_markup(tab: Tab) -> None:
    tab.double.languages[0]["name"] = MARKUP
    tab.double.languages[1]["name"] = MARKUP
    tab.open()
    tab.double.translate = lambda request: translation(
        line(MARKUP, "unsure", MARKUP),
        notices=[MARKUP],
        alternatives=[{"text": f"{MARKUP}!", "score": -1, "doubts": [MARKUP]}],
        attention={"source": [MARKUP], "target": [MARKUP], "rows": [[1]]},
        memory=[{"line": 1, "similarity": 0.8, "source": MARKUP, "target": MARKUP}],
        detectedLanguage={"language": MARKUP, "confidence": 1},
    )
    tab.run("attention.open = true")
    tab.translate(MARKUP, MARKUP)
    tab.double.translate = lambda request: error(400, MARKUP)
    tab.type(f"{MARKUP}.")
    tab.expect("error", MARKUP)
    tab.run(DROP, "drop", f"{MARKUP}.txt")
    soon(lambda: tab.text("file-result"))
    assert tab.browser.title == "Tapis"
    assert tab.run("return document.querySelectorAll('img, main script').length") == 0


# The tab


def test_a_reload_keeps_text_languages_and_key(tab: Tab) -> None:
    tab.run("document.getElementById('key-form').hidden = false")
    tab.choose("source", "en")
    tab.choose("target", "fr")
    tab.browser.find_element("id", "key").send_keys("secret\n")
    tab.translate("abc", "cba")
    tab.browser.refresh()
    tab.expect("output", "cba")
    values = tuple(tab.value(name) for name in ("text", "source", "target", "key"))
    assert values == ("abc", "en", "fr", "secret")
    assert tab.double.requests[-1] == {"q": "abc", "source": "en", "target": "fr", "api_key": "secret"}
    assert tab.browser.current_url == tab.double.url
    assert not tab.browser.get_cookies() and tab.run("return localStorage.length + sessionStorage.length") == 0


def test_the_keyboard_reaches_everything_in_order(tab: Tab) -> None:
    tab.double.translate = rich
    tab.choose("source", "en")
    tab.choose("target", "de")
    tab.translate("Hello", "Hallo, du!")
    tab.run("document.activeElement.blur(); scrollTo(0, 0); getSelection().removeAllRanges(); source.focus()")
    from selenium.webdriver import ActionChains, Keys

    order = [tab.run(NAME_FOCUSED)]
    for _ in range(17):
        ActionChains(tab.browser, duration=0).send_keys(Keys.TAB).perform()
        order.append(tab.run(NAME_FOCUSED))
        if order[-1] == "API":
            break
    assert order == [
        *("source", "swap", "target", "text", "clear", "choose-file", "copy", "correct"),
        *(name for _ in range(3) for name in ("take", "copy of it")),
        *("copy of it", "Attention", "API"),
    ]


NAME_FOCUSED = """
const element = document.activeElement;
if (getComputedStyle(element).outlineStyle === "none" && element.id !== "text") return `${element.id} without outline`;
if (element.className === "copy") return "copy of it";
return element.id || element.className || element.textContent;
"""


def test_right_to_left_text_is_shown_from_the_right(tab: Tab) -> None:
    tab.double.translate = lambda request: translation(line("مرحبا بالعالم"))
    tab.choose("source", "en")
    tab.choose("target", "ar")
    tab.translate("שלום", "مرحبا بالعالم")
    for name in ("text", "output"):
        assert tab.run("return getComputedStyle(document.getElementById(arguments[0])).direction", name) == "rtl"
    assert tab.run("return [text.lang, output.lang]") == ["en", "ar"]
    box = tab.run(
        """const range = document.createRange();
        range.selectNodeContents(output);
        return [range.getBoundingClientRect().right, output.getBoundingClientRect().right];"""
    )
    assert abs(box[0] - box[1]) < 2


def test_print_has_both_texts_in_full_and_no_controls(tab: Tab) -> None:
    long = "\n".join(f"line {i}" for i in range(12))
    tab.type(long)
    soon(lambda: tab.text("output"))
    tab.resize(800, media="print")
    assert tab.is_shown("printed-text") and tab.text("printed-text") == long
    assert tab.is_shown("output")
    controls = "return Array.from(document.querySelectorAll('button, select, textarea, input, a')).filter((e) =>"
    assert tab.run(f"{controls} e.checkVisibility()).map((e) => e.id)") == []
    assert tab.run("return getComputedStyle(document.getElementById('text-title'), '::after').content") == '" (German)"'


def test_a_textarea_grows_with_its_text(tab: Tab) -> None:
    tab.type("\n".join(["line"] * 30))
    soon(lambda: tab.text("output"))
    assert tab.run("return text.scrollHeight <= text.clientHeight")
    high = tab.run("return text.clientHeight")
    tab.translate("line", "enil")
    assert tab.run("return text.clientHeight") < high / 2


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (320, "dark")])
def test_axe_finds_no_barrier_in_any_state(width: int, scheme: str, tab: Tab) -> None:
    tab.resize(width, scheme)
    tab.expect_no_barrier()  # empty
    tab.double.translate = lambda request: Reply(rich(request).body, delay=0.6)
    tab.type("Hello, world! " * 3)
    tab.expect("status", "Translating…")
    tab.expect_no_barrier()
    tab.expect("output", "Hallo, du!")
    tab.run("attention.open = true")
    soon(lambda: tab.run("return document.querySelector('td')"))
    tab.expect_no_barrier()  # doubts, alternatives, attention, notices

    tab.double.translate = lambda request: error(504, "It took longer than 60 s.")
    tab.type("x" * 203)
    tab.expect_no_barrier()  # over the limit
    tab.type("abc")
    tab.expect("error", "It took longer than 60 s.")
    tab.run(DROP, "drop", "photo.png")
    tab.expect_no_barrier()  # errors of the translation and of a file
    tab.double.translate = lambda request: error(403, "This key is not valid.")
    tab.type("abcd")
    tab.expect("key-message", "This key is not valid.")
    tab.run(DROP, "drop", "notes.txt")
    tab.expect("file-result", "Download notes.en.txt")
    tab.expect_no_barrier()  # the key is asked for, a file is translated
    tab.run(DROP, "dragover", "notes.txt")
    tab.expect_no_barrier()
