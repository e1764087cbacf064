# cython: language_level=3
"""C declarations of packed integers for the modules of the core: their headers, and decoding of their numbers.

Section 8 of `spec/format.md`. Number i of a pack of bits is bits [bits * i, bits * (i + 1)) of its stored bytes, the
lowest bit of a byte first.
"""

from libc.string cimport memcpy, memset

ctypedef unsigned char byte
ctypedef unsigned long long word

cdef enum:
    PACK_HEAD_BYTES = 8
    PACK_OF_BITS = 255  # in place of the number of raw planes
    NUMBERS_TOGETHER = 256
    FOUR_TOGETHER_BITS = 14  # four numbers of up to this many bits fit into eight bytes, at whatever bit they begin
    NODE_HEAD_BYTES = 4
    STRINGS = 4  # shapes of nodes
    FRONT_CODED = 9
    NEEDS_DICTIONARY = 2  # flag of a node
    MOST_FRAME_ROWS = 1024
    MANY_NUMBERS = 1 << 14  # from this many on the lock is released; below, retaking it costs more than the work


cdef struct PackHead:
    Py_ssize_t width  # bytes that each number takes, in planes or when its bits are unpacked
    Py_ssize_t bits  # of each number; 0 if the pack has planes
    Py_ssize_t raw  # planes that are stored uncompressed
    int codec  # of the other planes
    long long base
    Py_ssize_t raw_at
    Py_ssize_t stored_at
    Py_ssize_t end


