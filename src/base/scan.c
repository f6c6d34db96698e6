// Owns the strict JSON scanner: RFC 8259 grammar, valid UTF-8, bounded depth, spans instead of a tree.
//
// Fuzzed against jansson (tests/fuzz/fuzz_scan.c): both accept the same documents, except for numbers beyond double
// range, "\u0000" and lone surrogates, which only the scanner accepts, because it converts nothing.
//
// A lone surrogate is the escape of half a pair, such as "\ud83d": JSON.stringify and json.dumps write it for an emoji
// cut in half. Decoded, it is the three bytes that UTF-8 would use if surrogates were characters (WTF-8); nothing else
// decodes to them, since raw bytes like these are refused, and encoding turns them into the escape again. Text that
// holds one is not UTF-8: scan_has_half() finds it before a policy judges it, and scan_encode_lossy() writes U+FFFD.
#include "scan.h"
#include "mem.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

static bool fail(struct scan *scan, const char *problem)
{
    if (!scan->problem)
        scan->problem = problem;
    return false;
}

void scan_start(struct scan *scan, struct span text, bool reject_duplicates)
{
    if (!text.at)
        text.at = "";
    *scan = (struct scan){text.at, text.at + text.len, text.at, NULL, reject_duplicates, false, false};
}

void scan_space(struct scan *scan)
{
    for (; scan->at < scan->end; scan->at++) {
        char c = *scan->at;
        if (c == '\n' || c == '\r')
            scan->lines = true;
        else if (c != ' ' && c != '\t')
            return;
    }
}

// Skips bytes without special meaning: no quote, no backslash, no control character, only ASCII.
#ifdef __SSE2__
static const char *skip_plain(const char *at, const char *end)
{
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), space = _mm_set1_epi8(' ');
    for (; end - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
        __m128i stop = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, slash));
        // Signed: bytes from 0x80 are negative, so one comparison finds them and the controls.
        stop = _mm_or_si128(stop, _mm_cmpgt_epi8(space, bytes));
        int mask = _mm_movemask_epi8(stop);
        if (mask)
            return at + __builtin_ctz((unsigned)mask);
    }
    return at;
}
#else
static const char *skip_plain(const char *at, const char *end)
{
    while (at < end && *at >= 0x20 && *at < 0x7F && *at != '"' && *at != '\\')
        at++;
    return at;
}
#endif

static const bool simple_escapes[256] = {
    ['"'] = true, ['\\'] = true, ['/'] = true, ['b'] = true, ['f'] = true, ['n'] = true, ['r'] = true, ['t'] = true};

// Skips the same bytes and escapes of one character, 64 bytes at a time: nearly all of a large text result.
#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2")))

AVX2 static uint64_t mask64(__m256i low, __m256i high)
{
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}

// Finds the bytes that are one of "\/bfnrt, 32 at a time: the tables share a bit for their low and their high half.
AVX2 static __m256i find_simple(__m256i bytes)
{
    const __m256i low_half = _mm256_setr_epi8(0, 0, 13, 0, 8, 0, 4, 0, 0, 0, 0, 0, 2, 0, 4, 1, 0, 0, 13, 0, 8, 0, 4, 0,
                                              0, 0, 0, 0, 2, 0, 4, 1);
    const __m256i high_half = _mm256_setr_epi8(0, 0, 1, 0, 0, 2, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 2, 4, 8,
                                               0, 0, 0, 0, 0, 0, 0, 0);
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(15));
    __m256i common = _mm256_and_si256(_mm256_shuffle_epi8(low_half, bytes), _mm256_shuffle_epi8(high_half, high));
    return _mm256_cmpgt_epi8(common, _mm256_setzero_si256());
}

// Finds escaped bytes. In a run of backslashes every second one is escaped, and so is the byte after a run of odd length:
// the subtraction carries through each run to its end (as in simdjson). *open: a backslash before these bytes escapes the
// first of them (1) or not (0); then, whether their last one escapes the byte after them.
static uint64_t find_escaped(uint64_t slashes, uint64_t *open)
{
    const uint64_t odd = 0xAAAAAAAAAAAAAAAAU;
    uint64_t runs = slashes & ~*open, ends = ((runs << 1 | odd) - runs) ^ odd, escaped = ends ^ (slashes | *open);
    *open = (ends & slashes) >> 63;
    return escaped;
}

