"""Generate the built-in English-French demo corpus: train, valid and test files beside this script.

    python demo/make_corpus.py

A small grammar generates English sentences together with their French translations. It covers what makes French hard:
gender, number, agreement of adjectives and participles, adjectives before and after the noun, elision (l'oiseau,
n'aime, qu'elle), contraction (au, du, aux, des), negation with "pas de", questions, and the one French present tense
for two in English.

All pairs are distinct, and pairs that share a side are in the same part. The tutorial sentence "The cat sits on the
mat." and its progressive form occur in the test part alone.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SIZES = {"valid": 300, "test": 300, "train": 6000}  # in pairs; train is what remains
TUTORIAL_FRENCH = "Le chat est assis sur le tapis."
TUTORIAL_PAIRS = [
    ("The cat sits on the mat.", TUTORIAL_FRENCH),
    ("The cat is sitting on the mat.", TUTORIAL_FRENCH),
]
VOWELS = "aàâeéèêëiîïoôöuùûœhAEIOUÉÊÎÔŒH"  # with h, since every h in the vocabulary is mute


# Parts of speech


@dataclass(frozen=True)
class Noun:
    """A noun in both languages."""

    en: str
    en_plural: str
    fr: str
    fr_plural: str
    feminine: bool = False


@dataclass(frozen=True)
class Adjective:
    """An English adjective and the forms of its French translation."""

    en: str
    masculine: str
    feminine: str
    masculine_plural: str
    precedes_noun: bool = False
    masculine_before_vowel: str = ""
    """A special masculine singular, such as "vieil", or empty"""

    def agree(self, feminine: bool, plural: bool, before_vowel: bool = False) -> str:
        """The French form for a noun of this gender and number. before_vowel: whether a vowel follows."""
        if feminine:
            return self.feminine + "s" if plural else self.feminine
        if plural:
            return self.masculine_plural
        if before_vowel and self.masculine_before_vowel:
            return self.masculine_before_vowel
        return self.masculine


@dataclass(frozen=True)
class Verb:
    """A verb in the present tense of both languages."""

    en: str
    en_third: str
    """Third person singular"""
    en_ing: str
    """The -ing form, or empty for a verb without progressive"""
    fr: tuple[str, str, str, str]
    """The forms for je, il, nous and ils"""


@dataclass(frozen=True)
class Phrase:
    """A noun phrase or a pronoun in both languages."""

    en: str
    fr: str
    person: int
    """Index into Verb.fr"""
    feminine: bool = False
    fr_bare: str = ""
    """The French noun phrase without its determiner"""
    definite: bool = False
    indefinite: bool = False

    @property
    def plural(self) -> bool:
        return self.person >= 2


def noun(en: str, fr: str, feminine: bool = False, en_plural: str = "", fr_plural: str = "") -> Noun:
    """A noun, with regular plurals unless others are given."""
    regular_fr_plural = fr if fr[-1] in "sx" else fr + "s"
    return Noun(en, en_plural or en + "s", fr, fr_plural or regular_fr_plural, feminine)


def adjective(
    en: str, masculine: str, feminine: str = "", precedes_noun: bool = False, masculine_before_vowel: str = ""
) -> Adjective:
    """An adjective, with a regular feminine unless another is given."""
    regular_feminine = masculine if masculine.endswith("e") else masculine + "e"
    if masculine[-1] in "sx":
        plural_ending = ""
    elif masculine.endswith("eau"):
        plural_ending = "x"
    else:
        plural_ending = "s"
    return Adjective(
        en, masculine, feminine or regular_feminine, masculine + plural_ending, precedes_noun, masculine_before_vowel
    )


def verb(en: str, fr_stem: str, en_third: str = "", en_ing: str = "", fr_forms: str = "") -> Verb:
    """A verb, regular in English and a regular French -er verb unless other forms are given.

    In "look for", the first word is inflected. en_ing="-" stands for no progressive. fr_forms lists the forms for je,
    il, nous and ils, separated by spaces.
    """
    first_word, space, preposition = en.partition(" ")
    third = en_third or first_word + "s" + space + preposition
    ing = "" if en_ing == "-" else en_ing or first_word + "ing" + space + preposition

    endings = ("e", "e", "ons", "ent")
    je, il, nous, ils = fr_forms.split() if fr_forms else [fr_stem + ending for ending in endings]
    return Verb(en, third, ing, (je, il, nous, ils))


# Vocabulary

ANIMALS = [
    noun("cat", "chat"),
    noun("dog", "chien"),
    noun("bird", "oiseau", fr_plural="oiseaux"),
    noun("horse", "cheval", fr_plural="chevaux"),
    noun("mouse", "souris", True, en_plural="mice"),
    noun("cow", "vache", True),
]
PEOPLE = [
    noun("girl", "fille", True),
    noun("boy", "garçon"),
    noun("man", "homme", en_plural="men"),
    noun("woman", "femme", True, en_plural="women"),
    noun("child", "enfant", en_plural="children"),
    noun("teacher", "professeur"),
    noun("queen", "reine", True),
    noun("king", "roi"),
    noun("friend", "ami"),
    noun("nurse", "infirmière", True),
]
BEINGS = ANIMALS + PEOPLE
SEATS = [
    noun("mat", "tapis"),
    noun("table", "table", True),
    noun("chair", "chaise", True),
    noun("bed", "lit"),
    noun("bench", "banc", en_plural="benches"),
    noun("sofa", "canapé"),
    noun("roof", "toit"),
    noun("wall", "mur"),
]
PLACES = [
    noun("garden", "jardin"),
    noun("house", "maison", True),
    noun("kitchen", "cuisine", True),
    noun("school", "école", True),
    noun("hotel", "hôtel"),
    noun("church", "église", True, en_plural="churches"),
    noun("market", "marché"),
    noun("station", "gare", True),
    noun("river", "rivière", True),
    noun("village", "village"),
]
FOODS = [
    noun("apple", "pomme", True),
    noun("cake", "gâteau", fr_plural="gâteaux"),
    noun("orange", "orange", True),
    noun("egg", "œuf"),
    noun("potato", "pomme de terre", True, en_plural="potatoes", fr_plural="pommes de terre"),
    noun("onion", "oignon"),
]
THINGS = [
    noun("book", "livre"),
    noun("letter", "lettre", True),
    noun("car", "voiture", True),
    noun("flower", "fleur", True),
    noun("tree", "arbre"),
    noun("key", "clé", True),
    noun("hat", "chapeau", fr_plural="chapeaux"),
    noun("picture", "image", True),
    noun("watch", "montre", True, en_plural="watches"),
    noun("umbrella", "parapluie"),
]
GENERAL_ADJECTIVES = [
    adjective("small", "petit", precedes_noun=True),
    adjective("big", "grand", precedes_noun=True),
    adjective("old", "vieux", "vieille", precedes_noun=True, masculine_before_vowel="vieil"),
    adjective("beautiful", "beau", "belle", precedes_noun=True, masculine_before_vowel="bel"),
    adjective("new", "nouveau", "nouvelle", precedes_noun=True, masculine_before_vowel="nouvel"),
    adjective("strange", "étrange"),
]
ANIMATE_ADJECTIVES = [adjective("young", "jeune", precedes_noun=True)]
COLOURS = [
    adjective("black", "noir"),
    adjective("white", "blanc", "blanche"),
    adjective("red", "rouge"),
    adjective("green", "vert"),
    adjective("grey", "gris"),
]
STATES = [
    adjective("tired", "fatigué"),
    adjective("happy", "heureux", "heureuse"),
    adjective("sad", "triste"),
    adjective("ready", "prêt"),
    adjective("alone", "seul"),
    adjective("ill", "malade"),
    adjective("jealous", "jaloux", "jalouse"),
    adjective("angry", "fâché"),
]
# A verb of posture, and the French participle or phrase that follows être. Its French forms are not used.
POSTURES = [
    (verb("sit", "", en_ing="sitting", fr_forms="- - - -"), adjective("", "assis")),
    (verb("lie", "", en_ing="lying", fr_forms="- - - -"), adjective("", "couché")),
    (verb("kneel", "", fr_forms="- - - -"), Adjective("", "à genoux", "à genoux", "à genoux")),
]
INTRANSITIVE_VERBS = [
    verb("sleep", "", fr_forms="dors dort dormons dorment"),
    verb("run", "", en_ing="running", fr_forms="cours court courons courent"),
    verb("dance", "dans", en_ing="dancing", fr_forms="danse danse dansons dansent"),
    verb("sing", "chant"),
    verb("work", "travaill"),
    verb("play", "jou"),
    verb("cry", "pleur", en_third="cries"),
    verb("wait", "", fr_forms="attends attend attendons attendent"),
    verb("arrive", "arriv", en_ing="arriving"),
    verb("listen", "écout"),
]
# Transitive verbs, by their objects: food, people and animals, things.
FOOD_VERBS = [
    verb("eat", "", fr_forms="mange mange mangeons mangent"),
    verb("wash", "lav", en_third="washes"),
    verb("cut", "coup", en_ing="cutting"),
]
BEING_VERBS = [
    verb("see", "", en_ing="-", fr_forms="vois voit voyons voient"),
    verb("love", "aim", en_ing="-"),
    verb("look for", "cherch"),
    verb("draw", "dessin"),
    verb("carry", "port", en_third="carries"),
    verb("find", "trouv"),
    verb("forget", "oubli", en_ing="forgetting"),
]
THING_VERBS = [
    *BEING_VERBS,
    verb("want", "", en_ing="-", fr_forms="veux veut voulons veulent"),
    verb("buy", "", fr_forms="achète achète achetons achètent"),
    verb("hide", "cach", en_ing="hiding"),
]
# A verb with an indirect object, and the French preposition before the object.
MOTION_VERBS = [
    (verb("go to", "", en_third="goes to", fr_forms="vais va allons vont"), "à"),
    (verb("come from", "", en_ing="coming from", fr_forms="viens vient venons viennent"), "de"),
    (verb("arrive at", "arriv", en_ing="arriving at"), "à"),
    (verb("leave", "", en_ing="leaving", fr_forms="sors sort sortons sortent"), "de"),
]
INDIRECT_VERBS = [
    (verb("talk to", "parl"), "à"),
    (verb("talk about", "parl"), "de"),
    (verb("think of", "pens", en_ing="thinking of"), "à"),
    (verb("write to", "", en_ing="writing to", fr_forms="écris écrit écrivons écrivent"), "à"),
    (verb("dream of", "rêv"), "de"),
    (verb("look like", "", en_ing="-", fr_forms="ressemble ressemble ressemblons ressemblent"), "à"),
]
BE_FR = ("suis", "est", "sommes", "sont")  # by Phrase.person
BE_EN = ("am", "is", "are", "are")
PLACE_PREPOSITIONS = [
    ("in", "dans"),
    ("behind", "derrière"),
    ("in front of", "devant"),
    ("near", "près de"),
    ("next to", "à côté de"),
]
SEAT_PREPOSITIONS = [("on", "sur"), ("under", "sous"), ("behind", "derrière"), ("near", "près de")]
TIMES = [
    ("today", "aujourd'hui"),
    ("now", "maintenant"),
    ("every day", "tous les jours"),
    ("this morning", "ce matin"),
    ("again", "encore une fois"),
    ("with pleasure", "avec plaisir"),
]
PRONOUNS = [
    Phrase("I", "je", 0),
    Phrase("he", "il", 1),
    Phrase("she", "elle", 1, True),
    Phrase("we", "nous", 2),
    Phrase("they", "ils", 3),
]
# English → French masculine, masculine before a vowel, feminine, feminine before a vowel, plural.
DETERMINERS = {
    "the": ("le", "l'", "la", "l'", "les"),
    "a": ("un", "un", "une", "une", "des"),
    "this": ("ce", "cet", "cette", "cette", "ces"),
    "my": ("mon", "mon", "ma", "mon", "mes"),
    "our": ("notre", "notre", "notre", "notre", "nos"),
    "his": ("son", "son", "sa", "son", "ses"),
    "her": ("son", "son", "sa", "son", "ses"),
}
# How often each determiner is drawn, relative to the others, in the same order.
DETERMINER_WEIGHTS = [8, 4, 2, 2, 1, 1, 1]

ALL_VERBS = [
    *INTRANSITIVE_VERBS,
    *FOOD_VERBS,
    *THING_VERBS,
    *(verb for verb, _ in MOTION_VERBS + INDIRECT_VERBS + POSTURES),
]
THIRD_PERSON = {verb.en: verb.en_third for verb in ALL_VERBS}


# Phrases


def elide(word: str, following: str) -> str:
    """Join two French words, with elision before a vowel: de + ami → d'ami, ne + aime → n'aime."""
    if following[0] in VOWELS:
        return word[:-1] + "'" + following
    return f"{word} {following}"


def noun_phrase(draw: random.Random, nouns: list[Noun], determiner: str = "") -> Phrase:
    """A random noun phrase with one of the nouns, and with this determiner if one is given."""
    # draw a noun, its number, an adjective that suits it, and a determiner
    drawn_noun = draw.choice(nouns)
    plural = draw.random() < 0.3
    adjectives = list(GENERAL_ADJECTIVES)
    if drawn_noun in BEINGS:
        adjectives += ANIMATE_ADJECTIVES
    if drawn_noun not in PEOPLE:
        adjectives += COLOURS
    drawn_adjective = draw.choice(adjectives) if draw.random() < 0.35 else None
    determiner = determiner or draw.choices(list(DETERMINERS), DETERMINER_WEIGHTS)[0]

    # put the adjective before or after the noun
    en = drawn_noun.en_plural if plural else drawn_noun.en
    fr = drawn_noun.fr_plural if plural else drawn_noun.fr
    if drawn_adjective:
        before_vowel = drawn_adjective.precedes_noun and fr[0] in VOWELS
        fr_adjective = drawn_adjective.agree(drawn_noun.feminine, plural, before_vowel)
        fr = f"{fr_adjective} {fr}" if drawn_adjective.precedes_noun else f"{fr} {fr_adjective}"
        en = f"{drawn_adjective.en} {en}"

    # the English determiner
    if determiner == "a":
        singular_article = "an" if en[0] in "aeiou" else "a"
        en_determiner = "some" if plural else singular_article
    elif determiner == "this":
        en_determiner = "these" if plural else "this"
    else:
        en_determiner = determiner

    # the French determiner
    fr_forms = DETERMINERS[determiner]
    if determiner == "a" and plural and drawn_adjective and drawn_adjective.precedes_noun:
        fr_determiner = "de"
    elif plural:
        fr_determiner = fr_forms[4]
    else:
        fr_determiner = fr_forms[2 * drawn_noun.feminine + (fr[0] in VOWELS)]

    return Phrase(
        en=f"{en_determiner} {en}",
        fr=fr_determiner + fr if fr_determiner.endswith("'") else f"{fr_determiner} {fr}",
        person=3 if plural else 1,
        feminine=drawn_noun.feminine,
        fr_bare=fr,
        definite=determiner == "the",
        indefinite=determiner == "a",
    )


def contract(preposition: str, phrase: Phrase) -> str:
    """Join a French preposition and a phrase: à + le → au, de + les → des, près de + le → près du, de + ami → d'ami."""
    beginning, space, last_word = preposition.rpartition(" ")
    beginning += space

    # the definite articles le and les merge with à and de
    for article, contractions in (("le ", {"à": "au ", "de": "du "}), ("les ", {"à": "aux ", "de": "des "})):
        if phrase.definite and phrase.fr.startswith(article) and last_word in contractions:
            return beginning + contractions[last_word] + phrase.fr.removeprefix(article)

    if last_word == "de":
        # de absorbs the plural indefinite articles des and de
        if phrase.indefinite and phrase.plural:
            return beginning + elide("de", phrase.fr_bare)
        return beginning + elide("de", phrase.fr)
    return f"{preposition} {phrase.fr}"


