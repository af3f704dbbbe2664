"""Makes the built-in English-French corpus beside this file: train, valid and test parts of distinct pairs.

    python demo/make_corpus.py

A small grammar draws English sentences and their French together, with what makes French hard: gender, number,
agreement of adjectives and participles, adjectives before and after the noun, elision (l'oiseau, n'aime, qu'elle),
contraction (au, du, aux, des), negation with its "pas de", questions, and English with two presents for one of French.
Pairs that share a side are kept in one part. The sentence of every tutorial, "The cat sits on the mat.", is in the
test part with its other form, and in no other.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SIZES = {"valid": 300, "test": 300, "train": 6000}
KEPT_FOR_TEST = "Le chat est assis sur le tapis."
VOWELS = "aàâeéèêëiîïoôöuùûœhAEIOUÉÊÎÔŒH"  # every h of the vocabulary is mute


@dataclass(frozen=True)
class Noun:
    en: str
    en_plural: str
    fr: str
    fr_plural: str
    feminine: bool = False


@dataclass(frozen=True)
class Adjective:
    en: str
    masculine: str
    feminine: str
    masculine_plural: str
    before: bool = False
    before_vowel: str = ""

    def agree(self, feminine: bool, plural: bool, vowel: bool = False) -> str:
        if feminine:
            return self.feminine + "s" * plural
        if plural:
            return self.masculine_plural
        return self.before_vowel if vowel and self.before_vowel else self.masculine


@dataclass(frozen=True)
class Verb:
    """English base, third person and -ing form ("" where it has no progressive); French for je, il, nous, ils."""

    en: str
    en_third: str
    en_ing: str
    fr: tuple[str, str, str, str]


@dataclass(frozen=True)
class Phrase:
    """A noun phrase, or a pronoun, in both languages. person indexes Verb.fr; fr_bare has no article."""

    en: str
    fr: str
    person: int
    feminine: bool = False
    pronoun: bool = False
    fr_bare: str = ""
    definite: bool = False
    indefinite: bool = False

    @property
    def plural(self) -> bool:
        return self.person >= 2


def noun(en: str, fr: str, feminine: bool = False, en_plural: str = "", fr_plural: str = "") -> Noun:
    return Noun(en, en_plural or en + "s", fr, fr_plural or (fr if fr[-1] in "sx" else fr + "s"), feminine)


def adjective(en: str, masculine: str, feminine: str = "", before: bool = False, before_vowel: str = "") -> Adjective:
    feminine = feminine or (masculine if masculine.endswith("e") else masculine + "e")
    ending = "" if masculine[-1] in "sx" else "x" if masculine.endswith("eau") else "s"
    return Adjective(en, masculine, feminine, masculine + ending, before, before_vowel)


def verb(en: str, stem: str, third: str = "", ing: str = "", forms: str = "") -> Verb:
    """A regular -er verb of this stem, or with the four forms given."""
    je, il, nous, ils = forms.split() if forms else (stem + "e", stem + "e", stem + "ons", stem + "ent")
    head, _, tail = en.partition(" ")
    tail = " " + tail if tail else ""
    third = third or head + "s" + tail
    return Verb(en, third, "" if ing == "-" else ing or head + "ing" + tail, (je, il, nous, ils))


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
SIZES_AND_AGES = [
    adjective("small", "petit", before=True),
    adjective("big", "grand", before=True),
    adjective("old", "vieux", "vieille", before=True, before_vowel="vieil"),
    adjective("beautiful", "beau", "belle", before=True, before_vowel="bel"),
    adjective("new", "nouveau", "nouvelle", before=True, before_vowel="nouvel"),
    adjective("strange", "étrange"),
]
YOUNG = [adjective("young", "jeune", before=True)]
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
POSTURES = [
    (verb("sit", "", ing="sitting", forms="- - - -"), adjective("", "assis")),
    (verb("lie", "", ing="lying", forms="- - - -"), adjective("", "couché")),
    (verb("kneel", "", forms="- - - -"), Adjective("", "à genoux", "à genoux", "à genoux")),
]
ACTIONS = [
    verb("sleep", "", forms="dors dort dormons dorment"),
    verb("run", "", ing="running", forms="cours court courons courent"),
    verb("dance", "dans", ing="dancing", forms="danse danse dansons dansent"),
    verb("sing", "chant"),
    verb("work", "travaill"),
    verb("play", "jou"),
    verb("cry", "pleur", third="cries"),
    verb("wait", "", forms="attends attend attendons attendent"),
    verb("arrive", "arriv", ing="arriving"),
    verb("listen", "écout"),
]
EATING = [
    verb("eat", "", forms="mange mange mangeons mangent"),
    verb("wash", "lav", third="washes"),
    verb("cut", "coup", ing="cutting"),
]
MEETING = [
    verb("see", "", ing="-", forms="vois voit voyons voient"),
    verb("love", "aim", ing="-"),
    verb("look for", "cherch"),
    verb("draw", "dessin"),
    verb("carry", "port", third="carries"),
    verb("find", "trouv"),
    verb("forget", "oubli", ing="forgetting"),
]
HANDLING = [
    *MEETING,
    verb("want", "", ing="-", forms="veux veut voulons veulent"),
    verb("buy", "", forms="achète achète achetons achètent"),
    verb("hide", "cach", ing="hiding"),
]
MOVING = [
    (verb("go to", "", third="goes to", forms="vais va allons vont"), "à"),
    (verb("come from", "", ing="coming from", forms="viens vient venons viennent"), "de"),
    (verb("arrive at", "arriv", ing="arriving at"), "à"),
    (verb("leave", "", ing="leaving", forms="sors sort sortons sortent"), "de"),
]
SPEAKING = [
    (verb("talk to", "parl"), "à"),
    (verb("talk about", "parl"), "de"),
    (verb("think of", "pens", ing="thinking of"), "à"),
    (verb("write to", "", ing="writing to", forms="écris écrit écrivons écrivent"), "à"),
    (verb("dream of", "rêv"), "de"),
    (verb("look like", "", ing="-", forms="ressemble ressemble ressemblons ressemblent"), "à"),
]
BE_FR = ("suis", "est", "sommes", "sont")
BE_EN = ("am", "is", "are", "are")
WHERE = [
    ("in", "dans"),
    ("behind", "derrière"),
    ("in front of", "devant"),
    ("near", "près de"),
    ("next to", "à côté de"),
]
ON = [("on", "sur"), ("under", "sous"), ("behind", "derrière"), ("near", "près de")]
TIMES = [
    ("today", "aujourd'hui"),
    ("now", "maintenant"),
    ("every day", "tous les jours"),
    ("this morning", "ce matin"),
    ("again", "encore une fois"),
    ("with pleasure", "avec plaisir"),
]
PRONOUNS = [
    Phrase("I", "je", 0, pronoun=True),
    Phrase("he", "il", 1, pronoun=True),
    Phrase("she", "elle", 1, True, pronoun=True),
    Phrase("we", "nous", 2, pronoun=True),
    Phrase("they", "ils", 3, pronoun=True),
]
# English, then French masculine, masculine before a vowel, feminine, feminine before a vowel, plural.
DETERMINERS = {
    "the": ("le", "l'", "la", "l'", "les"),
    "a": ("un", "un", "une", "une", "des"),
    "this": ("ce", "cet", "cette", "cette", "ces"),
    "my": ("mon", "mon", "ma", "mon", "mes"),
    "our": ("notre", "notre", "notre", "notre", "nos"),
    "his": ("son", "son", "sa", "son", "ses"),
    "her": ("son", "son", "sa", "son", "ses"),
}


def elide(word: str, following: str) -> str:
    """de + ami → d'ami, ne + aime → n'aime; le and la become l', ce becomes cet through DETERMINERS."""
    return word[:-1] + "'" + following if following[0] in VOWELS else f"{word} {following}"


