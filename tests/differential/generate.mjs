// Random JSON as text: valid, and as unusual as the grammar permits.

/** Random numbers that depend only on the seed and the number of the message. */
export class Random {
    constructor(seed, number) {
        this.state = (Math.imul(seed, 0x9e3779b1) ^ Math.imul(number + 1, 0x85ebca6b)) >>> 0;
        for (let i = 0; i < 4; i++) this.next();
    }

    next() {
        this.state = (this.state + 0x6d2b79f5) >>> 0;
        let t = this.state;
        t = Math.imul(t ^ (t >>> 15), t | 1);
        t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
        return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    }

    below(n) {
        return Math.floor(this.next() * n);
    }

    chance(p) {
        return this.next() < p;
    }

    pick(array) {
        return array[this.below(array.length)];
    }

    /** The array in random order. */
    shuffle(array) {
        const out = [...array];
        for (let i = out.length - 1; i > 0; i--) {
            const k = this.below(i + 1);
            [out[i], out[k]] = [out[k], out[i]];
        }
        return out;
    }
}

const NUMBERS = ['0', '-0', '1', '-1', '1.0', '1.00', '0.10', '-0.0', '1e400', '-1E+400', '1e-999', '1E5', '1e-07', '12345678901234567890', '9007199254740993', '-9223372036854775809', '3.141592653589793238462643383279', '1e0', '0e0', '2147483648'];
const STRINGS = ['', ' ', 'text', 'é', '😀', '\u2028', '\u2029', '\ufeff', '\ufffd', '\u007f', '\u0085', '\u0000', '\u0001\b\f\n\r\t\u001f', '"', '\\', '/', '\\u0041', '\\ud83d', 'null', '1e400', 'file:///a', 'postern://s/file:///a', 's__tool', '</script>', '{"a":1}', 'event: x', 'data: y', ': c', 'ключ', '日本', '\u{10ffff}', '\ud83d', '\ude00\ud83d', '\udfff', 'a'.repeat(130)];
/** Names of members of the protocol, and of JavaScript, that have no meaning in data. */
const KEYS = ['', 'uri', 'name', 'taskId', 'task', '_meta', 'cursor', 'nextCursor', 'type', 'content', 'contents', 'resource', 'messages', 'progressToken', 'jsonrpc', 'id', 'method', 'params', 'result', 'error', 'data', 'logger', 'message', 'ui', 'resourceUri', 'uriTemplate', '__proto__', 'constructor', 'length', 'Name', 'URI', '*', 'a b', 'é', '\u0000', '\u2028', '$ref', 'x"y', 'a\\b', 'a/b', '\udc00'];
const SIZES = [2_000, 40_000, 300_000];

export class Json {
    /** `breaks` makes the text of a line break, `levels` bounds deep values; `duplicates` permits duplicate keys. */
    constructor(random, { breaks, levels = 40, duplicates = false } = {}) {
        Object.assign(this, { random, breaks, levels, duplicates });
        this.airy = random.chance(0.3);
        this.large = random.chance(0.02) ? 1 : 0;
    }

    space() {
        const { random } = this;
        if (!this.airy || random.chance(0.6)) return '';
        if (this.breaks && random.chance(0.2)) return this.breaks(random.pick(['\n', '\r\n', '\r']));
        return random.pick([' ', '  ', '\t', ' \t ']);
    }

    /** A string literal with this value: characters as they are, or escaped in any way. */
    spell(value, odd = 0.03) {
        const { random } = this;
        let out = '"';
        for (const character of value) {
            const code = character.codePointAt(0);
            const short = { '"': '\\"', '\\': '\\\\', '\b': '\\b', '\f': '\\f', '\n': '\\n', '\r': '\\r', '\t': '\\t' }[character];
            const escape = short !== undefined || code < 0x20 || (code >= 0xd800 && code <= 0xdfff);
            if (!escape && !random.chance(odd)) out += character;
            else if (short && random.chance(0.7)) out += short;
            else if (character === '/' && random.chance(0.7)) out += '\\/';
            else for (let i = 0; i < character.length; i++) out += this.hex(character.charCodeAt(i));
        }
        return `${out}"`;
    }

    hex(unit) {
        const digits = unit.toString(16).padStart(4, '0');
        return `\\u${this.random.chance(0.5) ? digits : digits.toUpperCase()}`;
    }

    string() {
        const { random } = this;
        if (this.large && random.chance(0.2)) {
            this.large = 0;
            return this.spell(random.pick(['x', 'é', '"', '\n', '😀']).repeat(random.pick(SIZES)), 0);
        }
        return this.spell(Array.from({ length: random.below(3) + 1 }, () => random.pick(STRINGS)).join(''));
    }

    number() {
        const { random } = this;
        return random.chance(0.7) ? random.pick(NUMBERS) : `${random.chance(0.5) ? '-' : ''}${1 + random.below(9)}${random.below(1e9)}${random.chance(0.5) ? `.${random.below(1e6)}` : ''}${random.chance(0.3) ? `e${random.below(40) - 20}` : ''}`;
    }

    value(depth = 4) {
        const { random } = this;
        if (random.chance(0.005)) return this.deep();
        if (depth <= 0 || random.chance(0.55)) return random.pick([() => this.number(), () => this.string(), () => random.pick(['true', 'false', 'null'])])();
        return random.chance(0.4) ? this.array(Array.from({ length: random.below(4) }, () => this.value(depth - 1))) : this.object([], { more: random.below(4), depth: depth - 1 });
    }

    deep() {
        const pairs = 1 + this.random.below(this.levels / 2);
        return ['{"uri":['.repeat(pairs), '"file:///deep"', ']}'.repeat(pairs)];
    }

    array(elements) {
        return ['[', this.space(), elements.map((element, i) => [i ? [',', this.space()] : '', element, this.space()]), ']'];
    }

    /**
     * An object with these members ([key, text], in random order; those that are undefined are omitted) and up to `more` random ones,
     * except those in `reserved` and those for which `taken` is true.
     */
    object(members, { more = 0, depth = 2, reserved = [], taken = () => false } = {}) {
        const { random } = this;
        const keys = new Set([...members.map(([key]) => key), ...reserved]);
        const all = members.filter(([, text]) => text !== undefined).map(([key, text]) => [this.spell(key, 0.005), text]);
        for (let i = 0; i < more; i++) {
            const key = random.pick(random.chance(0.8) ? KEYS : STRINGS);
            if (keys.has(key) || taken(key)) continue;
            keys.add(key);
            all.push([this.spell(key), this.value(depth)]);
            if (this.duplicates && random.chance(0.05)) all.push([this.spell(key), this.value(depth)]);
        }
        return this.members(random.shuffle(all));
    }

    /** An object with exactly these members, in this order. */
    members(all) {
        return ['{', this.space(), all.map(([key, text], i) => [i ? [',', this.space()] : '', key, this.space(), ':', this.space(), text, this.space()]), '}'];
    }

    /** The result of `make`, without large values. */
    small(make) {
        const { large } = this;
        this.large = 0;
        const text = make();
        this.large = large;
        return text;
    }

    /** The result of `make` with probability `p`, else undefined. */
    maybe(make, p = 0.5) {
        return this.random.chance(p) ? make() : undefined;
    }
}
