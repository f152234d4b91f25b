/* A second reader of datasets, written from docs/format.md alone: it shares no line with tokmill.
 *
 *     cc -std=c11 -O2 -o reader reader.c
 *     ./reader DIRECTORY
 *
 * It checks what the page promises of every file, and prints the identity, documents and packs.
 * Exit status: 0 all of it holds; 1 something does not, in one line on standard error; 2 there is no
 * finished dataset, or one of a later version. Of .meta and tokenizer.zst it checks the sums alone.
 * Everything is read into memory, and packing is quadratic: it is for small datasets.
 */
#include "basics.h"
#include "json.h"
#include "sums.h"

typedef struct {
    const char *name;
    uint8_t *bytes;
    size_t size;
} File;

static const char *directory;
static Value *manifest;
static uint64_t width;           /* bytes of a token */
static bool sft;

/* ---- files ---- */

static File read_file(const char *name) {
    char *path = text("%s/%s", directory, name);
    struct stat status;
    check(lstat(path, &status) == 0, "%s: missing", name);
    check(S_ISREG(status.st_mode), "%s: not a file", name);
    File file = {name, make((size_t)status.st_size), (size_t)status.st_size};
    FILE *stream = fopen(path, "rb");
    check(stream && fread(file.bytes, 1, file.size, stream) == file.size, "%s: cannot be read", name);
    fclose(stream);
    return file;
}

/* Write values of a list or an object, each on its own line, and return the end of what is written. */
static char *put_lines(char *out, const Value *of, char open, char close, bool rows) {
    *out++ = open;
    for (const Value *v = of->first; v; v = v->next) {
        if (v != of->first) *out++ = ',';
        *out++ = '\n';
        bool is_rows = rows && v->type == '[' && v->first && is_one_of(v->first->type, "[{");
        const char *end = is_rows ? v->body : v->stop;
        memcpy(out, v->start, (size_t)(end - v->start));
        out += end - v->start;
        if (is_rows) out = put_lines(out, v, '[', ']', false);
    }
    *out++ = '\n';
    *out++ = close;
    return out;
}

/* Check the form of manifest.json or plan.json, and that its own sum is that of the rest. */
static Value *read_summed(const char *name, const char *key) {
    File file = read_file(name);
    Parser p;
    Value *value = parse(&p, name, file.bytes, file.size);
    if (count(value, "format_version") != 1) stop(2, "%s: of another version than 1", name);
    const char *begin = (char *)file.bytes, *end = begin + file.size;
    char *form = make(2 * file.size + 8), *out = put_lines(form, value, '{', '}', true);
    *out++ = '\n';
    bool has_form = (size_t)(out - form) == file.size && !memcmp(form, begin, file.size);
    check(p.canonical && has_form, "%s: not in its form", name);
    Value *own = get(value, key);
    check(own != value->first, "%s: begins with its sum", name);
    out = form;
    for (const char *at = begin; at < end; at++) {
        bool is_own = at >= own->start - 2 && at < own->stop; /* with the comma and line end before */
        if (!is_own && *at != '\n') *out++ = *at;
    }
    *out++ = '\n';
    check(is(value, key, sha256((uint8_t *)form, (size_t)(out - form))), "%s: differs from its sum", name);
    return value;
}

static const char *algorithm(const Value *entry) { return find(entry, "blake3") ? "blake3" : "sha256"; }

static Value *entry_of(const char *name) {
    for (Value *v = first(manifest, "files"); v; v = v->next)
        if (is(v, "name", name)) return v;
    return NULL;
}

static File listed(const char *name) {
    check(entry_of(name), "%s: not listed", name);
    return read_file(name);
}

static File listed_of_size(const char *name, uint64_t bytes) {
    File file = listed(name);
    check(file.size == bytes, "%s: of another size than its counts say", name);
    return file;
}

