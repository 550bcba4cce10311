"""Brownout as an installed package. The rooms lie in `home/`, so that only this one name is taken in site-packages."""
