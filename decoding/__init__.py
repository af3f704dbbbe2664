"""Token ids → translations, with PyTorch: search, the translator, attention maps, and scoring."""