static void check_files(void) {
    const Value *files = first(manifest, "files");
    for (const Value *entry = files; entry; entry = entry->next) {
        const char *name = string(entry, "name"), *kind = algorithm(entry);
        check(*name != '/' && !strstr(name, ".."), "%s: not a name of the dataset", name);
        check(entry_of(name) == entry, "%s: listed twice", name);
        check(!strcmp(kind, algorithm(files)), "%s: another algorithm", name);
        File file = read_file(name);
        check((int64_t)file.size == count(entry, "bytes"), "%s: %zu bytes", name, file.size);
        const char *found = *kind == 'b' ? blake3(file.bytes, file.size) : sha256(file.bytes, file.size);
        check(is(entry, kind, found), "%s: differs from its sum", name);
        free(file.bytes);
    }
}

static void check_nothing_else(const char *folder) {
    DIR *open = opendir(text("%s/%s", directory, folder));
    check(open, "%s: cannot be read", folder);
    for (struct dirent *found; (found = readdir(open));) {
        if (found->d_name[0] == '.') continue;
        const char *name = text("%s%s", folder, found->d_name);
        struct stat status;
        check(lstat(text("%s/%s", directory, name), &status) == 0, "%s: missing", name);
        bool is_folder = !strcmp(name, "parts") || !strcmp(name, "rejects");
        if (is_folder && S_ISDIR(status.st_mode)) check_nothing_else(text("%s/", name));
        else check(!strcmp(name, "manifest.json") || entry_of(name), "%s: not listed", name);
    }
    closedir(open);
}

static void check_part(const char *name) {
    File file = read_file(name);
    Parser p;
    Value *record = parse(&p, name, file.bytes, file.size);
    bool is_line = p.canonical && p.line_ends == 1 && file.bytes[file.size - 1] == '\n';
    check(is_line && count(record, "format_version") == 1, "%s: not in its form", name);
    const char *expected = text("parts/%07" PRId64 ".json", count(record, "part"));
    check(!strcmp(name, expected), "%s: of another part", name);
    for (Value *shard = first(record, "shards"); shard; shard = shard->next)
        for (Value *one = first(shard, "files"); one; one = one->next) {
            const char *of = string(one, "name");
            Value *entry = entry_of(of);
            check(entry, "%s: %s is not listed", name, of);
            check(is(one, algorithm(entry), string(entry, algorithm(entry))), "%s: %s", name, of);
        }
}

/* Return the number of rejects of a part. */
static int64_t read_rejects(const char *name) {
    File file = read_file(name);
    int64_t lines = 0;
    for (uint8_t *at = file.bytes, *end; at < file.bytes + file.size; at = end + 1, lines++) {
        end = memchr(at, '\n', file.size - (size_t)(at - file.bytes));
        check(end, "%s: its last line has no end", name);
        Parser p;
        Value *reject = parse(&p, name, at, (size_t)(end - at));
        bool is_whole = find(reject, "source") && find(reject, "byte_offset") && find(reject, "line");
        bool is_told = find(reject, "reason") && find(reject, "message");
        bool is_kept = find(reject, "raw") || find(reject, "raw_base64");
        check(is_whole && is_told && is_kept, "%s: a key is missing", name);
    }
    return lines;
}

/* ---- shards ---- */

typedef struct {
    int64_t slice, record, byte; /* the slice of the part; the record and the byte in it */
} Origin;

typedef struct {
    const char *name, *split;
    uint64_t documents, tokens;
    int64_t first_slice;
    uint64_t *starts;            /* of each document, in tokens, and the end of the last */
    const uint8_t *ids, *mask, *weight;
    Origin *origins;             /* NULL in a dataset without them */
} Shard;

static uint64_t id_at(const Shard *shard, uint64_t token) {
    return number(shard->ids + token * width, (int)width);
}

static float weight_at(const Shard *shard, uint64_t token) {
    uint32_t bits = (uint32_t)number(shard->weight + 4 * token, 4);
    float weight;
    memcpy(&weight, &bits, 4);
    return weight;
}

