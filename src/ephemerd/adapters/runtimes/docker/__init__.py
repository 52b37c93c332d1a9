"""One container for each runner, on Docker Engine or Podman's compatible socket.

A container is meant by its engine and its full id, never by a name alone. What is not proven by labels to be
of our store is never touched. Nothing is ended but by `destroy` with a permit. Knows no other runtime.
"""

from ephemerd.adapters.runtimes.docker.options import DockerOptions, EngineOptions
from ephemerd.adapters.runtimes.docker.runtime import DockerRuntime

__all__ = ["DockerOptions", "DockerRuntime", "EngineOptions"]
