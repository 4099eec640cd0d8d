"""Attribute strings to feature numbers, without a Python object per attribute.

Strings arrive joined into one buffer of bytes: attributes end with ``UNIT``, tokens with
``RECORD``. A string is known by a 64-bit hash; the hash table keeps hash and number
side by side, so that a look-up touches one cache line.
"""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import kernel

UNIT = 31  # ASCII unit separator
RECORD = 30  # ASCII record separator

_START = np.uint64(14695981039346656037)  # FNV-1a
_PRIME = np.uint64(1099511628211)
_MIX = np.uint64(0xFF51AFD7ED558CCD)  # the last step of MurmurHash3, to spread the bits
_ONE = np.uint64(1)
_COLON = np.uint64(58)
_SHIFT = np.uint64(33)


@kernel(inline=True)
def _finish(h):
    h = (h ^ (h >> _SHIFT)) * _MIX
    return h ^ (h >> _SHIFT)


@kernel
def build_table(buffer, n_strings, table):
    """Fill ``table`` (power of two, 2) with (hash, number + 1); count the strings that were kept.

    A string whose hash is already there is not kept: the count tells.
    """
    mask = np.uint64(table.shape[0] - 1)
    at = 0
    kept = 0
    for number in range(n_strings):
        h = _START
        while buffer[at] != UNIT:
            h = (h ^ np.uint64(buffer[at])) * _PRIME
            at += 1
        at += 1
        h = _finish(h)
        slot = h & mask
        while table[slot, 1] != 0 and table[slot, 0] != h:
            slot = (slot + _ONE) & mask
        if table[slot, 1] == 0:
            table[slot, 0] = h
            table[slot, 1] = np.uint64(number + 1)
            kept += 1
    return kept


@kernel(helper=True)
def _find(hashes, table, n_hash, ids):
    """Numbers of hashes; an id below zero stays."""
    mask = np.uint64(table.shape[0] - 1)
    for k in range(len(ids)):
        h = hashes[k]
        if ids[k] < 0:
            continue
        if n_hash > 0:
            ids[k] = h % np.uint64(n_hash)
            continue
        slot = h & mask
        while table[slot, 1] != 0 and table[slot, 0] != h:
            slot = (slot + _ONE) & mask
        ids[k] = np.int64(table[slot, 1]) - 1


@kernel
def look_up(buffer, lengths, table, n_hash, ids):
    """Write the number of each attribute (-1: unknown); False if a string holds a separator.

    With ``n_hash > 0`` the number is the hash modulo ``n_hash`` and the table is not read.
    All hashes come first: the loads of the second loop then wait for memory side by side.
    """
    hashes = np.empty(len(ids), dtype=np.uint64)
    at = 0
    out = 0
    for token in range(len(lengths)):
        length = lengths[token]
        for j in range(length):
            h = _START
            c = buffer[at]
            while c != UNIT and c != RECORD:
                h = (h ^ np.uint64(c)) * _PRIME
                at += 1
                c = buffer[at]
            if (c == RECORD) != (j == length - 1):
                return False
            at += 1
            hashes[out] = _finish(h)
            ids[out] = 0
            out += 1
        if length == 0:
            if buffer[at] != RECORD:
                return False
            at += 1
    _find(hashes, table, n_hash, ids)
    return at == len(buffer)


@kernel
def look_up_pairs(keys, values, table, n_hash, ids):
    """`look_up` of ``key:value``, from the keys and the values, which end with ``UNIT`` each.

    A value that is the byte 2 is the number 1, the attribute ``key`` itself; byte 3 is 0, none.
    """
    hashes = np.empty(len(ids), dtype=np.uint64)
    at, start = 0, 0
    for k in range(len(ids)):
        h = _START
        while keys[at] != UNIT:
            h = (h ^ np.uint64(keys[at])) * _PRIME
            at += 1
        at += 1
        ids[k] = 0
        if (values[start] == 2 or values[start] == 3) and values[start + 1] == UNIT:
            ids[k] = 1 if values[start] == 2 else -1
            start += 1
        if ids[k] == 0:
            h = (h ^ _COLON) * _PRIME
            while values[start] != UNIT:
                h = (h ^ np.uint64(values[start])) * _PRIME
                start += 1
        start += 1
        hashes[k] = _finish(h)
    _find(hashes, table, n_hash, ids)


@kernel
def compact(ids, lengths, values, indptr, indices, sums, slots):
    """Drop unknown ids and add up repeated ones, token by token.

    ``slots`` (power of two above twice the longest token, 3) is a hash set of (id, token + 1,
    place in ``indices``) that is never cleared: an old token number marks a free slot.
    Without ``values`` (length 0) every value is one and ``sums`` may have length 0, in which
    case a repeated id makes the function stop and return -1.
    """
    mask = slots.shape[0] - 1
    has_values = len(values) > 0
    at = 0
    out = 0
    indptr[0] = 0
    for token in range(len(lengths)):
        for _ in range(lengths[token]):
            id_ = ids[at]
            if id_ >= 0:
                slot = (id_ * 40503) & mask
                while slots[slot, 1] == token + 1 and slots[slot, 0] != id_:
                    slot = (slot + 1) & mask
                if slots[slot, 1] == token + 1:
                    if len(sums) == 0:
                        return -1
                    sums[slots[slot, 2]] += values[at] if has_values else 1.0
                else:
                    slots[slot, 0] = id_
                    slots[slot, 1] = token + 1
                    slots[slot, 2] = out
                    indices[out] = id_
                    if len(sums) > 0:
                        sums[out] = values[at] if has_values else 1.0
                    out += 1
            at += 1
        indptr[token + 1] = out
    return out