def noun_phrase(draw: random.Random, nouns: list[Noun], determiner: str = "") -> Phrase:
    thing = draw.choice(nouns)
    plural = draw.random() < 0.3
    fitting = SIZES_AND_AGES + YOUNG * (thing in BEINGS) + COLOURS * (thing not in PEOPLE)
    described = draw.choice(fitting) if draw.random() < 0.35 else None
    name = determiner or draw.choices(list(DETERMINERS), [8, 4, 2, 2, 1, 1, 1])[0]
    fr = thing.fr_plural if plural else thing.fr
    en = thing.en_plural if plural else thing.en
    if described:
        form = described.agree(thing.feminine, plural, fr[0] in VOWELS and described.before)
        fr = f"{form} {fr}" if described.before else f"{fr} {form}"
        en = f"{described.en} {en}"
    forms = DETERMINERS[name]
    article = forms[4] if plural else forms[2 * thing.feminine + (fr[0] in VOWELS)]
    if name == "a" and plural and described and described.before:
        article = "de"
    full = article + fr if article.endswith("'") else f"{article} {fr}"
    en_article = {
        "a": "some" if plural else "an" if en[0] in "aeiou" else "a",
        "this": "these" if plural else "this",
    }
    return Phrase(
        f"{en_article.get(name, name)} {en}",
        full,
        3 if plural else 1,
        thing.feminine,
        fr_bare=fr,
        definite=name == "the",
        indefinite=name == "a",
    )


