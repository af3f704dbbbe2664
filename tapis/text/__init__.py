"""Text as people type it → sentences and tokens, and back."""