def join(*words: str) -> str:
    """Join the words that are not empty."""
    return " ".join(word for word in words if word)


# Clauses


@dataclass(frozen=True)
class Clause:
    """A clause in the present tense.

    English: subject, auxiliary, (not), verb, rest. French: subject, (ne), verb, (pas), rest.
    """

    subject: Phrase
    en_auxiliary: str
    en_verb: str
    en_rest: str
    fr_verb: str
    fr_rest: str
    fr_rest_negated: str
    """The rest after "pas": an indefinite object takes "de" as its article"""

    def english(self, negated: bool) -> str:
        """The English statement."""
        if negated:
            return join(self.subject.en, self.en_auxiliary, "not", self.en_verb, self.en_rest)
        if self.en_auxiliary == "does":
            return join(self.subject.en, THIRD_PERSON[self.en_verb], self.en_rest)
        if self.en_auxiliary == "do":
            return join(self.subject.en, self.en_verb, self.en_rest)
        return join(self.subject.en, self.en_auxiliary, self.en_verb, self.en_rest)

    def english_question(self) -> str:
        """The English question, without its question mark."""
        return join(self.en_auxiliary, self.subject.en, self.en_verb, self.en_rest)

    def french(self, negated: bool) -> str:
        """The French statement."""
        if negated:
            return join(self.subject.fr, elide("ne", self.fr_verb), "pas", self.fr_rest_negated)
        if self.subject.fr == "je":
            return join(elide("je", self.fr_verb), self.fr_rest)
        return join(self.subject.fr, self.fr_verb, self.fr_rest)


