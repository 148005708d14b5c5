/* A program that uses the installed library; tests/checks/library.sh checks its output. */
#include <attn.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    const float x[4] = { 0, 0, 0, 0 }, v[4] = { 1, 2, 3, 6 };
    float out[4] = { 0, 0, 0, 0 };
    attn_args a = attn_args_for(1, 2, 2, 1, 2);             /* the second row is the mean of two values */
    attn_kv_args room = { 0 };
    attn_kv past;
    attn_status status, made;
    a.out = out;  a.q = a.k = x;  a.v = v;
    a.causal = ATTN_CAUSAL_TOP_LEFT;
    room.batch = room.kv_heads = 1;  room.head_dim = 2;  room.capacity = 10;
    status = attn_sdpa(&a);
    memset(&past, 1, sizeof past);
    made = attn_kv_init(&past, &room);
    printf("%s: %g %g %g %g, a cache %s, version %d\n", attn_status_str(status), (double)out[0], (double)out[1], (double)out[2],
           (double)out[3], made == ATTN_OK ? "made" : past.lengths ? "half made" : "of zeros", attn_version());
    attn_kv_free(&past);
#ifdef ATTN_THREADS
    {
        attn_pool *pool = attn_pool_create(2);
        printf("a pool of %d\n", attn_pool_exec(pool).width);
        attn_pool_destroy(pool);
    }
#endif
    return status != ATTN_OK;
}
