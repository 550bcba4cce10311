"""Histories that Brownout did not record: reads them into the tables of `history.schemas`, with values renumbered."""
