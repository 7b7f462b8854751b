"""Order within one program's elements, through shared memory: PTX for what Triton has no op for.

A block takes all elements of a thread at once, whatever layout the compiler chose for them, and all
threads of a program reach it together. What it computes say `counted` and `ordered` in
`math_shared`, and in numpy in `math_interpreted`.
"""

from collections.abc import Iterator
from hashlib import sha256

from tiga.backends.triton.layout import WARP

_ALL = "0xffffffff"


def counted_lines(each: int, bits: int, warps: int) -> Iterator[str]:
    """Threads add to counts that they share."""
    threads, digits = WARP * warps, 1 << bits
    yield f".shared .align 4 .b32 counts[{digits + 1}];"
    yield ".reg .b32 base, at, none, thread;"
    yield ".reg .pred here;"
    yield "mov.u32 base, counts;"
    yield "mov.u32 none, 0;"
    yield "mov.u32 thread, %tid.x;"
    yield "mad.lo.u32 at, thread, 4, base;"
    # What was counted before, in a loop, has been read.
    yield "bar.sync 0;"
    for start in range(0, digits, threads):
        yield f"setp.lt.u32 here, thread, {digits - start};"
        yield f"@here st.shared.u32 [at+{4 * start}], none;"
    yield "bar.sync 0;"
    for e in range(each):
        yield f"mad.lo.u32 at, ${each + e}, 4, base;"
        yield "red.shared.add.u32 [at], 1;"
    yield "bar.sync 0;"
    for e in range(each):
        yield f"setp.lt.u32 here, ${2 * each + e}, {digits};"
        yield f"mad.lo.u32 at, ${2 * each + e}, 4, base;"
        yield f"mov.u32 ${e}, 0;"
        yield f"@here ld.shared.u32 ${e}, [at];"


def digest(each: int, bits: int, warps: int) -> str:
    """What tells these functions from those of other versions: Triton's cache knows a kernel's text
    alone."""
    lines = (*counted_lines(each, bits, warps), *ordered_lines(each, bits, warps))
    return sha256("\n".join(lines).encode()).hexdigest()[:8]


