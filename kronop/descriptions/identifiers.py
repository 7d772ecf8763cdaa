"""Names that C and C++ can have for variables."""

from __future__ import annotations

import re

# The keywords of C++20 and C++23, with alternative spellings of operators.
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires return
    short signed sizeof static static_assert static_cast struct switch template this thread_local
    throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while
    xor xor_eq
    """,
    )
)


def is_identifier(name: object) -> bool:
    """Whether this can name a variable in C and C++, apart from macros.

    Names that begin with an underscore or contain two in a row are reserved for compilers.
    """
    return (
        isinstance(name, str)
        and re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) is not None
        and "__" not in name
        and name not in _KEYWORDS
    )
