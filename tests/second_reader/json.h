/* JSON as values in memory, and whether its text is canonical. */
#include "basics.h"

typedef struct Value Value;
struct Value {
    char type;                   /* its first character: { [ " t f n; 0 of a number */
    const char *start, *stop;    /* where it stands in the text, with its key */
    const char *body;            /* the same without its key */
    const char *key, *string;    /* in UTF-8 */
    size_t key_length, length;
    const char *digits;          /* of a number */
    Value *first, *next;         /* its first entry, and the entry behind it */
    size_t count;
};

typedef struct {
    const char *name, *at, *stop;
    int depth;
    size_t line_ends;
    bool canonical;              /* keys sorted, ASCII, and no space but line ends */
} Parser;

static bool is_one_of(char c, const char *characters) { return c && strchr(characters, c); }

static char next(const Parser *p) { return p->at < p->stop ? *p->at : 0; }

static void fail(const Parser *p) { stop(1, "%s: no JSON: %.20s", p->name, p->at); }

static char peek(Parser *p) {
    for (; is_one_of(next(p), " \t\r\n"); p->at++) {
        if (*p->at == '\n') p->line_ends++;
        else p->canonical = false;
    }
    return next(p);
}

static void take(Parser *p, char c) {
    if (peek(p) != c) fail(p);
    p->at++;
}

static uint32_t take_hex_digits(Parser *p) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF";
        if (!is_one_of(next(p), digits)) fail(p);
        value = value << 4 | (uint32_t)((strchr(digits, *p->at) - digits) % 16);
    }
    return value;
}

/* Return the code point of an escape behind \u: two escapes may be a pair of surrogates. */
static uint32_t take_code_point(Parser *p) {
    uint32_t c = take_hex_digits(p);
    const char *behind = p->at;
    if (c >> 10 != 0x36 || p->stop - p->at < 6 || memcmp(p->at, "\\u", 2)) return c;
    p->at += 2;
    uint32_t low = take_hex_digits(p);
    if (low >> 10 == 0x37) return 0x10000 + ((c & 0x3ff) << 10) + (low & 0x3ff);
    p->at = behind;
    return c;
}

static size_t put_utf8(char *out, uint32_t c) {
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(first[n] | c >> 6 * (n - 1));
    for (int i = 1; i < n; i++) out[i] = (char)(0x80 | (c >> 6 * (n - 1 - i) & 63));
    return (size_t)n;
}

static const char *take_string(Parser *p, size_t *length) {
    take(p, '"');
    const char *end = p->at;
    while (end < p->stop && *end != '"') end += *end == '\\' ? 2 : 1;
    if (end >= p->stop) fail(p);
    char *out = make((size_t)(end - p->at));
    size_t n = 0;
    while (p->at < end) {
        const char *names = "\"\\/bfnrt", *values = "\"\\/\b\f\n\r\t";
        uint8_t c = (uint8_t)*p->at++;
        if (c < 0x20) fail(p);
        if (c >= 0x80) p->canonical = false;
        if (c != '\\') {
            out[n++] = (char)c;
        } else if (next(p) == 'u') {
            p->at++;
            n += put_utf8(out + n, take_code_point(p));
        } else {
            if (!is_one_of(next(p), names)) fail(p);
            out[n++] = values[strchr(names, *p->at++) - names];
        }
    }
    take(p, '"');
    *length = n;
    return out;
}

/* Whether key a stands before key b, and is not equal. */
static bool is_before(const Value *a, const Value *b) {
    size_t shorter = a->key_length < b->key_length ? a->key_length : b->key_length;
    int order = memcmp(a->key, b->key, shorter);
    return order < 0 || (order == 0 && a->key_length < b->key_length);
}

static Value *take_value(Parser *p);

static void take_entries(Parser *p, Value *value, char close) {
    p->at++;
    Value **end = &value->first, *last = NULL;
    while (peek(p) != close) {
        if (last) take(p, ',');
        peek(p);
        const char *start = p->at, *key = NULL;
        size_t length = 0;
        if (close == '}') {
            key = take_string(p, &length);
            take(p, ':');
        }
        Value *entry = take_value(p);
        entry->start = start;
        entry->key = key;
        entry->key_length = length;
        if (key && last && !is_before(last, entry)) p->canonical = false;
        *end = last = entry;
        end = &entry->next;
        value->count++;
    }
    p->at++;
}

static void take_number(Parser *p, Value *value) {
    char digits[64] = {0};
    size_t n = 0;
    while (n < 63 && is_one_of(next(p), "+-.0123456789Ee")) digits[n++] = *p->at++;
    if (!n) fail(p);
    value->type = 0;
    value->digits = text("%s", digits);
}

static bool take_word(Parser *p, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(p->stop - p->at) < length || memcmp(p->at, word, length)) return false;
    p->at += length;
    return true;
}

static Value *take_value(Parser *p) {
    Value *value = make(sizeof *value);
    value->type = peek(p);
    value->start = value->body = p->at;
    if (++p->depth > 100) fail(p);
    if (value->type == '{') take_entries(p, value, '}');
    else if (value->type == '[') take_entries(p, value, ']');
    else if (value->type == '"') value->string = take_string(p, &value->length);
    else if (!take_word(p, "true") && !take_word(p, "false") && !take_word(p, "null"))
        take_number(p, value);
    p->depth--;
    value->stop = p->at;
    return value;
}

static Value *parse(Parser *p, const char *name, const void *bytes, size_t size) {
    *p = (Parser){.name = name, .at = bytes, .stop = (const char *)bytes + size, .canonical = true};
    Value *value = take_value(p);
    peek(p);
    if (p->at != p->stop) fail(p);
    return value;
}

static Value *find(const Value *object, const char *key) {
    for (Value *v = object && object->type == '{' ? object->first : NULL; v; v = v->next)
        if (v->key_length == strlen(key) && !memcmp(v->key, key, v->key_length)) return v;
    return NULL;
}

static Value *get(const Value *object, const char *key) {
    Value *value = find(object, key);
    check(value, "%s: missing", key);
    return value;
}

/* Return the first entry of a list. */
static Value *first(const Value *object, const char *key) {
    Value *value = get(object, key);
    check(value->type == '[', "%s: expected a list", key);
    return value->first;
}

static const char *string(const Value *object, const char *key) {
    Value *value = get(object, key);
    check(value->type == '"' && strlen(value->string) == value->length, "%s: expected a text", key);
    return value->string;
}

static bool is(const Value *object, const char *key, const char *expected) {
    return !strcmp(string(object, key), expected);
}

static int64_t whole(const Value *value) {
    char *end = "?";
    errno = 0;
    int64_t n = value->type == 0 ? strtoll(value->digits, &end, 10) : 0;
    check(n >= 0 && !*end && !errno, "%s: expected a whole number", value->key ? value->key : "a list");
    return n;
}

static int64_t count(const Value *object, const char *key) { return whole(get(object, key)); }

static int64_t count_or_0(const Value *object, const char *key) {
    return find(object, key) ? count(object, key) : 0;
}

/* Return the sum of counts by reason. */
static int64_t sum(const Value *object, const char *key) {
    int64_t total = 0;
    Value *reasons = find(object, key);
    for (Value *v = reasons ? reasons->first : NULL; v; v = v->next) total += whole(v);
    return total;
}
