"""The demo's containers: an engine that is there or one of its own, an image of this machine's files, what is left."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ephemerd.testing.demo.options import DemoError
from ephemerd.testing.engines.api import EngineApi, EngineError
from ephemerd.testing.engines.image import HOME, python_image
from ephemerd.testing.engines.own import OwnEngine, why_not

DEFAULT = "unix:///var/run/docker.sock"
OWN = "own"


class Containers:
    """What the demo needs of an engine. Calls block.

    wanted   an engine's address, or "own" for one of our own; None: the one of ``$DOCKER_HOST`` or the usual
             socket, or else one of our own
    """

    def __init__(self, wanted: str | None) -> None:
        self._wanted = wanted
        self.own: OwnEngine | None = None
        self._api = EngineApi(DEFAULT)
        self.image = ""

    @property
    def words(self) -> str:
        """Which engine it is, for people."""
        return "an engine of its own" if self.own is not None else f"the engine at {self.url}"

    def open(self) -> None:
        """Find or start the engine, and make the image."""
        try:
            self._find()
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            self.image = f"ephemerd-demo:{version}-{os.getpid()}"
            self._api.import_image(self.image, python_image(), "USER runner", f"WORKDIR /{HOME}")
        except (EngineError, OSError) as error:
            self.close([])
            raise DemoError(f"no containers: {error}", "start Docker, or use --runtime process", 5) from error

    @property
    def url(self) -> str:
        """The engine's address."""
        return self._api.url

    def tables(self, *pools: str) -> dict[str, dict[str, Any]]:
        """What the daemon's configuration needs beside the rest, for these pools. The look-alike listens on this
        machine's loopback, so the runners share its network: how they are isolated otherwise is shown elsewhere."""
        tables: dict[str, dict[str, Any]] = {"hosts.local": {"engine": self.url}}
        for pool in pools:
            tables[f"pools.{pool}"] = {"runtime": "docker"}
            tables[f"pools.{pool}.container"] = {
                "image": self.image,
                "pull": "never",
                "application": "mount",
                "network": "host",
            }
        return tables

    def left(self, runners: Iterable[str]) -> list[str]:
        """Containers, networks and volumes of these runners that are still there, in words."""
        names = set(runners)
        return [
            f"{kind.removesuffix('s')} {entry['Labels']['ephemerd.runner']}"
            for kind in ("containers", "networks", "volumes")
            for entry in self._api.labelled(kind, "ephemerd.runner")
            if entry["Labels"]["ephemerd.runner"] in names
        ]

    def close(self, runners: Iterable[str]) -> None:
        """Remove what is left of these runners, the image, and the engine if it is ours."""
        names = set(runners)
        try:
            if self._api.answers():
                for entry in self._api.labelled("containers", "ephemerd.runner"):
                    if entry["Labels"]["ephemerd.runner"] in names:
                        self._api.call("DELETE", f"/containers/{entry['Id']}?force=1&v=1", fine=(404, 409))
                if self.image:
                    self._api.call("DELETE", f"/images/{self.image}", fine=(404, 409))
        except EngineError:
            pass  # what cannot be removed was counted already
        finally:
            if self.own is not None:
                self.own.stop()
                self.own = None

    def _find(self) -> None:
        others = () if self._wanted == OWN else (self._wanted, os.environ.get("DOCKER_HOST"), DEFAULT)
        for url in others:
            if url is None or not url.startswith("unix://"):
                continue
            self._api = EngineApi(url)
            if self._api.answers():
                return
            if url == self._wanted:
                raise EngineError(f"no engine answers at {url}")
        reason = why_not()
        if not reason and Path("/sys/class/net/docker0").exists():
            reason = "another engine seems to be at work here"
        if reason:
            raise EngineError(
                f"no engine answers at {DEFAULT}, and none of our own can be started ({reason})"
            )
        # No bridge and no rules: in this machine's own network nothing may be left behind.
        own = OwnEngine(
            extra=("--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false")
        )
        self.own = own
        own.start()
        self._api = own.api


def why_no_own_engine() -> str:
    """Why none of our own can be started beside what is here, in words; empty where one can."""
    reason = why_not()
    if not reason and Path("/sys/class/net/docker0").exists():
        reason = "another engine seems to be at work here, and two in one network undo each other's bridges"
    return reason