def draw_subject(draw: random.Random) -> Phrase:
    """A pronoun, or a noun phrase for a person or an animal."""
    return draw.choice(PRONOUNS) if draw.random() < 0.2 else noun_phrase(draw, BEINGS)


def english_present(draw: random.Random, subject: Phrase, main_verb: Verb) -> tuple[str, str]:
    """Auxiliary and main verb of the simple or the progressive present. French has one form for both."""
    if main_verb.en_ing and draw.random() < 0.5:
        return BE_EN[subject.person], main_verb.en_ing
    return ("does" if subject.person == 1 else "do"), main_verb.en


def posture(draw: random.Random) -> Clause:
    """The cat sits on the mat."""
    subject = draw_subject(draw)
    main_verb, participle = draw.choice(POSTURES)
    en_auxiliary, en_verb = english_present(draw, subject, main_verb)
    en_preposition, fr_preposition = draw.choice(SEAT_PREPOSITIONS)
    seat = noun_phrase(draw, SEATS, "the" if draw.random() < 0.6 else "")

    en_rest = f"{en_preposition} {seat.en}"
    fr_rest = join(participle.agree(subject.feminine, subject.plural), contract(fr_preposition, seat))
    return Clause(subject, en_auxiliary, en_verb, en_rest, BE_FR[subject.person], fr_rest, fr_rest)