// Finds quotes, control characters and bytes that are not ASCII, which are negative here.
AVX2 static __m256i find_end(__m256i bytes)
{
    return _mm256_or_si256(_mm256_cmpeq_epi8(bytes, _mm256_set1_epi8('"')),
                           _mm256_cmpgt_epi8(_mm256_set1_epi8(' '), bytes));
}

AVX2 static const char *skip_blocks_avx2(const char *at, const char *end)
{
    const __m256i slash = _mm256_set1_epi8('\\');
    uint64_t open = 0;
    for (; end - at >= 64; at += 64) {
        __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)at);
        __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(at + 32));
        uint64_t slashes = mask64(_mm256_cmpeq_epi8(low, slash), _mm256_cmpeq_epi8(high, slash));
        uint64_t stops = mask64(find_end(low), find_end(high)), wrong = 0;
        if (slashes | open) {
            uint64_t escaped = find_escaped(slashes, &open);
            wrong = escaped & ~mask64(find_simple(low), find_simple(high));
            stops = (stops & ~escaped) | wrong;
        }
        if (stops) {
            int first = __builtin_ctzll(stops);
            return at + first - (wrong >> first & 1);  // the backslash, if its escape has more than one character
        }
    }
    return at - open;
}

static const char *skip_blocks(const char *at, const char *end)
{
    return end - at >= 64 && __builtin_cpu_supports("avx2") ? skip_blocks_avx2(at, end) : at;
}
#else
static const char *skip_blocks(const char *at, const char *end)
{
    (void)end;
    return at;
}
#endif

static size_t utf8_len(const unsigned char *s, size_t left)
{
    if (s[0] < 0x80)
        return 1;
    size_t len = s[0] >= 0xC2 && s[0] <= 0xDF ? 2 : (s[0] & 0xF0) == 0xE0 ? 3 : s[0] >= 0xF0 && s[0] <= 0xF4 ? 4 : 0;
    if (!len || len > left)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) || (s[0] == 0xF0 && s[1] < 0x90) ||
        (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return len;
}

bool scan_is_utf8(struct span text)
{
    for (size_t i = 0, len; i < text.len; i += len)
        if (!(len = utf8_len((const unsigned char *)text.at + i, text.len - i)))
            return false;
    return true;
}