static void read_index(Shard *shard) {
    uint64_t n = shard->documents, at = 0;
    File file = listed_of_size(text("%s.idx", shard->name), 34 + 12 * n + 8 * (n + 1));
    const uint8_t *lengths = file.bytes + 34, *offsets = lengths + 4 * n, *indices = offsets + 8 * n;
    bool is_index = !memcmp(file.bytes, "MMIDIDX\0\0", 9) && number(file.bytes + 9, 8) == 1;
    bool is_counted = number(file.bytes + 18, 8) == n && number(file.bytes + 26, 8) == n + 1;
    check(is_index && file.bytes[17] == (width == 2 ? 8 : 4) && is_counted, "%s: header", file.name);
    shard->starts = make((n + 1) * sizeof *shard->starts);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t length = number(lengths + 4 * i, 4);
        check(length > 0 && length < UINT64_C(1) << 31, "%s: length %" PRIu64, file.name, i);
        check(number(offsets + 8 * i, 8) == at * width, "%s: offset %" PRIu64, file.name, i);
        check(number(indices + 8 * i, 8) == i, "%s: index %" PRIu64, file.name, i);
        shard->starts[i] = at;
        at += length;
    }
    check(number(indices + 8 * n, 8) == n, "%s: the last index", file.name);
    check(at == shard->tokens, "%s: its lengths are not the tokens of the shard", file.name);
    shard->starts[n] = at;
}

static int64_t read_difference(const File *file, size_t *at) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        check(*at < file->size && shift < 64, "%s: breaks off", file->name);
        uint8_t byte = file->bytes[(*at)++];
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return (int64_t)(value >> 1 ^ -(value & 1));
    }
}

static void read_origins(Shard *shard, int64_t n_slices) {
    File file = listed(text("%s.origin", shard->name));
    size_t at = 0;
    int64_t record = 0, byte = 0;
    shard->origins = make(shard->documents * sizeof *shard->origins);
    for (uint64_t i = 0; i < shard->documents; i++) {
        bool is_difference = i % 4096 != 0;
        record = read_difference(&file, &at) + (is_difference ? record : 0);
        byte = read_difference(&file, &at) + (is_difference ? byte : 0);
        Origin origin = {record >> 36, record & ((INT64_C(1) << 36) - 1), byte};
        bool is_slice = record >= 0 && shard->first_slice + origin.slice < n_slices;
        check(is_slice && origin.record >= 1 && byte >= -1, "%s: document %" PRIu64, file.name, i);
        shard->origins[i] = origin;
    }
    check(at == file.size, "%s: bytes behind the last document", file.name);
}

static Shard read_shard(const Value *entry, int64_t n_slices) {
    Shard shard = {.name = string(entry, "name"), .split = string(entry, "split")};
    shard.documents = (uint64_t)count(entry, "documents");
    shard.tokens = (uint64_t)count(entry, "tokens");
    check(shard.documents > 0, "%s: no documents", shard.name);
    shard.ids = listed_of_size(text("%s.bin", shard.name), shard.tokens * width).bytes;
    read_index(&shard);
    if (sft) shard.mask = listed_of_size(text("%s.mask", shard.name), shard.tokens).bytes;
    const char *weight = text("%s.weight", shard.name);
    if (entry_of(weight)) shard.weight = listed_of_size(weight, 4 * shard.tokens).bytes;
    if (find(entry, "first_slice")) {
        shard.first_slice = count(entry, "first_slice");
        read_origins(&shard, n_slices);
    }
    return shard;
}

static bool is_in(const Value *entry, uint64_t id) {
    for (; entry; entry = entry->next)
        if ((uint64_t)whole(entry) == id) return true;
    return false;
}