def action(draw: random.Random) -> Clause:
    """The girl sings in the garden."""
    subject = draw_subject(draw)
    main_verb = draw.choice(INTRANSITIVE_VERBS)
    en_auxiliary, en_verb = english_present(draw, subject, main_verb)
    en_preposition, fr_preposition = draw.choice(PLACE_PREPOSITIONS)
    place = noun_phrase(draw, PLACES)

    en_rest = fr_rest = ""
    if draw.random() < 0.7:
        en_rest = f"{en_preposition} {place.en}"
        fr_rest = contract(fr_preposition, place)
    return Clause(subject, en_auxiliary, en_verb, en_rest, main_verb.fr[subject.person], fr_rest, fr_rest)


def transitive(draw: random.Random) -> Clause:
    """The boy eats an apple."""
    subject = draw_subject(draw)
    verbs, objects = draw.choice([(FOOD_VERBS, FOODS), (THING_VERBS, FOODS + THINGS + THINGS), (BEING_VERBS, BEINGS)])
    main_verb = draw.choice(verbs)
    direct_object = noun_phrase(draw, objects)
    en_auxiliary, en_verb = english_present(draw, subject, main_verb)

    negated = elide("de", direct_object.fr_bare) if direct_object.indefinite else direct_object.fr
    fr_verb = main_verb.fr[subject.person]
    return Clause(subject, en_auxiliary, en_verb, direct_object.en, fr_verb, direct_object.fr, negated)


