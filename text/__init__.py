"""Raw text → clean sentence pairs → token ids."""
