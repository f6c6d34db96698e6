// Owns the blocks of a document: their line, their language, and the marks in the comments before them.

/** The marks that a comment may have; the value follows after a colon. */
const keys = ['background', 'each line within', 'file', 'root', 'skip', 'status', 'then', 'unit', 'within'];

function readMark(text, where) {
    const key = keys.find(name => text === name || text.startsWith(`${name}:`));
    if (!key) throw new Error(`${where}: unknown mark "${text}"; there are ${keys.join(', ')}`);
    return [key, text.slice(key.length + 1).trim() || true];
}

/** The fenced blocks of a text that have a language: [{line, language, text, marks}]. Blocks of drawings and output have no language. */
export function blocksOf(name, markdown) {
    const blocks = [];
    let open = null, marks = {};
    for (const [index, line] of markdown.split('\n').entries()) {
        const mark = /^<!-- docs-test: (.*) -->$/.exec(line);
        if (open && line === '```') {
            if (open.language) blocks.push(open);
            open = null;
        } else if (open) {
            open.text += `${line}\n`;
        } else if (line.startsWith('```')) {
            open = { name, line: index + 1, language: line.slice(3), text: '', marks };
            marks = {};
        } else if (mark) {
            const [key, value] = readMark(mark[1], `${name}:${index + 1}`);
            marks[key] = value;
        } else if (Object.keys(marks).length) {
            throw new Error(`${name}:${index + 1}: a mark must be right before its block`);
        }
    }
    if (open) throw new Error(`${name}:${open.line}: the block has no end`);
    for (const block of blocks) if (block.marks.skip === true) throw new Error(`${name}:${block.line}: skip needs a reason`);
    return blocks;
}

/** The JSON texts of a block: the block itself, or the text around it that a mark gives. */
export function wholes({ text, marks }) {
    if (marks.within) return [marks.within.replace('…', () => text)];
    if (marks['each line within']) return text.trim().split('\n').map(line => marks['each line within'].replace('…', () => line));
    return [text];
}
