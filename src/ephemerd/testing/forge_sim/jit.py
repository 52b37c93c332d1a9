"""The just-in-time configuration blob, shaped as GitHub's is (github.md, section 12)."""

from __future__ import annotations

import base64
import json
import random

from ephemerd.testing.forge_sim.model import Runner


def encode(runner: Runner, base_url: str, work_folder: str, rng: random.Random) -> str:
    """Return the blob for ``runner``: base64 of a JSON object of file name to base64 file content.

    All values of ``.runner`` are strings and ``AgentId`` equals the REST id of the runner [field]. The key in
    ``.credentials_rsaparams`` is noise of the right size, not a key.
    """
    settings = {
        "AgentId": str(runner.id),
        "AgentName": runner.name,
        "PoolId": str(runner.group_id),
        "PoolName": "Default",
        "Ephemeral": "True",
        "ServerUrl": f"{base_url}/_pipelines/",
        "ServerUrlV2": f"{base_url}/_broker/",
        "GitHubUrl": f"{base_url}/{runner.scope.full_name}",
        "WorkFolder": work_folder,
        "UseV2Flow": "true",
    }
    credentials = {
        "scheme": "OAuth",
        "data": {"clientId": runner.secret, "authorizationUrl": f"{base_url}/_broker/token"},
    }
    noise = {
        part: base64.b64encode(rng.randbytes(size)).decode()
        for part, size in (
            ("d", 256), ("dp", 128), ("dq", 128), ("inverseQ", 128), ("modulus", 256), ("p", 128), ("q", 128),
        )
    }  # fmt: skip
    files = {
        ".runner": settings,
        ".credentials": credentials,
        ".credentials_rsaparams": {**noise, "exponent": "AQAB"},
    }
    packed = {
        name: base64.b64encode(json.dumps(content).encode()).decode() for name, content in files.items()
    }
    return base64.b64encode(json.dumps(packed).encode()).decode()
