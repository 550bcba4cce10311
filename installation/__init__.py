"""Brownout on this machine: how it is packaged, installed and started, where its files are, and how to call it.

`build_hook.py` and `entry/` make the wheel; `system-packages` installs Debian packages. Other rooms use the modules;
these import no other room."""
