// Linear layers in 8 bits: what model.js spends nearly all of its time on.
//
// It replaces the plain line  y[r, c] = (Σᵢ x[r, i] · w[c, i]) · xScale[r] · wScale[c] + bias[c],  in which x and w are
// integers from −127 to 127, with the same sums: integer sums are exact.
//
// JavaScript multiplies double numbers fastest, and a double holds integers of 53 bits. Two weights therefore share one:
//
//     packed[i] = w[c, i] + w[c + 1, i] · 2²⁷        Σ x · packed = Σ x w[c] + 2²⁷ · Σ x w[c + 1]
//
// Both sums have at most 26 bits if a row has at most 4,160 numbers (4,160 · 127² < 2²⁶). Rounding separates them.

const SHIFT = 2 ** 27;
const MOST_INPUTS = 4160;
const COLUMNS_AT_ONCE = 8; // four sums of two columns each

// Adding and subtracting 1.5 · 2⁵² rounds to the nearest integer, ties to even, as C does.
const ROUNDER = 1.5 * 2 ** 52;

// Rows of d numbers in 8 bits: integers, as doubles, and the scale of each row, its largest magnitude over 127.
function quantize(x, d) {
  const n = x.length / d;
  const integers = new Float64Array(x.length);
  const scales = new Float64Array(n);
  for (let r = 0; r < n; r++) {
    let largest = 1e-30;
    for (let i = r * d; i < (r + 1) * d; i++) largest = Math.max(largest, Math.abs(x[i]));
    const inverse = Math.fround(127 / largest);
    for (let i = r * d; i < (r + 1) * d; i++) integers[i] = Math.fround(x[i] * inverse) + ROUNDER - ROUNDER;
    scales[r] = Math.fround(largest / 127);
  }
  return { integers, scales, n, d };
}

// A linear layer from an int8 weight (nOut, nIn), the scale of each of its rows, and a bias or none.
class Linear {
  constructor(weight, scale, bias, nIn) {
    if (nIn > MOST_INPUTS) throw new Error(`a layer of ${nIn} inputs is too wide for this page`);
    this.nIn = nIn;
    this.nOut = scale.length;
    this.scale = scale;
    this.bias = bias || new Float32Array(this.nOut);

    // Pack row 2c and row 2c + 1 into one, with rows of zeros at the end.
    const nPadded = Math.ceil(this.nOut / COLUMNS_AT_ONCE) * COLUMNS_AT_ONCE;
    this.packed = new Float64Array((nPadded / 2) * nIn);
    for (let c = 0; c < this.nOut; c++) {
      const start = (c >> 1) * nIn;
      const factor = c % 2 ? SHIFT : 1;
      for (let i = 0; i < nIn; i++) this.packed[start + i] += weight[c * nIn + i] * factor;
    }
  }

  // Rows that `quantize` returned → (n, nOut).
  forward(x) {
    const { packed, nIn, nOut, scale, bias } = this;
    const { integers, scales, n } = x;
    const y = new Float32Array(n * nOut);
    const sums = new Float64Array(COLUMNS_AT_ONCE / 2);
    for (let c = 0; c < nOut; c += COLUMNS_AT_ONCE) {
      const w0 = (c / 2) * nIn;
      const w1 = w0 + nIn;
      const w2 = w1 + nIn;
      const w3 = w2 + nIn;
      const nColumns = Math.min(COLUMNS_AT_ONCE, nOut - c);
      for (let r = 0; r < n; r++) {
        // the sums of eight columns
        const start = r * nIn;
        let sum0 = 0;
        let sum1 = 0;
        let sum2 = 0;
        let sum3 = 0;
        for (let i = 0; i < nIn; i++) {
          const number = integers[start + i];
          sum0 += number * packed[w0 + i];
          sum1 += number * packed[w1 + i];
          sum2 += number * packed[w2 + i];
          sum3 += number * packed[w3 + i];
        }
        sums[0] = sum0;
        sums[1] = sum1;
        sums[2] = sum2;
        sums[3] = sum3;

        // separated, scaled, and with their biases
        for (let j = 0; j < nColumns; j++) {
          const sum = sums[j >> 1];
          const odd = Math.round(sum / SHIFT);
          const product = j % 2 ? odd : sum - odd * SHIFT;
          y[r * nOut + c + j] = product * scales[r] * scale[c + j] + bias[c + j];
        }
      }
    }
    return y;
  }
}
