// Texts with two sides: as the server writes or reads them (`own`), and as the caller does (`seen`).
//
// A text is a string, a part, or an array of texts. A part is a text that the gateway may change: {row, own, seen}, where `row`
// is its row in differences.mjs. A value that one side cannot know in advance is a regular expression on that side; `as` names its match.
// `send` has the text that a side writes if it differs from the expected one, such as another spelling of the same string.

const utf8 = text => Buffer.from(text, 'utf8').toString('latin1'); // one character for each byte

/** The text as one side sends it. */
export function sent(text, side) {
    if (typeof text === 'string') return text;
    return Array.isArray(text) ? text.map(one => sent(one, side)).join('') : (text.send?.[side] ?? text[side]);
}

/** The number of uses of each row of the table. */
export const needed = new Map();
export const need = ({ row }) => needed.set(row, (needed.get(row) ?? 0) + 1);

/**
 * Compares bytes that arrived (as latin1) with the text that this side must get. Returns {at, expected} of the first byte that
 * differs, or {found}: the matches of the expressions with a name.
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
