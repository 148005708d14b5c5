/* entry.c: WP on attn__check_entry, where EVA cannot see that start + length is no more than the keys. All values. */
#include "sizes.h"

/* building a sentence is not proved */
/*@ assigns *why; */
static void attn__format_part(attn__why *why, const char *sentence, ...);
/*@ assigns *why; ensures \result == status; */
static attn_status attn__fail(attn__why *why, attn_status status, const char *sentence, ...);

/*@ requires \valid_read(a) && \valid_read(call) && \valid(why) && \valid(end) && b >= 0 && call->n_k >= 0;
    requires a->k_map == \null || \valid_read(a->k_map + b);
    requires a->k_starts == \null || \valid_read(a->k_starts + b);
    requires a->k_lengths == \null || \valid_read(a->k_lengths + b);
    requires a->q_lengths == \null || \valid_read(a->q_lengths + b);
    requires a->kv == \null || (\valid_read(a->kv) && \valid_read(a->kv->lengths + (0 .. call->k_batch - 1)) &&
             \forall integer i; 0 <= i < call->k_batch ==> a->kv->lengths[i] >= 0);
    requires a->k_map != \null || b < call->k_batch;
    requires \separated(why, end, a, call, a->k_map + b, a->k_starts + b, a->k_lengths + b, a->q_lengths + b);
    requires a->kv == \null || \separated(why, a->kv, a->kv->lengths + (0 .. call->k_batch - 1));
    assigns *why, *end;
    ensures \result == 0 ==> 0 <= *end <= 2147483647; */
static attn_status attn__check_entry(const attn_args *a, const attn__call *call, int b, int *end, attn__why *why);
