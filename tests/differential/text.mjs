// Texts with two sides: what the server writes or reads (`own`), and what the caller does (`seen`).
//
// A text is a string, a part, or an array of texts. A part is what the gateway may change: {row, own, seen}, where `row` is its
// row in differences.mjs. What one side cannot know in advance is a regular expression on that side; `as` names what it matched.
// `send` has what a side writes where that is not what it would be expected to get: an odd spelling of the same string.

const utf8 = text => Buffer.from(text, 'utf8').toString('latin1'); // one character for each byte

/** The text as one side sends it. */
export function sent(text, side) {
    if (typeof text === 'string') return text;
    return Array.isArray(text) ? text.map(one => sent(one, side)).join('') : (text.send?.[side] ?? text[side]);
}

/** How often each row of the table was needed. */
export const needed = new Map();
export const need = ({ row }) => needed.set(row, (needed.get(row) ?? 0) + 1);

/**
 * Compares bytes that arrived (as latin1) with the text that this side must get. Gives {at, expected} of the first byte that
 * differs, or {found}: what the expressions with a name matched.
 */
export function compare(text, side, received) {
    const found = {};
    let at = 0;
    for (const part of [text].flat(Infinity)) {
        const value = part[side] ?? part;
        if (part.row) need(part);
        if (value instanceof RegExp) {
            const match = new RegExp(value.source, 'y');
            match.lastIndex = at;
            const [matched] = match.exec(received) ?? [];
            if (matched === undefined) return { at, expected: String(value) };
            if (part.as) found[part.as] = matched;
            at += matched.length;
        } else {
            const bytes = utf8(value);
            if (!received.startsWith(bytes, at)) {
                let same = 0;
                while (bytes[same] === received[at + same]) same++;
                return { at: at + same, expected: bytes.slice(same) };
            }
            at += bytes.length;
        }
    }
    return at === received.length ? { found } : { at, expected: '' };
}