/* Check the ids of a shard, and where its documents begin and end; return samples with another end. */
static int64_t check_ids(const Shard *shard) {
    const Value *tokenizer = get(manifest, "tokenizer"), *bos = get(tokenizer, "bos");
    const Value *mask = find(manifest, "mask");
    const Value *ends = sft ? first(get(mask, "ends"), "last_ids") : NULL;
    uint64_t size = (uint64_t)count(tokenizer, "vocab_size");
    uint64_t eos = (uint64_t)count(get(tokenizer, "eos"), "id");
    int64_t other_ends = 0;
    for (uint64_t t = 0; t < shard->tokens; t++)
        check(id_at(shard, t) < size, "%s: token %" PRIu64 " has no id of the vocabulary", shard->name, t);
    for (uint64_t i = 0; i < shard->documents; i++) {
        uint64_t last = id_at(shard, shard->starts[i + 1] - 1), begin = id_at(shard, shard->starts[i]);
        check(sft || last == eos, "%s: document %" PRIu64 " has no eos", shard->name, i);
        check(sft || bos->type != '{' || begin == (uint64_t)count(bos, "id"), "%s: bos", shard->name);
        if (ends && !is_in(ends, last)) other_ends++;
    }
    return other_ends;
}

/* Check the mask of a shard and its weights, and return the trained tokens. */
static int64_t check_targets(const Shard *shard) {
    int64_t trained = 0;
    for (uint64_t i = 0; i < shard->documents; i++) {
        int64_t here = 0;
        check(!shard->mask[shard->starts[i]], "%s: sample %" PRIu64 " trains its first token", shard->name, i);
        for (uint64_t t = shard->starts[i]; t < shard->starts[i + 1]; t++) {
            check(shard->mask[t] <= 1, "%s: mask of token %" PRIu64, shard->name, t);
            float weight = shard->weight ? weight_at(shard, t) : shard->mask[t];
            bool is_finite = weight >= 0 && weight - weight == 0;
            check(is_finite && (weight > 0) == shard->mask[t], "%s: weight %" PRIu64, shard->name, t);
            here += shard->mask[t];
        }
        check(here > 0, "%s: sample %" PRIu64 " trains no token", shard->name, i);
        trained += here;
    }
    return trained;
}

/* ---- sources ---- */

typedef struct {
    const char *path;
    int64_t records, bytes;      /* those of the slices of its file before it */
} Slice;

static Slice *slices;

/* Find where each slice of the dataset stands in its file; return their number. */
static int64_t read_slices(void) {
    int64_t n = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass) slices = make((size_t)n * sizeof *slices);
        n = 0;
        for (Value *source = first(manifest, "sources"); source; source = source->next) {
            Slice here = {string(source, "path"), 0, 0};
            Value *slice = find(source, "slices") ? first(source, "slices") : NULL;
            if (!slice) n++;
            if (!slice && pass) slices[n - 1] = here;
            for (; slice; slice = slice->next, n++) {
                if (pass) slices[n] = here;
                here.records += count(slice, "records");
                here.bytes += count(slice, "bytes");
            }
        }
    }
    return n;
}

static void print_shard(const Shard *shard) {
    for (uint64_t i = 0; i < shard->documents; i++) {
        uint64_t begin = shard->starts[i], end = shard->starts[i + 1];
        printf("%s %" PRIu64 " ids", shard->name, i);
        for (uint64_t t = begin; t < end; t++) printf(" %" PRIu64, id_at(shard, t));
        if (shard->mask) printf(" mask ");
        for (uint64_t t = begin; shard->mask && t < end; t++) putchar('0' + shard->mask[t]);
        if (shard->weight) printf(" weights");
        for (uint64_t t = begin; shard->weight && t < end; t++) printf(" %.9g", weight_at(shard, t));
        if (shard->origins) {
            Origin origin = shard->origins[i];
            Slice slice = slices[shard->first_slice + origin.slice];
            int64_t byte = origin.byte == -1 ? -1 : origin.byte + slice.bytes;
            printf(" record %" PRId64 " byte %" PRId64 " of %s", origin.record + slice.records, byte, slice.path);
        }
        putchar('\n');
    }
}

