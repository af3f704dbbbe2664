"""Raw text → clean sentence pairs, and the vocabulary that they give."""