cdef inline bint read_pack_head(
    const byte* body, Py_ssize_t size, Py_ssize_t at, Py_ssize_t count, PackHead* pack
) noexcept nogil:
    """Read the header of `count` numbers at byte `at` of a body of `size` bytes; False if it breaks the format.

    If it returns True, every byte of the pack is within the body.
    """
    cdef unsigned int stored
    cdef Py_ssize_t base_bytes
    if at < 0 or count < 0 or at > size - PACK_HEAD_BYTES:
        return False
    pack.width, pack.raw, base_bytes, pack.codec, pack.bits = body[at], body[at + 1], body[at + 2], body[at + 3], 0
    stored = body[at + 4] | body[at + 5] << 8 | body[at + 6] << 16 | <unsigned int>body[at + 7] << 24
    pack.raw_at = at + PACK_HEAD_BYTES + base_bytes
    if (base_bytes != 0 and base_bytes != 8) or pack.raw_at > size or (not count and pack.width + base_bytes):
        return False
    if pack.raw == PACK_OF_BITS:
        pack.bits, pack.raw, pack.width = pack.width, 0, (pack.width + 7) // 8
        if not 1 <= pack.bits <= 64 or pack.codec or count > 8 * size:  # so that no product overflows
            return False
        if stored != (pack.bits * count + 7) // 8:
            return False
    elif pack.width > 8 or pack.raw > pack.width or (pack.raw and count > (size - pack.raw_at) // pack.raw):
        return False
    elif pack.raw == pack.width and (stored or pack.codec):
        return False
    pack.stored_at = pack.raw_at + pack.raw * count
    pack.end = pack.stored_at + stored
    pack.base = 0
    if base_bytes:
        pack.base = <long long>few_bits(body, at + PACK_HEAD_BYTES, 0, 64)
    return pack.end <= size


cdef inline word few_bits(const byte* body, Py_ssize_t at, Py_ssize_t shift, Py_ssize_t bits) noexcept nogil:
    """Bits [shift, shift + bits) of the bytes from `at` on; reads no byte after those."""
    cdef word found = body[at] >> shift
    cdef Py_ssize_t have = 8 - shift
    while have < bits:
        at += 1
        found |= <word>body[at] << have
        have += 8
    return found if bits == 64 else found & ((<word>1 << bits) - 1)


cdef inline Py_ssize_t whole_words(Py_ssize_t stored_bytes, Py_ssize_t bits) noexcept nogil:
    """How many of the first numbers can each be read with eight stored bytes, beginning with its first bit's byte."""
    if bits > 57 or stored_bytes < 8:
        return 0
    return (8 * stored_bytes - 64) // bits + 1


cdef inline long long number_of_bits(
    const byte* stored, Py_ssize_t whole, Py_ssize_t bits, long long base, Py_ssize_t i
) noexcept nogil:
    """base + number i, modulo 2^64; whole: the result of `whole_words`."""
    cdef Py_ssize_t place = bits * i
    cdef word found
    if bits == 64:
        memcpy(&found, stored + 8 * i, 8)
    elif i < whole:
        memcpy(&found, stored + (place >> 3), 8)
        found = (found >> (place & 7)) & ((<word>1 << bits) - 1)
    else:
        found = few_bits(stored, place >> 3, place & 7, bits)
    return <long long>(found + <word>base)


cdef inline void unpack_bits(
    const byte* stored, Py_ssize_t stored_bytes, Py_ssize_t bits, long long base,
    Py_ssize_t low, long long* out, Py_ssize_t size,
) noexcept nogil:
    """Write base + number i, modulo 2^64, to `out` for each i in [low, low + size)."""
    cdef Py_ssize_t i, place = bits * low
    if bits == 64:
        memcpy(out, stored + 8 * low, 8 * size)
        if base:
            for i in range(size):
                out[i] = <long long>(<word>out[i] + <word>base)
        return
    cdef Py_ssize_t whole = min(max(whole_words(stored_bytes, bits) - low, 0), size)
    cdef Py_ssize_t first = 0
    cdef word found, mask = (<word>1 << (bits & 63)) - 1
    if bits <= FOUR_TOGETHER_BITS:
        while first + 4 <= whole:
            memcpy(&found, stored + (place >> 3), 8)
            found >>= place & 7
            for i in range(4):
                out[first + i] = <long long>((found & mask) + <word>base)
                found >>= bits
            first += 4
            place += 4 * bits
    for i in range(first, whole):
        memcpy(&found, stored + (place >> 3), 8)
        out[i] = <long long>(((found >> (place & 7)) & mask) + <word>base)
        place += bits
    for i in range(whole, size):
        out[i] = <long long>(few_bits(stored, place >> 3, place & 7, bits) + <word>base)
        place += bits


cdef inline void join_few_planes(
    const byte** planes, Py_ssize_t first, Py_ssize_t width, unsigned int* out, Py_ssize_t size
) noexcept nogil:
    """Write numbers of up to four planes, the lowest first, from the planes' byte `first` on."""
    cdef Py_ssize_t i
    cdef const byte* a = planes[0] + first if width > 0 else NULL
    cdef const byte* b = planes[1] + first if width > 1 else NULL
    cdef const byte* c = planes[2] + first if width > 2 else NULL
    cdef const byte* d = planes[3] + first if width > 3 else NULL
    if width > 3:
        for i in range(size):
            out[i] = a[i] | <unsigned int>b[i] << 8 | <unsigned int>c[i] << 16 | <unsigned int>d[i] << 24
    elif width == 3:
        for i in range(size):
            out[i] = a[i] | <unsigned int>b[i] << 8 | <unsigned int>c[i] << 16
    elif width == 2:
        for i in range(size):
            out[i] = a[i] | <unsigned int>b[i] << 8
    elif width:
        for i in range(size):
            out[i] = a[i]
    else:
        memset(out, 0, 4 * size)


cdef inline void join_number_planes(
    const byte* raw, const byte* rest, PackHead* pack, Py_ssize_t count,
    Py_ssize_t low, long long* out, Py_ssize_t size,
) noexcept nogil:
    """Write numbers [low, low + size) of a pack of planes, modulo 2^64; `rest`: the planes that are not raw."""
    cdef Py_ssize_t i, k, first = 0, n, width = pack.width
    cdef word base = <word>pack.base
    cdef const byte* planes[8]
    cdef unsigned int lows[NUMBERS_TOGETHER]  # the halves of numbers: compilers process several at a time
    cdef unsigned int highs[NUMBERS_TOGETHER]
    for k in range(width):
        planes[k] = (raw + k * count if k < pack.raw else rest + (k - pack.raw) * count) + low
    while first < size:
        n = min(size - first, <Py_ssize_t>NUMBERS_TOGETHER)
        join_few_planes(planes, first, width, lows, n)
        if width <= 4:
            for i in range(n):
                out[first + i] = <long long>(base + lows[i])
        else:
            join_few_planes(planes + 4, first, width - 4, highs, n)
            for i in range(n):
                out[first + i] = <long long>(base + (lows[i] | <word>highs[i] << 32))
        first += n


cdef inline void unpack_numbers(
    const byte* stored, Py_ssize_t stored_bytes, Py_ssize_t bits, long long base,
    Py_ssize_t low, long long* out, Py_ssize_t size,
) noexcept:
    """Like `unpack_bits`, but without the lock if there are many numbers."""
    if size < MANY_NUMBERS:
        unpack_bits(stored, stored_bytes, bits, base, low, out, size)
    else:
        with nogil:
            unpack_bits(stored, stored_bytes, bits, base, low, out, size)


cdef inline void join_numbers(
    const byte* raw, const byte* rest, PackHead* pack, Py_ssize_t count,
    Py_ssize_t low, long long* out, Py_ssize_t size,
) noexcept:
    """Like `join_number_planes`, but without the lock if there are many numbers."""
    if size < MANY_NUMBERS:
        join_number_planes(raw, rest, pack, count, low, out, size)
    else:
        with nogil:
            join_number_planes(raw, rest, pack, count, low, out, size)


cdef inline int fill_numbers(
    object body, const byte* data, PackHead* pack, Py_ssize_t count, object decompressor,
    Py_ssize_t low, long long* out, Py_ssize_t size,
) except -1:
    """Write numbers [low, low + size) of the `count` of a pack that `read_pack_head` found in `body`, whose bytes are
    `data`. The caller bounds them.

    Raises what the decompressor raises, and ValueError if it returns another number of bytes than requested.
    """
    cdef Py_ssize_t planes = pack.width - pack.raw
    cdef bytes rest = b""
    cdef const byte* more
    if pack.bits:
        unpack_numbers(data + pack.stored_at, pack.end - pack.stored_at, pack.bits, pack.base, low, out, size)
        return 0
    if planes and not pack.codec and pack.end - pack.stored_at == planes * count:
        more = data + pack.stored_at
    elif planes:
        rest = decompressor.decompress(pack.codec, body[pack.stored_at : pack.end], planes * count)
        if len(rest) != planes * count:
            raise ValueError("the planes of packed numbers have another size")
        more = rest
    else:
        more = data
    join_numbers(data + pack.raw_at, more, pack, count, low, out, size)
    return 0


cdef inline Py_ssize_t end_of_strings(
    const byte* body, Py_ssize_t size, Py_ssize_t at, Py_ssize_t count
) noexcept nogil:
    """The byte after a node of `count` strings without validity; -1 if it breaks the format."""
    cdef PackHead pack
    cdef Py_ssize_t i, rows, width, frames, end
    if at > size - NODE_HEAD_BYTES or body[at] != STRINGS or body[at + 1] & ~NEEDS_DICTIONARY:
        return -1
    rows = body[at + 2] | body[at + 3] << 8
    if not 0 < rows <= MOST_FRAME_ROWS:
        return -1
    if not read_pack_head(body, size, at + NODE_HEAD_BYTES, count, &pack) or pack.end > size - 2:
        return -1
    width = body[pack.end + 1]
    frames = (count + rows - 1) // rows
    at = pack.end + 2
    if (width != 2 and width != 4) or frames > (size - at) // width:
        return -1
    end = at + width * frames
    for i in range(frames):
        end += body[at + width * i] | body[at + width * i + 1] << 8
        if width == 4:
            end += <Py_ssize_t>body[at + width * i + 2] << 16 | <Py_ssize_t>body[at + width * i + 3] << 24
        if end > size:
            return -1
    return end


cdef inline Py_ssize_t end_of_texts(
    const byte* body, Py_ssize_t size, Py_ssize_t at, Py_ssize_t count
) noexcept nogil:
    """The byte after a node of `count` texts that are read as a whole; -1 if it breaks the format."""
    cdef PackHead shared
    if at < 0 or at > size - NODE_HEAD_BYTES:
        return -1
    if body[at] == FRONT_CODED:
        if body[at + 1] or body[at + 2] or body[at + 3]:
            return -1
        if not read_pack_head(body, size, at + NODE_HEAD_BYTES, count, &shared):
            return -1
        at = shared.end
    return end_of_strings(body, size, at, count)
