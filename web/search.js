// Search, as decoding/search.py has it, for one sentence: a step function → token ids.
//
// step(tokens, parents) takes the last token of each hypothesis, and the hypothesis of the step before that each
// continues. It returns a promise of the logits, vocabSize numbers for each hypothesis.

const LENGTH_PENALTY = 1.5;

// Never generated: PAD, UNK and BOS, which precede EOS, and the tags of languages, which follow it.
function suppress(logits, vocabSize, firstTextId) {
  for (let start = 0; start < logits.length; start += vocabSize) {
    logits.fill(-Infinity, start, start + EOS);
    logits.fill(-Infinity, start + EOS + 1, start + firstTextId);
  }
}

function lengthPenalty(length) {
  return ((5 + length) / 6) ** LENGTH_PENALTY;
}

// The most probable token at every position.
async function greedySearch(step, limit, vocabSize, firstTextId) {
  const ids = [];
  let token = BOS;
  while (ids.length < limit) {
    const logits = await step([token], [0]);
    suppress(logits, vocabSize, firstTextId);
    token = EOS;
    for (let id = EOS; id < vocabSize; id++) if (logits[id] > logits[token]) token = id;
    if (token === EOS) break;
    ids.push(token);
  }
  return ids;
}

// The n best continuations of the hypotheses, best first, each with its score, log P.
function bestContinuations(logits, n, scores, vocabSize) {
  const best = [];
  for (let parent = 0; parent < scores.length; parent++) {
    // log of the sum of the exponentials
    const row = logits.subarray(parent * vocabSize, (parent + 1) * vocabSize);
    let largest = -Infinity;
    let sum = 0;
    for (let id = 0; id < vocabSize; id++) largest = Math.max(largest, row[id]);
    for (let id = 0; id < vocabSize; id++) sum += Math.exp(row[id] - largest);
    const start = scores[parent] - largest - Math.log(sum);

    // Enter each token that is good enough at its place.
    for (let token = 0; token < vocabSize; token++) {
      const score = start + row[token];
      if (score === -Infinity || (best.length === n && score <= best[n - 1].score)) continue;
      let place = Math.min(best.length, n - 1);
      for (; place > 0 && best[place - 1].score < score; place--) best[place] = best[place - 1];
      best[place] = { score, parent, token };
    }
  }
  return best;
}

// The best of the hypotheses that end, each step keeping the `beam` best continuations.
async function beamSearch(step, limit, beam, vocabSize, firstTextId) {
  let hypotheses = [{ score: 0, ids: [], token: BOS, parent: 0 }];
  let result = { score: -Infinity, ids: [] };
  let nResults = 0;
  for (let length = 1; length <= limit; length++) {
    // Find the best continuations. 2K of them: up to K may end, and K must be left to continue.
    const logits = await step(
      hypotheses.map((one) => one.token),
      hypotheses.map((one) => one.parent),
    );
    suppress(logits, vocabSize, firstTextId);
    const scores = hypotheses.map((one) => one.score);
    const candidates = bestContinuations(logits, 2 * beam, scores, vocabSize);

    // Finish those that end, with EOS or at the limit.
    for (const { score, parent, token } of candidates.slice(0, beam)) {
      if (token !== EOS && length < limit) continue;
      nResults += 1;
      const penalized = score / lengthPenalty(length);
      const { ids } = hypotheses[parent];
      if (penalized > result.score) result = { score: penalized, ids: token === EOS ? ids : [...ids, token] };
    }

    // Continue with the others, unless none of them can still win.
    hypotheses = candidates
      .filter(({ token }) => token !== EOS)
      .slice(0, beam)
      .map(({ score, parent, token }) => ({ score, ids: [...hypotheses[parent].ids, token], token, parent }));
    if (!hypotheses.length) break;
    const [{ score }] = hypotheses;
    const canWin = score / lengthPenalty(limit) > result.score;
    const isBehind = nResults >= beam && score / lengthPenalty(length) <= result.score;
    if (!canWin || isBehind) break;
  }
  return result.ids;
}
