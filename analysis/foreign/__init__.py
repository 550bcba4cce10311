"""Judges histories that Brownout did not record (`history.foreign`)."""
