// A JSON scanner over raw bytes: validates strictly and returns spans, so that unchanged parts are passed on byte for
// byte. No tree, no allocation (except for the duplicate check), no number conversion.
//
// Two ways to use it:
//   scan_document()  checks untrusted text (grammar, UTF-8, depth, duplicates if asked).
//   scan_member() and scan_element()  walk text that has been accepted.
#ifndef BASE_SCAN_H
#define BASE_SCAN_H

#include "base/buf.h"
#include "base/err.h"
#include "base/span.h"
#include <stdbool.h>

#define SCAN_DEPTH_MAX 128

struct scan {
    const char *at;
    const char *end;
    const char *start;
    const char *problem;     // set when a scan fails
    bool reject_duplicates;  // in every object
    bool no_memory;          // the scan failed because memory ran out
    bool lines;              // the white space contains a line end
};

void scan_start(struct scan *scan, struct span text, bool reject_duplicates);
void scan_space(struct scan *scan);
bool scan_value(struct scan *scan, struct span *value) MUST_CHECK;
// Moves from the brace of an object (`first`), or from the end of a member's value, to the next value, which
// scan_value() takes.
enum scan_step { SCAN_BROKEN, SCAN_OVER, SCAN_MEMBER };                               // OVER: the object has ended
enum scan_step scan_key(struct scan *scan, bool first, struct span *key) MUST_CHECK;  // raw, with its quotes
// One whole document: a value, optional white space, and nothing after it.
bool scan_document(struct span text, bool reject_duplicates, struct span *value, struct err *err) MUST_CHECK;

// Walks a valid object or array. `value` is the raw JSON text of each member or element.
struct scan_walk {
    const char *at;
    const char *end;
};
struct scan_walk scan_walk(struct span container);
bool scan_member(struct scan_walk *walk, struct span *raw_key, struct span *value);
bool scan_element(struct scan_walk *walk, struct span *value);

// First member of that name in a valid object (keys written with escapes are compared decoded).
bool scan_find(struct span object, const char *key, struct span *value);
bool scan_key_is(struct span raw_key, const char *key);

unsigned scan_depth(struct span value);  // of a valid value: 0 for a text or number, 1 for [], 2 for [{}]

static inline bool scan_is_string(struct span v) { return v.len >= 2 && v.at[0] == '"'; }
static inline bool scan_is_object(struct span v) { return v.len >= 2 && v.at[0] == '{'; }
static inline bool scan_is_array(struct span v) { return v.len >= 2 && v.at[0] == '['; }
static inline bool scan_is_number(struct span v)
{
    return v.len && (v.at[0] == '-' || (v.at[0] >= '0' && v.at[0] <= '9'));
}

bool scan_is_utf8(struct span text);                        // any text, not JSON
void scan_mend(char *text, size_t len);                     // makes it UTF-8, in place: U+FFFD or '?' for invalid bytes
size_t scan_cut(struct span text, size_t max);              // how many bytes of UTF-8 fit, in whole characters
void scan_decode(struct span raw_string, struct buf *out);  // appends the string's characters
void scan_encode(struct span text, struct buf *out);        // appends a quoted JSON string
void scan_encode_lossy(struct span text, struct buf *out);  // same; NUL and invalid UTF-8 become U+FFFD
// Appends the JSON text, with U+007F to U+009F, on some of which terminals act, as escapes.
void scan_put_shown(struct span json, struct buf *out);
void scan_put_before(struct span text, struct span raw_string, struct buf *out);  // the string, with the text in front

// Half a surrogate pair ("\ud83d" alone) is valid JSON but not a character, and readers disagree about it.
bool scan_has_half(struct span text);  // of decoded text
// Appends JSON text, valid or not, with "\u0000" in place of each half. False: it has no half, and nothing was
// appended.
bool scan_mask_halves(struct span json, struct buf *out);

#endif
