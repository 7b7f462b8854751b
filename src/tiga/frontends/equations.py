"""In which order the terms of an equation such as `"ij,jk,kl->il"` are multiplied."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations


def cheapest_pair(terms: Sequence[str], extents: Mapping[str, int]) -> tuple[int, int]:
    """The two terms to multiply next: of those that share a letter, if any do, the pair that takes
    the fewest multiplications, and of equals the first.

    Example:
        >>> cheapest_pair(["ijk", "fi", "j"], {"i": 9, "j": 9, "k": 9, "f": 8})
        (0, 2)
    """
    pairs = list(combinations(range(len(terms)), 2))
    joined = [(i, j) for i, j in pairs if set(terms[i]) & set(terms[j])] or pairs
    return min(joined, key=lambda pair: _size(terms[pair[0]] + terms[pair[1]], extents))


def _size(letters: str, extents: Mapping[str, int]) -> int:
    return math.prod(extents[letter] for letter in set(letters))


def kept_letters(letters: str, needed: str) -> str:
    """The letters of a product that something needs, each once.

    Example:
        >>> kept_letters("ijkj", "kij")
        'ijk'
    """
    return "".join(dict.fromkeys(letter for letter in letters if letter in needed))
