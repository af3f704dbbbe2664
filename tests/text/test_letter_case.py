"""Sentences in capitals and in title case, and which words keep a capital."""

import pytest

from tapis.text.letter_case import is_in_capitals, is_in_title_case, lowercase, uppercase, usual_case
from tapis.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def knowing() -> Tokenizer:
    """A vocabulary that knows some words, each in its usual spelling."""
    texts = ["I think that the old dog of Paris is tired.", "Der Hund aus Berlin ist müde.", "The NATO is here."]
    return Tokenizer.train(texts * 50, 600)


@pytest.mark.parametrize(
    ("typed", "usual"),
    [
        ("THE OLD DOG OF PARIS IS TIRED.", "The old dog of Paris is tired."),
        ("The Old Dog Of Paris Is Tired.", "The old dog of Paris is tired."),
        ("DER HUND AUS BERLIN IST MÜDE!", "Der Hund aus Berlin ist müde!"),
        ("I THINK THAT THE NATO IS OLD.", "I think that the NATO is old."),
        ("“THE DOG”, I THINK.", "“The dog”, I think."),
    ],
)
def test_the_usual_spelling_is_that_of_the_vocabulary(knowing: Tokenizer, typed: str, usual: str) -> None:
    assert usual_case(typed, knowing) == usual


@pytest.mark.parametrize("mark", ["\u0301", "\u0301\u0323"])
def test_a_mark_within_a_word_begins_no_other_one(knowing: Tokenizer, mark: str) -> None:
    """As in Russian, whose accents have no composed forms."""
    tokenizer = Tokenizer.train([f"it is приве{mark}т дру{mark}г. The Ве{mark}ра is here."] * 50, 600)
    typed, usual = f"IT IS ДРУ{mark}Г ВЕ{mark}РА", f"It is дру{mark}г Ве{mark}ра"
    assert usual_case(typed, tokenizer) == usual_case(usual.title(), tokenizer) == usual
    assert usual_case(f"THE ПРИВЕ{mark}Т ДРУЗЬЯ{mark}", knowing).count("Т") == 0  # of unknown words


def test_a_word_behind_one_that_is_kept_has_no_capital(knowing: Tokenizer) -> None:
    assert usual_case("XYZ DOG IS TIRED.", knowing, kept=lambda text: range(3)) == "XYZ dog is tired."


@pytest.mark.parametrize(
    "text",
    ["The dog.", "NATO", "Paris Berlin", "The Old Dog is tired of Berlin.", "OK!", "", "123 456", "日本語の文です"],
)
def test_other_text_stays_as_it_is(knowing: Tokenizer, text: str) -> None:
    assert usual_case(text, knowing) == text


def test_what_counts_as_capitals_and_as_title_case() -> None:
    assert is_in_capitals("AVENIDA DE LA PAZ Nº 3") and is_in_capitals("LA 2ª PARTE") and not is_in_capitals("Nº 3 ª")
    # A name in capitals makes no capitals of a script without them.
    assert not is_in_capitals("犬はABCDEFの中で寝る") and not is_in_capitals("कुत्ता ABCDEF सोता")
    assert is_in_capitals("THE DOG OF 東京 SLEEPS")
    assert is_in_capitals("GO AWAY") and not is_in_capitals("USA") and not is_in_capitals("GO away NOW")
    assert is_in_title_case("A Cat On the Red Mat") and not is_in_title_case("Ann Smith met Bob Jones in Rome.")
    assert not is_in_title_case("Red Mat")


@pytest.mark.parametrize("language", ["tr", "az", "tr-TR"])
def test_dotted_and_dotless_i_are_two_letters_in_turkish_and_azeri(language: str) -> None:
    turkish = Tokenizer.train(["O kız iyi bir kitap okuyor.", "Bu bir kitap.", "İyi kızlar."] * 50, 400)
    assert usual_case("İYİ BİR KIZ OKUYOR.", turkish, language) == "İyi bir kız okuyor."
    assert usual_case("Kızlar İyi Bir Kitap Okuyor", turkish, language) == "Kızlar iyi bir kitap okuyor"
    assert lowercase("ISI İLE IŞIK", language) == "ısı ile ışık"
    assert uppercase("ısı ile ışık", language) == "ISI İLE IŞIK"
    assert (lowercase("IT IS", "en"), uppercase("it is", "en")) == ("it is", "IT IS")
