// Sentences → sentences: the model with its tokenizer and its search, as tapis/translator.py.

const BEAM = 5;
const LIMIT_SPREADS = 3; // as in tapis/lengths.py
const LARGEST = 20;
const EXTRA_LENGTH = 10;
const PAPERS_EXTRA_LENGTH = 50;
const ALWAYS_WHOLE = 20; // as in tapis/config.py
const END = "⟨end⟩"; // EOS, in pictures

class Translator {
  // description: what exporting/web_page.py wrote. code: the bytes of the engine's module. The engine lacks its weights.
  constructor(description, code) {
    this.config = description.config;
    this.tags = description.tags;
    this.directions = description.directions;
    this.repairs = description.repairs;
    this.tokenizer = new Tokenizer(description.tokens, description.merges, description.first_text_id);
    const { firstTextId } = this.tokenizer;
    this.engine = new Engine(code, this.config, description.weights, firstTextId);
    this.known = null; // the characters, once `notices` needs them
    this.knownWords = null; // of the targets, once `translateUnit` needs them
  }

  // The ids of a sentence, after the tag of the target language if the model has several.
  sourceIds(sentence, target) {
    const tag = target in this.tags ? [this.tags[target]] : [];
    return [...tag, ...this.tokenizer.encode(sentence)];
  }

  // How many tokens the translation of a source may have.
  limit(sourceLength) {
    const ratio = Math.min(this.config.length_ratio, LARGEST), spread = Math.min(this.config.length_spread, LARGEST);
    if (!ratio) return sourceLength + PAPERS_EXTRA_LENGTH;
    return Math.ceil(ratio * sourceLength + LIMIT_SPREADS * spread * Math.sqrt(sourceLength)) + EXTRA_LENGTH;
  }

  // A sentence → its best translations, best first: the text, the ids of both, the score, and log P of the translation
  // and its end, or null. With a beam of 1, the search is greedy.
  nBest(sentence, target, search) {
    const source = this.sourceIds(sentence, target);
    const found = this.engine.translate(source, this.limit(source.length), search);
    return found.map((one) => ({ ...one, text: normalizeSpaces(this.tokenizer.decode(one.ids)), source }));
  }

  // A unit of a line → its best translations with their doubts, as tapis/typed_text.py. The model sees the unit in usual
  // letter case. If the best translation repeats itself, it is searched for again.
  translateUnit(unit, source, target, search) {
    const sentence = usualCase(unit, this.tokenizer, source);
    let found = this.nBest(sentence, target, search);
    const isGood = ({ text }) => !loops(sentence, text);
    const hasLooped = !isGood(found[0]);
    if (hasLooped) {
      const others = this.nBest(sentence, target, { beam: BEAM, nBest: BEAM });
      const candidates = [...found, ...others];
      const cut = candidates.map((one) => ({ ...one, text: withoutLoops(one.text) }));
      found = distinct([...candidates.filter(isGood), ...cut]).slice(0, found.length);
    }

    // Judge them. A text that was cut, or that is encoded otherwise, has another log P than the search has found.
    found = distinct(hasLooped ? found : found.filter(isGood));
    this.knownWords ??= knownWords(this.config);
    return found.map((one) => {
      const ids = this.tokenizer.encode(one.text);
      const isAsFound = one.logP !== null && ids.join() === one.ids.join();
      const logP = isAsFound ? one.logP : this.engine.logP(one.source, ids);
      const doubts = doubtsAbout(sentence, one.text, {
        nSource: one.source.length,
        nTarget: ids.length,
        meanLogP: logP / (ids.length + 1),
        config: this.config,
        known: this.knownWords,
      });
      const all = hasLooped && !doubts.includes("loop") ? ["loop", ...doubts] : doubts;
      const text = isInCapitals(unit) ? one.text.toLocaleUpperCase(localeOfCase(target)) : one.text;
      return { ...one, ids, text, doubts: all };
    });
  }

  // A line of text as the units that are translated one by one, and what was taken out of it before.
  splitLine(text, source, withNumbers = false) {
    const { max_length: most, usual_length: usual } = this.config; // a model is good at lengths that it has seen
    const longest = usual ? Math.min(most, Math.max(ALWAYS_WHOLE, Math.trunc(usual))) : most;
    // A token has at least one byte, and a character at most three: short pieces need not be encoded.
    const nTokens = (piece) => this.tokenizer.encode(usualCase(piece, this.tokenizer, source)).length;
    const fits = (piece) => 3 * piece.length <= longest || nTokens(piece) <= longest;
    const direction = takeDirection(text);
    const taken = takeOut(direction.text, withNumbers);
    return { direction, taken, ...splitLine(this.repairs ? repaired(taken.text) : taken.text, source, fits) };
  }

  // A line from the translations of its units, of which null stands for the unit itself: joined, with its marks.
  joinLine({ direction, ...line }, translations, target) {
    return direction.before + this.joinText(line, translations, target) + direction.after;
  }

  joinText({ taken, marker, units }, translations, target) {
    const text = joinLine(marker, translations.map((one, i) => one?.text ?? units[i]), target);
    if (!taken.marks.length) return text;

    // Align the words of the units. Where words were cut, or have no spaces between them, their places must do.
    const blocks = translations.flatMap((one, i) =>
      one ? wordAlignment(this.attention(one.source, one.ids)) : sameWords(splitAtSpaces(units[i]).length),
    );
    const ofMarker = sameWords(splitAtSpaces(marker).length - isGlued(marker));
    const alignment = new Alignment([...ofMarker, ...blocks]);
    const [nTarget, nSource] = [splitAtSpaces(text).length, taken.words.length];
    const isWhole = alignment.nTarget === nTarget && alignment.nSource === nSource;
    return putBack(text, taken, isWhole ? alignment : new SamePlaces(nTarget, nSource));
  }

  // What a reader of the translations of these units should know.
  notices(units) {
    this.known ??= knownCharacters(this.tokenizer);
    return noticesAbout(units.filter(hasLetters), this.known); // the others are copied
  }

  // What each token of a translation attended to.
  attention(source, ids) {
    const rows = this.engine.attention(source, ids);
    return { source: [...this.tokenizer.pieces(source), END], target: [...this.tokenizer.pieces(ids), END], rows };
  }
}

// The translations of different texts.
function distinct(translations) {
  return translations.filter(({ text }, i) => translations.findIndex((one) => one.text === text) === i);
}
