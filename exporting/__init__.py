"""A run as something else: a model of another program, a page, or a release. A module for each."""