def ordered_lines(each: int, bits: int, warps: int) -> Iterator[str]:
    """Each warp ranks a run of elements, 32 at a time, and counts their digits as it goes. Then
    what earlier warps counted is added, and where each digit starts."""
    threads, digits = WARP * warps, 1 << bits
    yield f".shared .align 8 .b64 values[{threads * each}];"
    # Digits at first, then how many of each a warp has seen.
    yield f".shared .align 4 .b16 small[{max(threads * each, warps * digits)}];"
    yield f".shared .align 4 .b32 sums[{warps}];"
    yield ".reg .b32 large_at, small_at, sums_at, thread, warp, lane, lower;"
    yield ".reg .b32 at, own, bit, same, voted, old, whole;"
    yield f".reg .b32 digit<{each}>, rank<{each}>;"
    yield f".reg .b64 value<{each}>;"
    yield ".reg .pred here, up;"
    yield "mov.u32 large_at, values;"
    yield "mov.u32 small_at, small;"
    yield "mov.u32 sums_at, sums;"
    yield "mov.u32 thread, %tid.x;"
    yield "mov.u32 lower, %lanemask_lt;"
    yield "shr.u32 warp, thread, 5;"
    yield "and.b32 lane, thread, 31;"
    yield from _taken_over(each)
    yield "bar.sync 0;"
    yield from _cleared(warps * digits // 2, threads)
    yield "bar.sync 0;"
    yield f"mad.lo.u32 own, warp, {2 * digits}, small_at;"
    for e in range(each):
        yield from _ranked(e, bits)
    yield "bar.sync 0;"
    yield from _summed(digits, warps)
    yield "bar.sync 0;"
    yield f"mad.lo.u32 own, warp, {2 * digits}, small_at;"
    for e in range(each):
        yield f"mad.lo.u32 at, digit{e}, 2, own;"
        yield "ld.shared.u16 old, [at];"
        yield f"add.u32 old, old, rank{e};"
        yield "mad.lo.u32 at, old, 8, large_at;"
        yield f"st.shared.b64 [at], value{e};"
    yield "bar.sync 0;"
    for e in range(each):
        yield f"mad.lo.u32 at, ${3 * each + e}, 8, large_at;"
        yield f"ld.shared.b64 ${e}, [at];"


def _taken_over(each: int) -> Iterator[str]:
    """From the compiler's layout: a warp has a run, of which a thread has every 32nd element."""
    for e in range(each):
        yield f"mad.lo.u32 at, ${3 * each + e}, 8, large_at;"
        yield f"st.shared.b64 [at], ${each + e};"
        yield f"mad.lo.u32 at, ${3 * each + e}, 2, small_at;"
        yield f"st.shared.u16 [at], ${2 * each + e};"
    yield "bar.sync 0;"
    yield f"mad.lo.u32 old, warp, {WARP * each}, lane;"
    yield "mad.lo.u32 at, old, 2, small_at;"
    yield "mad.lo.u32 old, old, 8, large_at;"
    for e in range(each):
        yield f"ld.shared.u16 digit{e}, [at+{2 * WARP * e}];"
        yield f"ld.shared.b64 value{e}, [old+{8 * WARP * e}];"


def _cleared(words: int, threads: int) -> Iterator[str]:
    """No digit is counted yet."""
    yield "mov.u32 old, 0;"
    yield "mad.lo.u32 at, thread, 4, small_at;"
    for start in range(0, words, threads):
        yield f"setp.lt.u32 here, thread, {words - start};"
        yield f"@here st.shared.u32 [at+{4 * start}], old;"


def _ranked(e: int, bits: int) -> Iterator[str]:
    """The rank of a warp's 32 elements among those of their digit that it saw, and the count."""
    for bit in range(bits):
        # Lanes that agree with this one in a bit.
        yield f"and.b32 bit, digit{e}, {1 << bit};"
        yield "setp.ne.u32 here, bit, 0;"
        yield f"vote.sync.ballot.b32 voted, here, {_ALL};"
        yield "@!here not.b32 voted, voted;"
        yield "and.b32 same, same, voted;" if bit else "mov.b32 same, voted;"
    yield f"mad.lo.u32 at, digit{e}, 2, own;"
    yield "ld.shared.u16 old, [at];"
    yield "and.b32 bit, same, lower;"
    yield "popc.b32 bit, bit;"
    yield f"add.u32 rank{e}, old, bit;"
    yield "setp.eq.u32 here, bit, 0;"
    yield "popc.b32 voted, same;"
    yield "add.u32 old, old, voted;"
    yield f"bar.warp.sync {_ALL};"
    yield "@here st.shared.u16 [at], old;"
    yield f"bar.warp.sync {_ALL};"


def _summed(digits: int, warps: int) -> Iterator[str]:
    """Counts of each warp become places: where the digit starts, and what earlier warps have."""
    each = max(digits // (WARP * warps), 1)
    yield f".reg .b32 count<{each * warps}>;"
    yield f"mul.lo.u32 bit, thread, {each};"
    yield f"setp.lt.u32 here, bit, {digits};"
    yield "mad.lo.u32 own, bit, 2, small_at;"
    yield "mov.u32 whole, 0;"
    for d in range(each):
        for w in range(warps):
            yield f"mov.u32 count{d * warps + w}, 0;"
            yield f"@here ld.shared.u16 count{d * warps + w}, [own+{2 * (digits * w + d)}];"
            yield f"add.u32 whole, whole, count{d * warps + w};"
    # Sums over the threads up to this one: of the warp, then of earlier warps.
    yield "mov.u32 old, whole;"
    for step in (1, 2, 4, 8, 16):
        yield f"shfl.sync.up.b32 voted|up, old, {step}, 0, {_ALL};"
        yield "@up add.u32 old, old, voted;"
    yield "mad.lo.u32 at, warp, 4, sums_at;"
    yield f"setp.eq.u32 up, lane, {WARP - 1};"
    yield "@up st.shared.u32 [at], old;"
    yield "sub.u32 old, old, whole;"
    yield "bar.sync 0;"
    for w in range(warps - 1):
        yield f"ld.shared.u32 voted, [sums_at+{4 * w}];"
        yield f"setp.gt.u32 up, warp, {w};"
        yield "@up add.u32 old, old, voted;"
    for d in range(each):
        for w in range(warps):
            yield f"@here st.shared.u16 [own+{2 * (digits * w + d)}], old;"
            yield f"add.u32 old, old, count{d * warps + w};"
