"""What the model knows and this version cannot do yet: refused in words, never silently ignored."""

from __future__ import annotations

from ephemerd.config.findings import Code, Finding
from ephemerd.config.layers import Layers
from ephemerd.config.model import ForgeSettings, Settings
from ephemerd.config.tomlfile import KeyPath


def not_yet(settings: Settings, layers: Layers) -> list[Finding]:
    """Return a finding for each setting that asks for something a later version brings."""
    found: list[Finding] = []

    def refuse(key: KeyPath, what: str, todo: str) -> None:
        found.append(Finding(Code.CONFIGURATION, layers.where(key), f"{what} comes later", todo))

    for name, forge in settings.forge.items():
        for key, what, todo in _forge(forge):
            refuse(("forge", name, key), what, todo)
    return found


def _forge(forge: ForgeSettings) -> list[tuple[str, str, str]]:
    found = []
    if forge.discovery == "scale-set":
        found.append(
            ("discovery", f'discovery "{forge.discovery}"', 'write "webhook" and set webhook_secret_file')
        )
    return found
