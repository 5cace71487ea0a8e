"""Finds ports for programs under test that cannot choose one themselves."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """Returns a port on which nothing listens. Prefer port 0, where a program can report what it has got.

    The port is below those that Linux gives to outgoing connections and to port 0, so that another test does
    not get it in the meantime by chance.
    """
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
            return port
