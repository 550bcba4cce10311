"""Colours of faults and epochs, for plots and pages. A fault's group decides the hue, its mark the lightness, so that
each kind has a colour of its own."""

from __future__ import annotations

import colorsys
import zlib
from typing import Final

from history.fault_looks import FaultGroup, FaultMark

INK: Final = "#1f2933"
EPOCH_COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#882255")
_HUES: Final = {
    FaultGroup.PROCESS: 0.06,
    FaultGroup.POWER: 0.90,
    FaultGroup.MACHINE: 0.13,
    FaultGroup.CLOCK: 0.44,
    FaultGroup.PARTITION: 0.56,
    FaultGroup.PACKETS: 0.50,
    FaultGroup.DISK: 0.82,
    FaultGroup.OBJECTS: 0.70,
    FaultGroup.STORE: 0.64,
}
_LIGHTNESS: Final = dict(zip(FaultMark, (0.38, 0.24, 0.44, 0.31, 0.28, 0.35, 0.41), strict=True))
_SATURATION: Final = 0.85


def fault_color_of(kind: str, group: str, mark: str) -> str:
    """The colour of a kind of fault as `#rrggbb`; for a kind without a known look, one computed from its name."""
    known = next((hue for each, hue in _HUES.items() if each == group), None)
    spread = zlib.crc32(kind.encode(errors="replace"))
    hue = (spread % 997) / 997 if known is None else known
    shade = next((light for each, light in _LIGHTNESS.items() if each == mark), 0.26 + spread % 13 / 65)
    red, green, blue = colorsys.hls_to_rgb(hue, shade, _SATURATION if known is not None else 0.55)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def ink_on(background: str) -> str:
    """The text colour, dark or white, with the higher contrast on a background `#rrggbb`."""
    channels = [int(background[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    luminance = sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "#ffffff" if luminance < 0.2 else INK
