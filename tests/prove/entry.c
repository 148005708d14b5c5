/* entry.c: WP on attn__check_entry, where EVA cannot see that start + length is no more than the keys. All values. */
#include "sizes.h"

/* building a sentence is not proved */
/*@ assigns *why; */
static void attn__format_part(attn__why *why, const char *sentence, ...);
/*@ assigns *why; ensures \result == status; */
static attn_status attn__fail(attn__why *why, attn_status status, const char *sentence, ...);

/*@ requires \valid_read(call) && \valid(why) && \valid(end) && b >= 0 && call->n_k >= 0;
    requires call->k_map == \null || \valid_read(call->k_map + b);
    requires call->k_starts == \null || \valid_read(call->k_starts + b);
    requires call->k_lengths == \null || \valid_read(call->k_lengths + b);
    requires call->q_lengths == \null || \valid_read(call->q_lengths + b);
    requires call->kv == \null || (\valid_read(call->kv) && \valid_read(call->kv->lengths + (0 .. call->k_batch - 1)) &&
             \forall integer i; 0 <= i < call->k_batch ==> call->kv->lengths[i] >= 0);
    requires call->k_map != \null || b < call->k_batch;
    requires \separated(why, end, call, call->k_map + b, call->k_starts + b, call->k_lengths + b, call->q_lengths + b);
    requires call->kv == \null || \separated(why, call->kv, call->kv->lengths + (0 .. call->k_batch - 1));
    assigns *why, *end;
    ensures \result == 0 ==> 0 <= *end <= 2147483647; */
static attn_status attn__check_entry(const attn__call *call, int b, int *end, attn__why *why);
