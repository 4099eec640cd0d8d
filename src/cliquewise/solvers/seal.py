"""A seal on checkpoints: whether this user's own runs wrote them, and nobody altered them since.

A check sum finds damage, but whoever alters a file can make it anew. Sums over outputs that were
met on the way, on which some dual bounds rest, cannot be found again either; so they are believed
only under a seal that needs a key which the user's own folder keeps. Without it a run goes on from
what its arrays prove themselves.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from functools import cache
from pathlib import Path
from typing import Any

from cliquewise.solvers.base import Arrays

_LENGTH = 32


def seal_of(arrays: Arrays, header: dict[str, Any]) -> str:
    """The seal of what a checkpoint holds."""
    total = hashlib.blake2b(json.dumps(header, sort_keys=True).encode(), key=_key(), digest_size=16)
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        total.update(array.tobytes() if array.size == 0 else array.data)
    return total.hexdigest()


def is_sealed(arrays: Arrays, header: dict[str, Any], seal: Any) -> bool:
    """Whether a seal is the one of these contents."""
    own = seal_of(arrays, header).encode()
    return isinstance(seal, str) and hmac.compare_digest(seal.encode(), own)


@cache
def _key() -> bytes:
    """The user's key, made when it is first needed; one of this process where none can be kept."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = folder / "cliquewise" / "key"
    try:
        if path.exists():
            return _whole(path.read_bytes())
        path.parent.mkdir(parents=True, exist_ok=True)
        own = path.with_name(f"key.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            with open(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(_LENGTH))
            os.link(own, path)  # whole or not at all, and never over another's
        except FileExistsError:
            pass
        finally:
            own.unlink(missing_ok=True)
        return _whole(path.read_bytes())
    except (OSError, RuntimeError):
        return secrets.token_bytes(_LENGTH)


def _whole(key: bytes) -> bytes:
    return key if len(key) == _LENGTH else secrets.token_bytes(_LENGTH)