/* ---- packs ---- */

typedef struct {
    const Shard *shard;
    uint64_t document, from;     /* in the split; its first token in the shard */
    uint64_t start, length;      /* in the document */
    uint64_t row;
} Piece;

static uint64_t documents_of(const Shard *shards, const char *split) {
    uint64_t n = 0;
    for (; shards->name; shards++)
        if (!strcmp(shards->split, split)) n += shards->documents;
    return n;
}

/* Return the pieces of a split, in order: samples of chats are whole. `shards` ends with an empty one. */
static Piece *cut_into_pieces(const Shard *shards, const Value *packs, uint64_t *n, uint64_t *left_out) {
    uint64_t capacity = (uint64_t)count(packs, "capacity"), most = documents_of(shards, packs->key);
    bool cuts = find(packs, "last"), drops = cuts && is(packs, "last", "drop");
    for (const Shard *shard = shards; cuts && shard->name; shard++) most += shard->tokens / capacity;
    Piece *pieces = make(most * sizeof *pieces);
    uint64_t document = 0;
    for (const Shard *shard = shards; shard->name; shard++)
        for (uint64_t i = 0; i < shard->documents && !strcmp(shard->split, packs->key); i++, document++) {
            uint64_t from = shard->starts[i], length = shard->starts[i + 1] - from;
            for (uint64_t start = 0; start < length; start += capacity) {
                uint64_t here = length - start < capacity ? length - start : capacity;
                check(cuts || length <= capacity, "%s: sample %" PRIu64, shard->name, i);
                if (drops && start && here < capacity) *left_out += here;
                else pieces[(*n)++] = (Piece){shard, document, from, start, here, 0};
            }
        }
    return pieces;
}

static int by_length(const void *a, const void *b) {
    const Piece *const *x = a, *const *y = b;
    if ((*x)->length != (*y)->length) return (*x)->length < (*y)->length ? 1 : -1;
    return *x < *y ? -1 : 1;
}

/* Give each piece its row, by best-fit-decreasing, and return the number of rows; most: pieces of a row, 0: any. */
static uint64_t pack_pieces(Piece *pieces, uint64_t n, uint64_t capacity, uint64_t most) {
    const Piece **order = make(n * sizeof *order);
    uint64_t *room = make(n * sizeof *room), *since = make(n * sizeof *since), rows = 0;
    uint64_t *held = make(n * sizeof *held), *names = make(n * sizeof *names), named = 0;
    for (uint64_t i = 0; i < n; i++) order[i] = pieces + i;
    qsort(order, n, sizeof *order, by_length);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t best = rows;
        for (uint64_t row = 0; row < rows; row++) {
            if (room[row] < order[i]->length || (most && held[row] == most)) continue;
            bool is_tighter = best == rows || room[row] < room[best];
            if (is_tighter || (room[row] == room[best] && since[row] < since[best])) best = row;
        }
        if (best == rows) room[rows++] = capacity;
        room[best] -= order[i]->length;
        held[best]++;
        since[best] = i;
        pieces[order[i] - pieces].row = best;
    }
    for (uint64_t row = 0; row < rows; row++) names[row] = n;
    for (uint64_t i = 0; i < n; i++) {
        if (names[pieces[i].row] == n) names[pieces[i].row] = named++;
        pieces[i].row = names[pieces[i].row];
    }
    return rows;
}

/* Check that a packed row holds these pieces, then padding. */
static uint64_t check_piece(const Shard *packed, uint64_t at, const Piece *piece) {
    for (uint64_t t = piece->from; t < piece->from + piece->length; t++, at++) {
        bool is_same = id_at(packed, at) == id_at(piece->shard, t) && packed->mask[at] == piece->shard->mask[t];
        bool is_weight = !packed->weight || weight_at(packed, at) == weight_at(piece->shard, t);
        check(is_same && is_weight, "%s: token %" PRIu64, packed->name, at);
    }
    return at;
}