def contract(preposition: str, phrase: Phrase) -> str:
    """à + le → au, de + les → des, près de + le → près du; d' before a vowel."""
    head, _, last = preposition.rpartition(" ")
    head = head + " " if head else ""
    for article, joined in (("le ", {"à": "au ", "de": "du "}), ("les ", {"à": "aux ", "de": "des "})):
        if phrase.definite and phrase.fr.startswith(article) and last in joined:
            return head + joined[last] + phrase.fr.removeprefix(article)
    if last == "de":
        if phrase.indefinite and phrase.plural:  # de + des, de + de
            return head + elide("de", phrase.fr_bare)
        return head + elide("de", phrase.fr)
    return f"{preposition} {phrase.fr}"


@dataclass(frozen=True)
class Clause:
    """en_subject en_aux (not) en_rest; fr_subject (ne) fr_verb (pas) fr_rest."""

    subject: Phrase
    aux: str
    en_verb: str
    en_rest: str
    fr_verb: str
    fr_rest: str
    fr_rest_negated: str

    def english(self, negated: bool) -> str:
        if negated:
            return join(self.subject.en, self.aux, "not", self.en_verb, self.en_rest)
        if self.aux in ("do", "does"):
            return join(self.subject.en, self.finite(), self.en_rest)
        return join(self.subject.en, self.aux, self.en_verb, self.en_rest)

    def finite(self) -> str:
        """The verb without "do": the third person's -s is kept in THIRD."""
        return THIRD[self.en_verb] if self.aux == "does" else self.en_verb

    def question(self) -> str:
        return join(self.aux, self.subject.en, self.en_verb, self.en_rest)

    def french(self, negated: bool) -> str:
        if negated:
            return join(self.subject.fr, elide("ne", self.fr_verb), "pas", self.fr_rest_negated)
        if self.subject.fr == "je":
            return join(elide("je", self.fr_verb), self.fr_rest)
        return join(self.subject.fr, self.fr_verb, self.fr_rest)


def join(*words: str) -> str:
    return " ".join(word for word in words if word)


ALL_VERBS = [*ACTIONS, *EATING, *HANDLING, *(v for v, _ in MOVING + SPEAKING + POSTURES)]
THIRD = {v.en: v.en_third for v in ALL_VERBS}


def subject(draw: random.Random) -> Phrase:
    return draw.choice(PRONOUNS) if draw.random() < 0.2 else noun_phrase(draw, BEINGS)


def verbal(draw: random.Random, who: Phrase, what: Verb) -> tuple[str, str]:
    """Auxiliary and main verb of the English present: simple or progressive, which French does not distinguish."""
    if what.en_ing and draw.random() < 0.5:
        return BE_EN[who.person], what.en_ing
    return ("does" if who.person == 1 else "do"), what.en


def posture(draw: random.Random) -> Clause:
    who, (what, participle) = subject(draw), draw.choice(POSTURES)
    aux, en = verbal(draw, who, what)
    en_where, fr_where = draw.choice(ON)
    where = noun_phrase(draw, SEATS, "the" if draw.random() < 0.6 else "")
    rest = join(participle.agree(who.feminine, who.plural), contract(fr_where, where))
    return Clause(who, aux, en, f"{en_where} {where.en}", BE_FR[who.person], rest, rest)


def action(draw: random.Random) -> Clause:
    who, what = subject(draw), draw.choice(ACTIONS)
    aux, en = verbal(draw, who, what)
    en_where, fr_where = draw.choice(WHERE)
    where = noun_phrase(draw, PLACES)
    has_place = draw.random() < 0.7
    en_rest, fr_rest = (f"{en_where} {where.en}", contract(fr_where, where)) if has_place else ("", "")
    return Clause(who, aux, en, en_rest, what.fr[who.person], fr_rest, fr_rest)


