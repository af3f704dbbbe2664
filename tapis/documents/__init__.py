"""Documents whose text is translated while everything else stays as it is: formats.py lists their formats."""
