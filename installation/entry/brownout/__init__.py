"""Brownout as an installed package. The rooms are in `home/`, so that site-packages gets only this one name."""