static void check_padding(const Shard *packed, uint64_t at, uint64_t end) {
    uint64_t eos = (uint64_t)count(get(get(manifest, "tokenizer"), "eos"), "id");
    for (; at < end; at++) {
        bool is_weight = packed->weight && number(packed->weight + 4 * at, 4);
        check(id_at(packed, at) == eos && !packed->mask[at] && !is_weight, "%s: padding", packed->name);
    }
}

static void check_packed_rows(const Value *packs, const Piece *const *members, const uint64_t *ends) {
    uint64_t row = 0, i = 0;
    for (Value *entry = first(packs, "shards"); entry; entry = entry->next) {
        Shard packed = read_shard(entry, 0);
        for (uint64_t r = 0; r < packed.documents; r++, row++) {
            uint64_t at = packed.starts[r], end = packed.starts[r + 1];
            bool is_whole = end - at == (uint64_t)count(packs, "capacity");
            check(is_whole && row < (uint64_t)count(packs, "rows"), "%s: row %" PRIu64, packed.name, r);
            for (; i < ends[row]; i++) at = check_piece(&packed, at, members[i]);
            check_padding(&packed, at, end);
        }
    }
    check(row == (uint64_t)count(packs, "rows"), "packs: %" PRIu64 " packed rows", row);
}

static void check_index(const Value *packs, const Piece *const *members, const uint64_t *ends, uint64_t n) {
    uint64_t rows = (uint64_t)count(packs, "rows");
    const char *split = packs->key, *stem = text("packs-%s", split);
    bool cuts = find(packs, "last");
    if (cuts) stem = text("%s-%" PRId64 "-%s", stem, count(packs, "capacity"), string(packs, "last"));
    if (cuts && find(packs, "max_samples_per_row"))
        stem = text("%s-%" PRId64, stem, count(packs, "max_samples_per_row"));
    File offsets = listed_of_size(text("%s-rows.bin", stem), 8 * (rows + 1));
    File samples = listed_of_size(text("%s-samples.bin", stem), 8 * n);
    check(number(offsets.bytes, 8) == 0, "%s: entry 0", offsets.name);
    for (uint64_t row = 0; row < rows; row++) {
        check(number(offsets.bytes + 8 * (row + 1), 8) == ends[row], "%s: row %" PRIu64, offsets.name, row);
        printf("%s row %" PRIu64, stem, row);
        for (uint64_t i = row ? ends[row - 1] : 0; i < ends[row]; i++) {
            const Piece *p = members[i];
            check(number(samples.bytes + 8 * i, 8) == p->document, "%s: entry %" PRIu64, samples.name, i);
            printf(" %" PRIu64 "[%" PRIu64 ":%" PRIu64 "]", p->document, p->start, p->start + p->length);
        }
        putchar('\n');
    }
    if (!cuts) return;
    File pieces = listed_of_size(text("%s-pieces.bin", stem), 8 * n);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t start = number(pieces.bytes + 8 * i, 4), length = number(pieces.bytes + 8 * i + 4, 4);
        check(start == members[i]->start && length == members[i]->length, "%s: entry %" PRIu64, pieces.name, i);
    }
}