def indirect(draw: random.Random) -> Clause:
    """The woman talks to the king."""
    subject = draw_subject(draw)
    verbs, objects = draw.choice([(MOTION_VERBS, PLACES), (INDIRECT_VERBS, BEINGS)])
    main_verb, fr_preposition = draw.choice(verbs)
    indirect_object = noun_phrase(draw, objects)
    en_auxiliary, en_verb = english_present(draw, subject, main_verb)

    fr_rest = contract(fr_preposition, indirect_object)
    fr_verb = main_verb.fr[subject.person]
    return Clause(subject, en_auxiliary, en_verb, indirect_object.en, fr_verb, fr_rest, fr_rest)


def state(draw: random.Random) -> Clause:
    """The queen is happy."""
    subject = draw_subject(draw)
    drawn_adjective = draw.choice(STATES)
    fr_rest = drawn_adjective.agree(subject.feminine, subject.plural)
    return Clause(subject, BE_EN[subject.person], drawn_adjective.en, "", BE_FR[subject.person], fr_rest, fr_rest)


def location(draw: random.Random) -> Clause:
    """The book is under the table."""
    subject = noun_phrase(draw, BEINGS + THINGS) if draw.random() < 0.8 else draw.choice(PRONOUNS)
    prepositions, nouns = draw.choice([(SEAT_PREPOSITIONS, SEATS), (PLACE_PREPOSITIONS, PLACES)])
    en_preposition, fr_preposition = draw.choice(prepositions)
    place = noun_phrase(draw, nouns)

    en_place = f"{en_preposition} {place.en}"
    fr_place = contract(fr_preposition, place)
    return Clause(subject, BE_EN[subject.person], en_place, "", BE_FR[subject.person], fr_place, fr_place)


