"""Generators of the pages that are made from the code: `python -m docs.generators.PAGE`. Tests compare the pages."""