/* Pack a split again, and compare; print the rows. */
static void check_packs(const Value *packs, const Shard *shards) {
    enum { GROUP = 1 << 18 };
    uint64_t n = 0, left_out = 0, rows = 0, tokens = 0, capacity = (uint64_t)count(packs, "capacity");
    uint64_t most = (uint64_t)count_or_0(packs, "max_samples_per_row");
    bool cuts = find(packs, "last");
    Piece *pieces = cut_into_pieces(shards, packs, &n, &left_out);
    for (uint64_t done = 0; done < n;) {
        uint64_t here = cuts && n - done > GROUP ? GROUP : n - done;
        uint64_t new_rows = pack_pieces(pieces + done, here, capacity, most);
        for (uint64_t i = 0; i < here; i++, done++) pieces[done].row += rows;
        rows += new_rows;
    }
    check(rows == (uint64_t)count(packs, "rows"), "packs: %" PRIu64 " rows", rows);
    const Piece **members = make(n * sizeof *members);
    uint64_t *ends = make((rows + 1) * sizeof *ends), *filled = make(rows * sizeof *filled);
    for (uint64_t i = 0; i < n; i++) ends[pieces[i].row]++;
    for (uint64_t row = 0, at = 0; row < rows; row++) {
        at += ends[row];
        filled[row] = at - ends[row];
        ends[row] = at;
    }
    for (uint64_t i = 0; i < n; i++) {
        members[filled[pieces[i].row]++] = pieces + i;
        tokens += pieces[i].length;
    }
    check(tokens == (uint64_t)count(packs, "tokens"), "packs: %" PRIu64 " tokens", tokens);
    check(documents_of(shards, packs->key) == (uint64_t)count(packs, "samples"), "packs: samples");
    check(!cuts || n == (uint64_t)count(packs, "pieces"), "packs: pieces");
    check(!cuts || left_out == (uint64_t)count(packs, "left_out"), "packs: left_out");
    check(!cuts || rows * capacity - tokens == (uint64_t)count(packs, "padding"), "packs: padding");
    double fill = strtod(get(packs, "fill")->digits, NULL) - (double)tokens / (double)(rows * capacity);
    check(fill < 6e-7 && fill > -6e-7, "packs: fill");
    check_index(packs, members, ends, n);
    if (find(packs, "shards")) check_packed_rows(packs, members, ends);
}

/* ---- counts ---- */

static void check_records(const Value *counts, const char *where) {
    int64_t outcomes = count(counts, "documents") + sum(counts, "drops") + sum(counts, "rejects");
    check(count(counts, "records") + count_or_0(counts, "extra") == outcomes, "%s: records", where);
}

static void check_histogram(const Shard *shards) {
    int64_t lengths[64] = {0};
    for (; shards->name; shards++)
        for (uint64_t i = 0; i < shards->documents; i++) {
            int power = 0;
            while ((shards->starts[i + 1] - shards->starts[i]) >> (power + 1)) power++;
            lengths[power]++;
        }
    const Value *entry = first(manifest, "length_histogram");
    for (int i = 0; i < 64; i++, entry = entry ? entry->next : NULL)
        check((entry ? whole(entry) : 0) == lengths[i], "length_histogram: entry %d", i);
}

static void check_totals(const Shard *shards, int64_t trained) {
    const Value *totals = get(manifest, "totals");
    int64_t documents = 0, tokens = 0, rejects = 0;
    for (; shards->name; shards++) {
        documents += (int64_t)shards->documents;
        tokens += (int64_t)shards->tokens;
    }
    check(documents == count(totals, "documents"), "totals: documents");
    check(tokens == count(totals, "tokens"), "totals: tokens");
    check(trained == count_or_0(totals, "trained_tokens"), "totals: trained_tokens");
    check_records(totals, "totals");
    for (Value *source = first(manifest, "sources"); source; source = source->next) {
        check_records(source, string(source, "path"));
        documents -= count(source, "documents");
        tokens -= count(source, "tokens");
        trained -= count_or_0(source, "trained_tokens");
    }
    check(!documents && !tokens && !trained, "totals: not the sum of the sources");
    for (Value *file = first(manifest, "files"); file; file = file->next) {
        const char *name = string(file, "name");
        if (!strncmp(name, "parts/", 6)) check_part(name);
        if (!strncmp(name, "rejects/", 8)) rejects += read_rejects(name);
    }
    check(rejects == sum(totals, "rejects"), "rejects/: %" PRId64 " lines", rejects);
}

