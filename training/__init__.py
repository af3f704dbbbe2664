"""One run in memory: its step, validation, state, objective, optimizers, time budget and reports."""