static int hex4(const char *at, const char *end)
{
    if (end - at < 4)
        return -1;
    int value = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

// After the backslash of an escape.
static bool scan_escape(struct scan *scan)
{
    if (scan->at >= scan->end)
        return fail(scan, "unterminated string");
    unsigned char c = (unsigned char)*scan->at++;
    if (simple_escapes[c])
        return true;
    if (c != 'u')
        return fail(scan, "invalid escape in a string");
    if (hex4(scan->at, scan->end) < 0)
        return fail(scan, "invalid \\u escape in a string");
    scan->at += 4;
    return true;
}

bool scan_string(struct scan *scan, struct span *raw)
{
    const char *start = scan->at;
    *raw = span_make(start, 0);
    if (scan->at >= scan->end || *scan->at != '"')
        return fail(scan, "expected a string");
    scan->at++;
    bool ascii = true;  // other characters end a block too often to be worth one
    for (;;) {
        if (ascii)
            scan->at = skip_blocks(scan->at, scan->end);
        scan->at = skip_plain(scan->at, scan->end);
        if (scan->at >= scan->end)
            return fail(scan, "unterminated string");
        unsigned char c = (unsigned char)*scan->at;
        if (c == '"')
            break;
        if (c == '\\') {
            scan->at++;
            if (!scan_escape(scan))
                return false;
        } else if (c < 0x20) {
            return fail(scan, "control character in a string");
        } else {
            size_t len = utf8_len((const unsigned char *)scan->at, (size_t)(scan->end - scan->at));
            if (!len)
                return fail(scan, "invalid UTF-8");
            scan->at += len;
            ascii = ascii && c < 0x80;
        }
    }
    scan->at++;
    *raw = span_make(start, (size_t)(scan->at - start));
    return true;
}

static bool digits(struct scan *scan)
{
    const char *start = scan->at;
    while (scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9')
        scan->at++;
    return scan->at > start;
}

static bool scan_number(struct scan *scan)
{
    if (*scan->at == '-')
        scan->at++;
    const char *first = scan->at;
    if (!digits(scan) || (*first == '0' && scan->at - first > 1))
        return fail(scan, "invalid number");
    if (scan->at < scan->end && *scan->at == '.') {
        scan->at++;
        if (!digits(scan))
            return fail(scan, "invalid number");
    }
    if (scan->at < scan->end && (*scan->at == 'e' || *scan->at == 'E')) {
        scan->at++;
        if (scan->at < scan->end && (*scan->at == '+' || *scan->at == '-'))
            scan->at++;
        if (!digits(scan))
            return fail(scan, "invalid number");
    }
    return true;
}

static bool scan_word(struct scan *scan, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(scan->end - scan->at) < len || memcmp(scan->at, word, len) != 0)
        return fail(scan, "unexpected character");
    scan->at += len;
    return true;
}

// ---- duplicate keys -------------------------------------------------------------------------

struct keys {
    struct span few[16];
    struct span *many;
    size_t count, room;
};

static void keys_release(struct keys *keys)
{
    for (size_t i = 0; i < keys->count; i++) {
        struct span key = keys->many ? keys->many[i] : keys->few[i];
        if (key.at[-1] != '"')  // decoded copies have a zero byte in front instead of the quote
            free((char *)(uintptr_t)(key.at - 1));
    }
    free(keys->many);
}

static bool keys_grow(struct keys *keys)
{
    size_t room = keys->many ? keys->room * 2 : keys->count * 4;
    struct span *many = mem_try_resize(keys->many, room * sizeof *many);
    if (!many)
        return false;
    if (!keys->many)
        memcpy(many, keys->few, sizeof keys->few);
    keys->many = many;
    keys->room = room;
    return true;
}

// False: out of memory. The number of keys, and their length, are determined from outside.
static bool keys_add(struct keys *keys, struct span raw)
{
    size_t room = keys->many ? keys->room : sizeof keys->few / sizeof *keys->few;
    if (keys->count == room && !keys_grow(keys))
        return false;
    struct span key = span_make(raw.at + 1, raw.len - 2);
    if (memchr(key.at, '\\', key.len)) {
        struct buf decoded = {.max = raw.len + 1};
        buf_put_char(&decoded, '\0');
        scan_decode(raw, &decoded);
        if (decoded.overflow) {
            buf_release(&decoded);
            return false;
        }
        key.len = decoded.len - 1;
        key.at = buf_take(&decoded, NULL) + 1;
    }
    (keys->many ? keys->many : keys->few)[keys->count++] = key;
    return true;
}

static int by_bytes(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return memcmp(x->at, y->at, x->len);
}

static bool keys_unique(struct keys *keys)
{
    if (!keys->many) {
        for (size_t i = 1; i < keys->count; i++)
            for (size_t j = 0; j < i; j++)
                if (span_equal(keys->few[i], keys->few[j]))
                    return false;
        return true;
    }
    qsort(keys->many, keys->count, sizeof *keys->many, by_bytes);
    for (size_t i = 1; i < keys->count; i++)
        if (span_equal(keys->many[i], keys->many[i - 1]))
            return false;
    return true;
}

// ---- containers -----------------------------------------------------------------------------

static bool value_at(struct scan *scan, struct span *value, unsigned depth);

static enum scan_step broken(struct scan *scan, const char *problem)
{
    (void)fail(scan, problem);
    return SCAN_BROKEN;
}

enum scan_step scan_key(struct scan *scan, bool first, struct span *key)
{
    scan_space(scan);
    if (scan->at < scan->end && *scan->at == '}') {
        scan->at++;
        return SCAN_OVER;
    }
    if (!first) {
        if (scan->at >= scan->end)
            return broken(scan, "unterminated object");
        if (*scan->at++ != ',')
            return broken(scan, "expected ',' or '}'");
        scan_space(scan);
    }
    if (!scan_string(scan, key))
        return SCAN_BROKEN;
    scan_space(scan);
    return scan->at < scan->end && *scan->at++ == ':' ? SCAN_MEMBER : broken(scan, "expected ':'");
}

static bool object_at(struct scan *scan, unsigned depth, struct keys *keys)
{
    struct span key, value;
    enum scan_step step;
    scan->at++;
    for (bool first = true; (step = scan_key(scan, first, &key)) == SCAN_MEMBER; first = false) {
        if (keys && !keys_add(keys, key)) {
            scan->no_memory = true;
            return fail(scan, "out of memory while comparing the keys of an object");
        }
        if (!value_at(scan, &value, depth))
            return false;
    }
    return step == SCAN_OVER;
}

static bool checked_object(struct scan *scan, unsigned depth)
{
    if (!scan->reject_duplicates)
        return object_at(scan, depth, NULL);
    struct keys keys = {.count = 0};
    bool ok = object_at(scan, depth, &keys);
    if (ok && !keys_unique(&keys))
        ok = fail(scan, "duplicate key in an object");
    keys_release(&keys);
    return ok;
}

static bool array_at(struct scan *scan, unsigned depth)
{
    scan->at++;
    scan_space(scan);
    if (scan->at < scan->end && *scan->at == ']') {
        scan->at++;
        return true;
    }
    for (;;) {
        struct span value;
        if (!value_at(scan, &value, depth))
            return false;
        scan_space(scan);
        if (scan->at >= scan->end)
            return fail(scan, "unterminated array");
        char c = *scan->at++;
        if (c == ']')
            return true;
        if (c != ',')
            return fail(scan, "expected ',' or ']'");
    }
}

static bool value_at(struct scan *scan, struct span *value, unsigned depth)
{
    scan_space(scan);
    const char *start = scan->at;
    if (scan->at >= scan->end)
        return fail(scan, "unexpected end");
    if (depth >= SCAN_DEPTH_MAX)
        return fail(scan, "nested too deeply");
    bool ok;
    switch (*scan->at) {
    case '{': ok = checked_object(scan, depth + 1); break;
    case '[': ok = array_at(scan, depth + 1); break;
    case '"': return scan_string(scan, value);
    case 't': ok = scan_word(scan, "true"); break;
    case 'f': ok = scan_word(scan, "false"); break;
    case 'n': ok = scan_word(scan, "null"); break;
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': ok = scan_number(scan); break;
    default: return fail(scan, "unexpected character");
    }
    *value = span_make(start, (size_t)(scan->at - start));
    return ok;
}

bool scan_value(struct scan *scan, struct span *value) { return value_at(scan, value, 0); }

bool scan_document(struct span text, bool reject_duplicates, struct span *value, struct err *err)
{
    struct scan scan;
    scan_start(&scan, text, reject_duplicates);
    bool ok = scan_value(&scan, value);
    if (ok) {
        scan_space(&scan);
        if (scan.at != scan.end)
            ok = fail(&scan, "unexpected text after the JSON value");
    }
    return ok || err_set(err, scan.no_memory ? ERR_TOO_MANY : ERR_PARSE, "byte %zu: %s", (size_t)(scan.at - scan.start),
                         scan.problem);
}

// ---- walking valid text ---------------------------------------------------------------------

static const char *skip_string(const char *at, const char *end)
{
    for (at++; at < end;) {
        const char *quote = memchr(at, '"', (size_t)(end - at));
        if (!quote)
            return end;
        size_t slashes = 0;
        while (quote - slashes > at && quote[-1 - (ptrdiff_t)slashes] == '\\')
            slashes++;
        at = quote + 1;
        if (slashes % 2 == 0)
            return at;
    }
    return end;
}

static const char *skip_value(const char *at, const char *end)
{
    unsigned depth = 0;
    while (at < end) {
        switch (*at) {
        case '"': at = skip_string(at, end); break;
        case '{':
        case '[':
            depth++;
            at++;
            break;
        case '}':
        case ']':
            if (depth == 0)
                return at;
            depth--;
            at++;
            break;
        case ',':
            if (depth == 0)
                return at;
            at++;
            continue;
        case ' ':
        case '\n':
        case '\r':
        case '\t':
        case ':':
            if (depth == 0)
                return at;
            at++;
            continue;
        default:
            at++;
            if (depth == 0)
                while (at < end && !memchr(",]} \n\r\t", *at, 7))
                    at++;
            break;
        }
        if (depth == 0)
            return at;
    }
    return at;
}

static void walk_space(struct scan_walk *walk)
{
    while (walk->at < walk->end && memchr(" \n\r\t,:", *walk->at, 6))
        walk->at++;
}

struct scan_walk scan_walk(struct span container)
{
    if (container.len < 2)
        return (struct scan_walk){container.at, container.at};
    return (struct scan_walk){container.at + 1, container.at + container.len - 1};
}

bool scan_element(struct scan_walk *walk, struct span *value)
{
    walk_space(walk);
    if (walk->at >= walk->end)
        return false;
    const char *start = walk->at;
    walk->at = skip_value(walk->at, walk->end);
    *value = span_make(start, (size_t)(walk->at - start));
    return value->len > 0;
}

bool scan_member(struct scan_walk *walk, struct span *raw_key, struct span *value)
{
    return scan_element(walk, raw_key) && scan_element(walk, value);
}

bool scan_key_is(struct span raw_key, const char *key)
{
    struct span inner = span_make(raw_key.at + 1, raw_key.len - 2);
    if (!memchr(inner.at, '\\', inner.len))
        return span_is(inner, key);
    struct buf decoded = {0};
    scan_decode(raw_key, &decoded);
    bool same = span_is(buf_span(&decoded), key);
    buf_release(&decoded);
    return same;
}

unsigned scan_depth(struct span value)
{
    unsigned depth = 0, deepest = 0;
    bool text = false;
    for (size_t i = 0; i < value.len; i++) {
        char c = value.at[i];
        if (c == '"')
            text = !text;
        else if (text && c == '\\')
            i++;
        else if (!text && (c == '{' || c == '['))
            deepest = ++depth > deepest ? depth : deepest;
        else if (!text && (c == '}' || c == ']'))
            depth--;
    }
    return deepest;
}

bool scan_find(struct span object, const char *key, struct span *value)
{
    if (!scan_is_object(object))
        return false;
    struct scan_walk walk = scan_walk(object);
    struct span name;
    while (scan_member(&walk, &name, value))
        if (scan_key_is(name, key))
            return true;
    return false;
}

// ---- strings --------------------------------------------------------------------------------

static void put_codepoint(struct buf *out, unsigned cp)
{
    char utf8[4];
    size_t len;
    if (cp < 0x80) {
        utf8[0] = (char)cp;
        len = 1;
    } else if (cp < 0x800) {
        utf8[0] = (char)(0xC0 | cp >> 6);
        utf8[1] = (char)(0x80 | (cp & 63));
        len = 2;
    } else if (cp < 0x10000) {
        utf8[0] = (char)(0xE0 | cp >> 12);
        utf8[1] = (char)(0x80 | (cp >> 6 & 63));
        utf8[2] = (char)(0x80 | (cp & 63));
        len = 3;
    } else {
        utf8[0] = (char)(0xF0 | cp >> 18);
        utf8[1] = (char)(0x80 | (cp >> 12 & 63));
        utf8[2] = (char)(0x80 | (cp >> 6 & 63));
        utf8[3] = (char)(0x80 | (cp & 63));
        len = 4;
    }
    buf_put(out, utf8, len);
}

// The value of the second half of the pair, an escape at `at`. -1: no such escape follows.
static int low_half(const char *at, const char *end)
{
    int unit = end - at >= 6 && at[0] == '\\' && at[1] == 'u' ? hex4(at + 2, end) : -1;
    return unit >= 0xDC00 && unit <= 0xDFFF ? unit : -1;
}

static const char *decode_escape(const char *at, const char *end, struct buf *out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (*at != 'u') {
        const char *found = strchr(names, *at);
        if (found && *found)
            buf_put_char(out, values[found - names]);
        return at + 1;
    }
    int unit = hex4(at + 1, end), low = -1;
    at += 5;
    if (unit >= 0xD800 && unit <= 0xDBFF && (low = low_half(at, end)) >= 0) {
        put_codepoint(out, 0x10000U + (((unsigned)unit - 0xD800U) << 10) + ((unsigned)low - 0xDC00U));
        return at + 6;
    }
    put_codepoint(out, (unsigned)unit);
    return at;
}

void scan_decode(struct span raw_string, struct buf *out)
{
    const char *at = raw_string.at + 1, *end = raw_string.at + raw_string.len - 1;
    while (at < end) {
        const char *slash = memchr(at, '\\', (size_t)(end - at));
        const char *stop = slash ? slash : end;
        buf_put(out, at, (size_t)(stop - at));
        at = slash ? decode_escape(slash + 1, end, out) : end;
    }
}

static bool is_half(const char *at, const char *end)
{
    const unsigned char *byte = (const unsigned char *)at;
    return end - at >= 3 && byte[0] == 0xED && byte[1] >= 0xA0 && byte[1] <= 0xBF && (byte[2] & 0xC0) == 0x80;
}

bool scan_has_half(struct span text)
{
    const char *at = text.at ? text.at : "", *end = at + text.len;
    for (; (at = memchr(at, 0xED, (size_t)(end - at))); at++)
        if (is_half(at, end))
            return true;
    return false;
}

void scan_mend(char *text, size_t len)
{
    for (size_t i = 0, one; i < len; i += one) {
        one = utf8_len((const unsigned char *)text + i, len - i);
        if (one)
            continue;
        one = is_half(text + i, text + len) ? 3 : 1;
        memcpy(text + i, one == 3 ? "\xEF\xBF\xBD" : "?", one);
    }
}

size_t scan_cut(struct span text, size_t max)
{
    if (text.len <= max)
        return text.len;
    while (max > 0 && ((unsigned char)text.at[max] & 0xC0) == 0x80)
        max--;
    return max;
}

// Whether the escape at `at` is half a pair. `len` is the length of the escape, or of the whole pair.
static bool is_lone(const char *at, const char *end, size_t *len)
{
    int unit = end - at >= 6 && at[1] == 'u' ? hex4(at + 2, end) : -1;
    bool high = unit >= 0xD800 && unit <= 0xDBFF, low = unit >= 0xDC00 && unit <= 0xDFFF;
    bool pair = high && low_half(at + 6, end) >= 0;
    *len = pair ? 12 : unit >= 0 ? 6 : 2;
    return (high && !pair) || low;
}

bool scan_mask_halves(struct span json, struct buf *out)
{
    const char *start = json.at ? json.at : "", *end = start + json.len, *copied = start, *at = start;
    size_t len;
    while (at < end && (at = memchr(at, '\\', (size_t)(end - at)))) {  // only strings contain backslashes
        if (is_lone(at, end, &len)) {
            buf_put(out, copied, (size_t)(at - copied));
            buf_put_text(out, "\\u0000");
            copied = at + len;
        }
        at += len;
    }
    if (copied == start)
        return false;
    buf_put(out, copied, (size_t)(end - copied));
    return true;
}

static void encode_char(unsigned char c, struct buf *out)
{
    static const char names[] = "\b\t\n\f\r\"\\", values[] = "btnfr\"\\";
    const char *found = c ? strchr(names, c) : NULL;
    if (found) {
        buf_put_char(out, '\\');
        buf_put_char(out, values[found - names]);
    } else {
        buf_printf(out, "\\u%04x", c);
    }
}

// ASCII characters that a JSON string contains without an escape.
static const bool is_plain[256] = {
    [' '] = true,
    ['!'] = true,
    ['#' ... '['] = true,
    [']' ... 0x7F] = true,
};

static const char *skip_unchanged(const char *at, const char *end, bool lossy)
{
    at = skip_plain(at, end);
    while (at < end && (is_plain[(unsigned char)*at] || (!lossy && (unsigned char)*at >= 0x80 && !is_half(at, end))))
        at++;
    return at;
}

// Encodes a character that is NUL or not ASCII, and cannot be copied. Returns its length in the text.
static size_t encode_odd(const char *at, const char *end, struct buf *out, bool lossy)
{
    const unsigned char *byte = (const unsigned char *)at;
    size_t len = *at ? utf8_len(byte, (size_t)(end - at)) : 0;
    bool half = !len && is_half(at, end);
    if (half && !lossy)
        buf_printf(out, "\\u%04x", 0xD000U | (byte[1] & 0x3FU) << 6 | (byte[2] & 0x3FU));
    else
        buf_put(out, len ? at : "\xEF\xBF\xBD", len ? len : 3);
    return half ? 3 : len ? len : 1;
}

static void encode(struct span text, struct buf *out, bool lossy)
{
    const char *at = text.at ? text.at : "", *end = at + text.len;
    buf_reserve(out, text.len + 2);
    buf_put_char(out, '"');
    while (at < end) {
        const char *start = at;
        at = skip_unchanged(at, end, lossy);
        buf_put(out, start, (size_t)(at - start));
        if (at >= end)
            break;
        if ((unsigned char)*at < 0x80 && !(lossy && !*at)) {
            encode_char((unsigned char)*at++, out);
            continue;
        }
        at += encode_odd(at, end, out, lossy);
    }
    buf_put_char(out, '"');
}

void scan_encode(struct span text, struct buf *out) { encode(text, out, false); }

void scan_encode_lossy(struct span text, struct buf *out) { encode(text, out, true); }

void scan_put_shown(struct span json, struct buf *out)
{
    const unsigned char *bytes = (const unsigned char *)json.at;
    for (size_t i = 0; i < json.len; i++) {
        bool pair = bytes[i] == 0xC2 && i + 1 < json.len && bytes[i + 1] >= 0x80 && bytes[i + 1] < 0xA0;
        if (pair || bytes[i] == 0x7F)
            buf_printf(out, "\\u%04x", bytes[i += pair]);
        else
            buf_put_char(out, json.at[i]);
    }
}

void scan_put_before(struct span text, struct span raw_string, struct buf *out)
{
    scan_encode(text, out);
    out->len--;  // the closing quote
    buf_put_span(out, span_after(raw_string, 1));
}