/* ---- the dataset ---- */

static char *put_sums(char *out, const char *split, const Shard *shards) {
    static const char *const endings[] = {"bin", "idx", "mask", "weight"};
    const char *comma = "";
    out += sprintf(out, ",\"%s\":[", split);
    for (; shards->name; shards++)
        for (int e = 0; e < 4 && !strcmp(shards->split, split); e++) {
            Value *entry = entry_of(text("%s.%s", shards->name, endings[e]));
            if (!entry) continue;
            out += sprintf(out, "%s\"%s\"", comma, string(entry, algorithm(entry)));
            comma = ",";
        }
    return out + sprintf(out, "]");
}

static void print_identity(const Shard *shards) {
    const char *kind = algorithm(first(manifest, "files"));
    char *made = make(1024 + 80 * get(manifest, "files")->count), *out = made;
    out += sprintf(out, "{\"algorithm\":\"%s\",\"dtype\":\"%s\",\"eos\":%" PRId64 ",\"kind\":\"%s\"", kind,
                   string(manifest, "dtype"), count(get(get(manifest, "tokenizer"), "eos"), "id"),
                   string(manifest, "kind"));
    out = put_sums(out, "train", shards);
    out = put_sums(out, "val", shards);
    out += sprintf(out, "}\n");
    printf("identity %s:%s\n", kind, sha256((uint8_t *)made, (size_t)(out - made)));
}

static void print_marks(const char *kind, const char *split, const Shard *shards) {
    const char *name = text("%s-%s.bin", kind, split);
    if (!entry_of(name)) return;
    File file = listed_of_size(name, documents_of(shards, split));
    printf("%s ", name);
    for (size_t i = 0; i < file.size; i++) {
        check(file.bytes[i] <= 1, "%s: byte %zu", name, i);
        putchar('0' + file.bytes[i]);
    }
    putchar('\n');
}

int main(int n_arguments, char **arguments) {
    if (n_arguments != 2) stop(2, "usage: reader DIRECTORY");
    directory = arguments[1];
    struct stat status;
    if (lstat(text("%s/manifest.json", directory), &status)) stop(2, "no manifest.json: not finished");
    manifest = read_summed("manifest.json", "sha256");
    sft = is(manifest, "kind", "sft");
    width = is(manifest, "dtype", "uint16") ? 2 : 4;
    check(sft || is(manifest, "kind", "pretrain"), "kind: neither pretrain nor sft");
    check(width == 2 || is(manifest, "dtype", "uint32"), "dtype: neither uint16 nor uint32");
    check_files();
    check_nothing_else("");
    if (entry_of("plan.json")) {
        Value *plan = read_summed("plan.json", "fingerprint");
        check(is(plan, "format", "tokmill plan"), "plan.json: of another format");
    }
    int64_t n_slices = read_slices(), trained = 0, other_ends = 0;
    const Value *entry = first(manifest, "shards");
    Shard *shards = make((get(manifest, "shards")->count + 1) * sizeof *shards);
    for (Shard *shard = shards; entry; entry = entry->next, shard++) {
        *shard = read_shard(entry, n_slices);
        other_ends += check_ids(shard);
        if (sft) trained += check_targets(shard);
    }
    int64_t may_differ = sft ? count(get(manifest, "mask"), "cut") : 0;
    check(other_ends <= may_differ, "%" PRId64 " samples with an end that is not allowed", other_ends);
    check_histogram(shards);
    check_totals(shards, trained);
    print_identity(shards);
    for (const Shard *shard = shards; shard->name; shard++) print_shard(shard);
    const Value *packs = find(manifest, "packs");
    for (const Value *split = packs ? packs->first : NULL; split; split = split->next)
        check_packs(split, shards);
    print_marks("contaminated", "train", shards);
    print_marks("contaminated", "val", shards);
    print_marks("duplicates", "train", shards);
    print_marks("duplicates", "val", shards);
    return 0;
}
