"""Hosts as they stand in HOST:PORT and in URLs."""

from __future__ import annotations


def url_host(host: str) -> str:
    """An IPv6 address in brackets, anything else as it is.

    >>> url_host("fd00::2"), url_host("10.0.0.2"), url_host("node7"), url_host("[::1]")
    ('[fd00::2]', '10.0.0.2', 'node7', '[::1]')
    """
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
