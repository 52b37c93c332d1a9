"""The local end of a tunnel: it is ready once somebody listens on it, not once it is there."""

from __future__ import annotations

import socket
from pathlib import Path

from ephemerd.adapters.runtimes.docker.tunnel import _accepts


def test_a_socket_accepts_only_once_somebody_listens_on_it(tmp_path: Path):
    path = tmp_path / "s"
    assert not _accepts(path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert path.is_socket()
        assert not _accepts(path)
        server.listen(0)
        assert _accepts(path)
        assert _accepts(path)  # where many wait, too
        assert _accepts(path)
    assert not _accepts(path)
