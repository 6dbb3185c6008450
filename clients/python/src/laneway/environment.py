"""Where the server is and which token to use, from the same environment variables that the command line reads."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_URL = "http://127.0.0.1:7717"


def server_url(url: str | None) -> str:
    """The given URL, LANEWAY_URL, or the server of this machine."""
    return (url or os.environ.get("LANEWAY_URL") or DEFAULT_URL).rstrip("/")


def server_token() -> str | None:
    """The token in the file that LANEWAY_TOKEN_FILE names, or LANEWAY_TOKEN. The file may change while the program runs."""
    path = os.environ.get("LANEWAY_TOKEN_FILE")
    if path:
        return Path(path).read_text().strip() or None
    return os.environ.get("LANEWAY_TOKEN") or None
