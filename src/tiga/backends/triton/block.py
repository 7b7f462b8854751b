"""Text of a kernel under construction: blocks of lines, and names that are unique in it."""

import re
from dataclasses import dataclass, field

INDENT = "    "

RESERVED = (
    # what the frame of every kernel defines, and the functions that kernels call
    "base", "block", "blocks", "enters", "mark", "span",
    "item", "valid", "row", "low", "count", "hub", "is_chunk", "tile", "tiles", "steps", "start",
    "step", "live", "position", "other", "edge", "piece", "num_items", "num_chunks",
    "copysign", "cos", "erf", "exp", "expm1", "float_to_int32", "float_to_int64", "fmod",
    "int_div", "int_maximum", "int_minimum", "int_rem", "log", "log1p", "matmul_thirds",
    "maximum", "minimum", "multiply", "pow", "rint", "sin", "tanh", "thirds", "to_bfloat16",
    "trunc", "tl", "triton", "range",
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "erfc", "floor_div",
    "hypot", "int_floor_div", "int_remainder", "log10", "log2", "logaddexp", "nextafter",
    "remainder", "sinh", "tan",
    "float", "and", "or", "not", "in", "is", "if", "else", "for", "while", "def", "return",
    "lambda", "from", "import", "class", "pass", "global", "with", "as", "try", "del", "assert",
    "None", "True", "False", "async", "await", "yield", "raise", "break", "continue", "except",
    "finally", "nonlocal", "elif", "match", "case", "type", "print", "min", "max", "abs", "len",
)  # fmt: skip
"""Names that no value of a program gets."""


@dataclass
class Block:
    """Lines of one nesting depth; inner blocks are appended when they are complete."""

    lines: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        self.lines.append(line)

    def extend(self, other: "Block") -> None:
        self.lines.extend(other.lines)

    def nest(self, header: str, inner: "Block") -> None:
        """A compound statement with `inner` as its body."""
        self.lines.append(header)
        self.lines.extend(INDENT + line for line in inner.lines)


@dataclass
class Names:
    """Gives out names: `hint`, then `hint_1`, `hint_2`, ..."""

    taken: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RESERVED, 1))

    def fresh(self, hint: str) -> str:
        stem = re.sub(r"\W", "_", hint) or "value"
        stem = f"v{stem}" if stem[0].isdigit() else stem
        count = self.taken.get(stem, 0)
        self.taken[stem] = count + 1
        return stem if count == 0 else self.fresh(f"{stem}_{count}")
