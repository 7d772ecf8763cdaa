"""The cache key: a type-tagged hash of everything that decides a binary, and of nothing else.

Paths and times are not hashed: the same text, headers, compiler, flags and architecture give the
same key in every folder, and a change of any of them gives another key.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import stat

from kronop.artifacts import Source
from kronop.target import Target
from kronop.version import __version__

SCHEMA = 7
"""Version of the key and of the cache's tables; rows of older versions are never found."""

# The text before the # is checked after a match: searching for a pattern that starts with a fixed
# byte is ten times as fast.
_INCLUDE = re.compile(rb'#[ \t]*include[ \t]*([<"])([^">\r\n]+)[">]')


def digest(*parts: object) -> str:
    """SHA-256, in hex, of strings, bytes, integers and tuples of them.

    Each part is hashed with its type and length, so that two different lists of parts never
    concatenate to the same bytes.
    """
    state = hashlib.sha256()
    _feed(state, parts)
    return state.hexdigest()


def _feed(state: hashlib._Hash, part: object) -> None:
    if isinstance(part, tuple):
        state.update(b"t%d:" % len(part))
        for item in part:
            _feed(state, item)
        return
    if isinstance(part, str):
        tag, content = b"s", part.encode("utf-8", "surrogatepass")
    elif isinstance(part, bytes):
        tag, content = b"b", part
    elif isinstance(part, int):
        tag, content = b"i", b"%d" % part
    else:
        raise TypeError(f"a key is made of str, bytes, int and tuples, not {type(part).__name__}")
    state.update(tag + b"%d:" % len(content))
    state.update(content)


def source_key(source: Source, target: Target, *, compiler: str, flags: tuple[str, ...]) -> str:
    """The key of `source` for `target`; `compiler` is the identity of the compiler."""
    return digest(
        "kronop kernel",
        SCHEMA,
        __version__,
        source.entry,
        source.language.name,
        source.text,
        header_digests(source),
        compiler,
        flags,
        target.arch,
    )


def header_digests(source: Source) -> tuple[tuple[str, str], ...]:
    """(name as included, SHA-256 of the contents) of every header that `source` can reach.

    Includes inside an `#if` are followed too: a header too many may cost a rebuild, but a header
    too few could give a wrong kernel. Names in angle brackets count only if `include_directories`
    has them; the others belong to the compiler, whose identity is in the key. A quoted header that
    is missing is recorded as missing, so that the key changes when it appears.
    """
    seen: set[str] = set()
    asked: set[tuple[str, str]] = set()
    found: list[tuple[str, str]] = []
    pending = [(quoted, name, "") for quoted, name in _includes(source.text.encode())[::-1]]
    while pending:
        quoted, name, folder = pending.pop()
        # Many headers include the same ones: each name is searched only once from each folder.
        place = (name, folder if quoted else "<>")
        if place in asked:
            continue
        asked.add(place)
        folders = (folder, *source.include_directories) if quoted else source.include_directories
        path, state = _resolve(name, folders)
        if path in seen or not (path or quoted):
            continue
        if not path:
            found.append((name, "missing"))
            continue
        seen.add(path)
        content, inside = _read(path, state)
        found.append((name, content))
        inner = os.path.dirname(path)
        pending += [(quoted, name, inner) for quoted, name in inside[::-1]]
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def _read(path: str, state: tuple[int, ...]) -> tuple[str, tuple[tuple[bool, str], ...]]:
    """(SHA-256, includes) of a header, which is read again when its `state` is another one.

    A kernel may include hundreds of headers, as CUTLASS's do; reading those takes 40 ms.
    """
    with open(path, "rb", buffering=0) as file:
        content = file.read()
    return hashlib.sha256(content).hexdigest(), _includes(content)


def _includes(content: bytes) -> tuple[tuple[bool, str], ...]:
    """(quoted?, name) of each include in `content`, in order."""
    return tuple(
        (match[1] == b'"', match[2].decode(errors="replace"))
        for match in _INCLUDE.finditer(content)
        if not content[content.rfind(b"\n", 0, match.start()) + 1 : match.start()].strip(b" \t")
    )


def _resolve(name: str, folders: tuple[str, ...]) -> tuple[str, tuple[int, ...]]:
    """(path, state) of the first file of that name in `folders`; ("", ...) if there is none. A file
    with other contents has another state: its times, size or number."""
    for folder in filter(None, folders):
        path = os.path.normpath(os.path.join(folder, name))
        try:
            known = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not stat.S_ISDIR(known.st_mode):
            return path, (known.st_mtime_ns, known.st_ctime_ns, known.st_size, known.st_ino)
    return "", ()
