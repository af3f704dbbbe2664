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

// log of the sum of the exponentials of logits.
function logSumExp(logits) {
  let largest = -Infinity;
  let sum = 0;
  for (let id = 0; id < logits.length; id++) largest = Math.max(largest, logits[id]);
  for (let id = 0; id < logits.length; id++) sum += Math.exp(logits[id] - largest);
  return largest + Math.log(sum);
}

// The most probable token at every position: the ids, and log P of them and the end.
async function greedySearch(step, limit, vocabSize, firstTextId) {
  const ids = [];
  let logP = 0;
  let token = BOS;
  while (ids.length < limit) {
    const logits = await step([token], [0]);
    suppress(logits, vocabSize, firstTextId);
    token = EOS;
    for (let id = EOS; id < vocabSize; id++) if (logits[id] > logits[token]) token = id;
    logP += logits[token] - logSumExp(logits);
    if (token === EOS) break;
    ids.push(token);
  }
  return { ids, logP };
}

// The n best continuations of the hypotheses, best first, each with its score, log P.
function bestContinuations(logits, n, scores, vocabSize) {
  const best = [];
  for (let parent = 0; parent < scores.length; parent++) {
    const row = logits.subarray(parent * vocabSize, (parent + 1) * vocabSize);
    const start = scores[parent] - logSumExp(row);

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

// The nBest best hypotheses that end, best first, each step keeping the `beam` best continuations. Of each: the ids,
// log P of them and the end, and the score, which is log P over the length penalty.
async function beamSearch(step, limit, beam, nBest, vocabSize, firstTextId) {
  let hypotheses = [{ score: 0, ids: [], token: BOS, parent: 0 }];
  const results = [];
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
      const { ids } = hypotheses[parent];
      const endedIds = token === EOS ? ids : [...ids, token];
      results.push({ ids: endedIds, logP: score, score: score / lengthPenalty(length) });
    }
    results.sort((a, b) => b.score - a.score);
    results.splice(nBest);

    // Continue with the others, unless none of them can still be among the best.
    hypotheses = candidates
      .filter(({ token }) => token !== EOS)
      .slice(0, beam)
      .map(({ score, parent, token }) => ({ score, ids: [...hypotheses[parent].ids, token], token, parent }));
    if (!hypotheses.length) break;
    const [{ score }] = hypotheses;
    const scoreToBeat = results.length < nBest ? -Infinity : results[nBest - 1].score;
    const canWin = score / lengthPenalty(limit) > scoreToBeat;
    const isBehind = nResults >= beam && score / lengthPenalty(length) <= scoreToBeat;
    if (!canWin || isBehind) break;
  }
  return results;
}