# Listed as often as each kind is to be drawn.
CLAUSES: list[Callable[[random.Random], Clause]] = [
    posture,
    posture,
    action,
    transitive,
    transitive,
    indirect,
    state,
    location,
]


# Sentences and parts


def sentence(draw: random.Random) -> tuple[str, str]:
    """A random sentence in English and in French: a statement, a question, a clause with "that", or two clauses."""
    clause = draw.choice(CLAUSES)(draw)
    kind = draw.random()
    negated = draw.random() < 0.2
    en_time = fr_time = ""
    if draw.random() < 0.15:
        en_time, fr_time = draw.choice(TIMES[:5] if kind > 0.1 else TIMES[:3])

    # a question
    if kind < 0.1:
        fr = elide("est-ce que", clause.french(negated=False))
        return finish(join(clause.english_question(), en_time), join(fr, fr_time), "?")

    # a subordinate clause
    en = join(clause.english(negated), en_time)
    if kind < 0.16:
        fr = join("je pense", elide("que", clause.french(negated)), fr_time)
        return finish(f"I think that {en}", fr, ".")

    # two clauses
    fr = join(clause.french(negated), fr_time)
    if kind < 0.26:
        second_clause = draw.choice([action, state, transitive])(draw)
        en_conjunction, fr_conjunction = draw.choice([("and", "et"), ("but", "mais")])
        en = f"{en} {en_conjunction} {second_clause.english(negated=False)}"
        fr = f"{fr} {fr_conjunction} {second_clause.french(negated=False)}"

    return finish(en, fr, ".")


def finish(en: str, fr: str, mark: str) -> tuple[str, str]:
    """Capitalize both sides and add the closing mark. French puts a space before a question mark."""
    fr_mark = " ?" if mark == "?" else mark
    return en[0].upper() + en[1:] + mark, fr[0].upper() + fr[1:] + fr_mark


def make(seed: int = 2017) -> dict[str, list[tuple[str, str]]]:
    """Generate the pairs of each part."""
    draw = random.Random(seed)

    # Draw distinct pairs, grouped by their French side, which has up to two English translations. An English sentence
    # that was drawn with another French side is skipped.
    english_by_french: dict[str, list[str]] = {}
    french_by_english: dict[str, str] = {}
    while sum(map(len, english_by_french.values())) < sum(SIZES.values()):
        en, fr = sentence(draw)
        is_ambiguous = french_by_english.setdefault(en, fr) != fr
        if not is_ambiguous and en not in english_by_french.setdefault(fr, []):
            english_by_french[fr].append(en)

    # distribute the groups: fill test, then valid, and put the rest into train
    english_by_french.pop(TUTORIAL_FRENCH, None)
    parts = {"test": list(TUTORIAL_PAIRS), "valid": [], "train": []}
    for fr, translations in sorted(english_by_french.items(), key=lambda group: draw.random()):
        if len(parts["test"]) < SIZES["test"]:
            name = "test"
        elif len(parts["valid"]) < SIZES["valid"]:
            name = "valid"
        else:
            name = "train"
        parts[name].extend((en, fr) for en in translations)
    draw.shuffle(parts["train"])
    return parts


def main() -> None:
    """Write PART.en and PART.fr for each part."""
    folder = Path(__file__).parent
    for part, pairs in make().items():
        for side, language in enumerate(("en", "fr")):
            lines = [pair[side] + "\n" for pair in pairs]
            (folder / f"{part}.{language}").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
