"""The runner applications that the look-alike offers: archives of the fake runner, version after version.

Source: github.md, sections 3.4 and 15: what is listed is the version that is expected; an older one is refused from
some day on.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ephemerd.testing.fake_runner.folder import write_folder
from ephemerd.testing.forge_sim.payloads import RUNNER_VERSION

PLATFORMS = (
    ("linux", "x64"),
    ("linux", "arm64"),
    ("linux", "arm"),
    ("osx", "x64"),
    ("osx", "arm64"),
    ("win", "x64"),
    ("win", "arm64"),
)
TOKEN = "t3mporary-download-token"  # noqa: S105 - one of the look-alike's own
_VERSION = re.compile(r"\d+\.\d+\.\d+", re.ASCII)


class Unusable(ValueError):
    """A change that makes no sense."""


@dataclass(slots=True)
class Applications:
    """What is listed, what is refused, and how archives are served.

    checksum      of what is listed: right, wrong, or none
    cut           archives lose their second half
    status        answered instead of an archive; 0: none
    seconds       that an archive takes
    token         an archive is given only to whoever shows the token that the listing has
    systems       for which something is listed
    deprecations  whether the question until when a version is good is known
    served        archives that were sent
    """

    listed: str = RUNNER_VERSION
    refused_below: str = ""
    checksum: str = "right"
    cut: bool = False
    status: int = 0
    seconds: float = 0.0
    token: bool = False
    systems: tuple[str, ...] = ("linux", "osx", "win")
    deprecations: bool = False
    served: int = 0
    _archives: dict[tuple[str, bool], bytes] = field(default_factory=dict)

    def change(self, wanted: dict[str, Any]) -> None:
        """Take over what is named; raises `Unusable`."""
        for name in ("publish", "refuse_below"):
            version = wanted.get(name)
            if version and not (isinstance(version, str) and _VERSION.fullmatch(version)):
                raise Unusable(f"{name}: a version such as 2.336.0 is needed")
        if wanted.get("checksum", self.checksum) not in ("right", "wrong", "none"):
            raise Unusable("checksum: right, wrong or none")
        self.listed = str(wanted.get("publish") or self.listed)
        self.refused_below = str(wanted.get("refuse_below", self.refused_below))
        self.checksum = str(wanted.get("checksum", self.checksum))
        self.cut, self.token = bool(wanted.get("cut", self.cut)), bool(wanted.get("token", self.token))
        self.status, self.seconds = (
            int(wanted.get("status", self.status)),
            float(wanted.get("seconds", self.seconds)),
        )
        self.systems = tuple(wanted.get("systems", self.systems))
        self.deprecations = bool(wanted.get("deprecations", self.deprecations))

    def refuses(self, version: str) -> bool:
        """Whether a runner of that version gets no messages any more."""
        return bool(self.refused_below) and _number(version) < _number(self.refused_below)

    def archive(self, version: str, system: str) -> bytes:
        """The archive of a version, made when it is first wanted."""
        zipped = system == "win"
        if (version, zipped) not in self._archives:
            self._archives[version, zipped] = _packed(version, zipped=zipped)
        return self._archives[version, zipped]

    def shown_checksum(self, version: str, system: str) -> str:
        """The checksum that is listed."""
        true = hashlib.sha256(self.archive(version, system)).hexdigest()
        return {"right": true, "wrong": true[::-1], "none": ""}[self.checksum]


def file_name(system: str, architecture: str, version: str) -> str:
    """The name of an archive, as GitHub's are."""
    return f"actions-runner-{system}-{architecture}-{version}.{'zip' if system == 'win' else 'tar.gz'}"


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")) if _VERSION.fullmatch(version) else (0,)


def _packed(version: str, *, zipped: bool) -> bytes:
    """Pack the fake runner with paths as the real archives have them, from `./` on."""
    made = io.BytesIO()
    with tempfile.TemporaryDirectory(prefix="runner-") as name:
        folder = write_folder(Path(name) / "runner", version=version)
        if zipped:
            with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
                for path in sorted(folder.rglob("*")):
                    archive.write(path, path.relative_to(folder))
        else:
            with tarfile.open(fileobj=made, mode="w:gz") as tar:
                tar.add(folder, ".")
    return made.getvalue()
