/* calls.c: makes one call of attn_sdpa, or none; tests/cross/count.sh counts its instructions.
 *     calls BACKEND CALLS QUERIES KEYS HEAD_DIM HEADS KV_HEADS CAUSAL */
#define ATTN_IMPLEMENTATION
#include "attn.h"

enum { FLOATS = 1 << 18 };
static float q[FLOATS], k[FLOATS], v[FLOATS], out[FLOATS];

int main(int argc, char **argv)
{
    unsigned seed = 1;
    attn_args a;
    int i;
    if (argc != 9) return 2;
    memset(&a, 0, sizeof a);
    a.out = out;
    a.q = q;
    a.k = k;
    a.v = v;
    a.batch = 1;
    a.n_q = atoi(argv[3]);
    a.n_k = atoi(argv[4]);
    a.head_dim = atoi(argv[5]);
    a.heads = atoi(argv[6]);
    a.kv_heads = atoi(argv[7]);
    a.causal = (attn_causal)atoi(argv[8]);
    a.backend = (attn_backend)atoi(argv[1]);
    for (i = 0; i < FLOATS; i++) {
        seed = seed * 1664525u + 1013904223u;
        q[i] = (float)(seed >> 8) * 0x1p-23f - 1.0f;
        k[i] = q[i] * q[i] - 0.5f;
        v[i] = k[i] - q[i];
    }
    for (i = atoi(argv[2]); i > 0; i--)
        if (attn_sdpa(&a) != ATTN_OK) return 1;
    return 0;
}