def transitive(draw: random.Random) -> Clause:
    who = subject(draw)
    what, objects = draw.choice([(EATING, FOODS), (HANDLING, FOODS + THINGS + THINGS), (MEETING, BEINGS)])
    doing, thing = draw.choice(what), noun_phrase(draw, objects)
    aux, en = verbal(draw, who, doing)
    negated = elide("de", thing.fr_bare) if thing.indefinite else thing.fr
    return Clause(who, aux, en, thing.en, doing.fr[who.person], thing.fr, negated)


def indirect(draw: random.Random) -> Clause:
    who = subject(draw)
    pairs, nouns = draw.choice([(MOVING, PLACES), (SPEAKING, BEINGS)])
    (what, preposition), whom = draw.choice(pairs), noun_phrase(draw, nouns)
    aux, en = verbal(draw, who, what)
    rest = contract(preposition, whom)
    return Clause(who, aux, en, whom.en, what.fr[who.person], rest, rest)


def state(draw: random.Random) -> Clause:
    who, how = subject(draw), draw.choice(STATES)
    rest = how.agree(who.feminine, who.plural)
    return Clause(who, BE_EN[who.person], how.en, "", BE_FR[who.person], rest, rest)


def location(draw: random.Random) -> Clause:
    who = noun_phrase(draw, BEINGS + THINGS) if draw.random() < 0.8 else draw.choice(PRONOUNS)
    prepositions, nouns = draw.choice([(ON, SEATS), (WHERE, PLACES)])
    (en, fr), where = draw.choice(prepositions), noun_phrase(draw, nouns)
    rest = contract(fr, where)
    return Clause(who, BE_EN[who.person], f"{en} {where.en}", "", BE_FR[who.person], rest, rest)


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


def sentence(draw: random.Random) -> tuple[str, str]:
    clause = draw.choice(CLAUSES)(draw)
    kind, negated = draw.random(), draw.random() < 0.2
    en_time, fr_time = draw.choice(TIMES[:5] if kind > 0.1 else TIMES[:3]) if draw.random() < 0.15 else ("", "")
    if kind < 0.1:
        return finish(join(clause.question(), en_time), join(que("est-ce que", clause), fr_time), "?")
    en, fr = join(clause.english(negated), en_time), join(clause.french(negated), fr_time)
    if kind < 0.16:
        return finish(f"I think that {en}", join("je pense", que("que", clause, negated), fr_time), ".")
    if kind < 0.26:
        other = draw.choice([action, state, transitive])(draw)
        en_and, fr_and = draw.choice([("and", "et"), ("but", "mais")])
        return finish(f"{en} {en_and} {other.english(False)}", f"{fr} {fr_and} {other.french(False)}", ".")
    return finish(en, fr, ".")


def que(word: str, clause: Clause, negated: bool = False) -> str:
    """que + il → qu'il."""
    return elide(word, clause.french(negated))


def finish(en: str, fr: str, mark: str) -> tuple[str, str]:
    """Capital and full stop; French sets a space before the question mark."""
    return en[0].upper() + en[1:] + mark, fr[0].upper() + fr[1:] + (" ?" if mark == "?" else mark)


def make(seed: int = 2017) -> dict[str, list[tuple[str, str]]]:
    """The parts. Pairs are gathered by their French, of which English has up to two forms, and stay together."""
    draw = random.Random(seed)
    groups: dict[str, list[str]] = {}
    english: dict[str, str] = {}
    while sum(map(len, groups.values())) < sum(SIZES.values()):
        en, fr = sentence(draw)
        if english.setdefault(en, fr) == fr and en not in groups.setdefault(fr, []):
            groups[fr].append(en)
    test = [("The cat sits on the mat.", KEPT_FOR_TEST), ("The cat is sitting on the mat.", KEPT_FOR_TEST)]
    parts = {"test": test, "valid": [], "train": []}
    groups.pop(KEPT_FOR_TEST, None)
    for fr, forms in sorted(groups.items(), key=lambda group: draw.random()):
        part = next((name for name in ("test", "valid") if len(parts[name]) < SIZES[name]), "train")
        parts[part].extend((en, fr) for en in forms)
    draw.shuffle(parts["train"])
    return parts


def main() -> None:
    for part, pairs in make().items():
        for language, lines in zip(("en", "fr"), zip(*pairs, strict=True), strict=True):
            path = Path(__file__).parent / f"{part}.{language}"
            path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
