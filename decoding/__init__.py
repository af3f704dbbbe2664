"""Token ids → translations: search, the translator, attention maps, scoring, and other engines."""
