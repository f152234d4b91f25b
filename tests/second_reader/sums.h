/* SHA-256 and BLAKE3 in hex, from their specifications. */
#include "basics.h"

/* ---- SHA-256, from FIPS 180-4 ---- */

static uint32_t rotated(uint32_t x, int right) { return x >> right | x << (32 - right); }

static const uint32_t INITIAL[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static const uint32_t SHA256_ROUNDS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static void sha256_block(uint32_t state[8], const uint8_t block[64]) {
    uint32_t words[64], v[8];
    for (int i = 0; i < 16; i++) {
        const uint8_t *at = block + 4 * i;
        words[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t a = words[i - 15], b = words[i - 2];
        words[i] = words[i - 16] + words[i - 7] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) +
                   (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        uint32_t one = v[7] + (rotated(v[4], 6) ^ rotated(v[4], 11) ^ rotated(v[4], 25)) + choice +
                       SHA256_ROUNDS[i] + words[i];
        uint32_t two = (rotated(v[0], 2) ^ rotated(v[0], 13) ^ rotated(v[0], 22)) + majority;
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++) state[i] += v[i];
}

static const char *hex(const uint8_t *bytes, int count) {
    char *digits = make(2 * (size_t)count);
    for (int i = 0; i < count; i++) sprintf(digits + 2 * i, "%02x", bytes[i]);
    return digits;
}

static const char *sha256(const uint8_t *bytes, size_t size) {
    size_t padded = (size + 9 + 63) / 64 * 64;
    uint8_t *message = make(padded), digest[32];
    memcpy(message, bytes, size);
    message[size] = 0x80;
    for (int i = 0; i < 8; i++) message[padded - 1 - i] = (uint8_t)((uint64_t)size * 8 >> 8 * i);
    uint32_t state[8];
    memcpy(state, INITIAL, sizeof state);
    for (size_t at = 0; at < padded; at += 64) sha256_block(state, message + at);
    free(message);
    for (int i = 0; i < 32; i++) digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
    return hex(digest, 32);
}

/* ---- BLAKE3, from its specification, without key ---- */

enum { CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8 };

static void mix_quarter(uint32_t *s, int a, int b, int c, int d, uint32_t x, uint32_t y) {
    s[a] += s[b] + x;
    s[d] = rotated(s[d] ^ s[a], 16);
    s[c] += s[d];
    s[b] = rotated(s[b] ^ s[c], 12);
    s[a] += s[b] + y;
    s[d] = rotated(s[d] ^ s[a], 8);
    s[c] += s[d];
    s[b] = rotated(s[b] ^ s[c], 7);
}

static void compress(uint32_t chain[8], const uint32_t words[16], uint64_t counter, uint32_t size,
                     uint32_t flags) {
    static const uint8_t order[16] = {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};
    uint32_t s[16], m[16], next[16];
    memcpy(s, chain, 32);
    memcpy(s + 8, INITIAL, 16);
    s[12] = (uint32_t)counter;
    s[13] = (uint32_t)(counter >> 32);
    s[14] = size;
    s[15] = flags;
    memcpy(m, words, sizeof m);
    for (int round = 0; round < 7; round++) {
        for (int i = 0; i < 4; i++) mix_quarter(s, i, i + 4, i + 8, i + 12, m[2 * i], m[2 * i + 1]);
        for (int i = 0; i < 4; i++)
            mix_quarter(s, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[8 + 2 * i],
                        m[9 + 2 * i]);
        for (int i = 0; i < 16; i++) next[i] = m[order[i]];
        memcpy(m, next, sizeof m);
    }
    for (int i = 0; i < 8; i++) chain[i] = s[i] ^ s[i + 8];
}

static void blake3_chunk(uint32_t chain[8], const uint8_t *bytes, size_t size, uint64_t chunk,
                         uint32_t root) {
    memcpy(chain, INITIAL, 32);
    for (size_t at = 0; at == 0 || at < size; at += 64) {
        size_t here = size - at < 64 ? size - at : 64;
        uint8_t block[64] = {0};
        uint32_t words[16];
        memcpy(block, bytes + at, here);
        for (int i = 0; i < 16; i++) words[i] = (uint32_t)number(block + 4 * i, 4);
        uint32_t flags = (at == 0 ? CHUNK_START : 0) | (at + 64 >= size ? CHUNK_END | root : 0);
        compress(chain, words, chunk, (uint32_t)here, flags);
    }
}

static void blake3_tree(uint32_t chain[8], const uint8_t *bytes, size_t size, uint64_t chunk,
                        uint32_t root) {
    if (size <= 1024) {
        blake3_chunk(chain, bytes, size, chunk, root);
        return;
    }
    size_t left = 1024;
    while (2 * left < size) left *= 2;
    uint32_t words[16];
    blake3_tree(words, bytes, left, chunk, 0);
    blake3_tree(words + 8, bytes + left, size - left, chunk + left / 1024, 0);
    memcpy(chain, INITIAL, 32);
    compress(chain, words, 0, 64, PARENT | root);
}

static const char *blake3(const uint8_t *bytes, size_t size) {
    uint32_t chain[8];
    uint8_t digest[32];
    blake3_tree(chain, bytes, size, 0, ROOT);
    for (int i = 0; i < 32; i++) digest[i] = (uint8_t)(chain[i / 4] >> 8 * (i % 4));
    return hex(digest, 32);
}
