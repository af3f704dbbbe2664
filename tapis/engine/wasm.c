/* The engine as a WebAssembly module, for the page of `export.py --to web`: engine.c, and what a caller in JavaScript
   needs besides. tapis/web/engine.js calls it; build_wasm.py compiles it. The module imports nothing. */

#include "engine.c"

static const float *position_table;

static const float *first_positions(long n) {
    (void)n; /* the table has as many as the search may ask for */
    return position_table;
}

/* Lets a search read the encodings of positions from a table, since JavaScript has no function pointers to give. It
   must have as many rows as the longest source, and twice as many as the longest translation may get. */
void use_positions(struct search *search, const float *table) {
    position_table = table;
    search->positions = first_positions;
}
