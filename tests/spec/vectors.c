/* vectors.c: the test vectors of tests/SPEC.md, computed by attn.h through its public functions.
 *
 *   cc -O2 -I. -DATTN_IMPLEMENTATION tests/spec/vectors.c -o build/vectors
 *   build/vectors > tests/spec/vectors.txt       prints the file: a line for each case
 *   build/vectors -s tests/spec/vectors.txt      compares with it: one hash for each section of SPEC.md
 *   build/vectors -n                             prints the hash of each section, then the number of all of them
 *   build/vectors -r < cases                     a hash for each line "operation key=value .."; -d: every number
 *
 * SPEC.md section 13 defines the inputs, the operations and the hash. `make spec` compares the output with the
 * committed file; `make same ARGS=-v` prints the hashes of the sections.
 * Inputs are integers divided by powers of two, so that they are exact on every machine. */
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long spec_bits;

/* Section, name and parameters of each case, by section in ascending order. SPEC.md section 13 defines the parameters. */
static const struct { int section; const char *name, *text; } spec_cases[] = {
    { 2, "exp", "exp n=4096 x=1:128 poke=x:0:C2AEAC4F,x:1:C2AEAC50,x:2:80000000,x:3:FF800000,x:4:FFC00001" },
    { 2, "exp_near", "exp n=1024 x=2:0.5" },
    { 2, "exp_ulps", "exp n=14 x=210:1 poke=x:0:C240B1E6,x:1:C264BD14,x:2:BF79FFBD,x:3:BE872573,x:4:C290D8D3,x:5:C243219A,"
                     "x:6:C2091862,x:7:C2951D7E,x:8:C1A930B5,x:9:C2A75BAE,x:10:C1159526,x:11:C2938633,x:12:C2ABC6B4,"
                     "x:13:C2AEAC22" },
    { 2, "log", "log n=4096 x=3 poke=x:0:00000000,x:1:3F800000,x:2:7F800000,x:3:00000001,x:4:3F3504F3" },
    { 2, "log_ulps", "log n=12 x=211:1 poke=x:0:3FB437B8,x:1:3FA9157C,x:2:3FB14CC2,x:3:3F309AA1,x:4:3FB07FBE,x:5:3FB2CA32,"
                     "x:6:3F37EC5E,x:7:3FB475DA,x:8:3FAC5406,x:9:3FA8A943,x:10:400FADDC,x:11:3FD5A717" },
    { 2, "tanh", "tanh n=4096 x=4 poke=x:0:3F1FFFFF,x:1:3F200000,x:2:BF200000,x:3:80000000,x:4:FF800000" },
    { 2, "tanh_near", "tanh n=2048 x=5:2" },
    { 2, "tanh_ulps", "tanh n=8 x=212:1 poke=x:0:3F1AA9C5,x:1:3F066D31,x:2:3F02AE6F,x:3:BF0F1A5C,x:4:3F14F033,"
                      "x:5:BEEFF9B4,x:6:BF010BFA,x:7:BEE05943" },
    { 2, "scale", "scale n=300" },
    { 2, "exp_halves", "exp n=30 x=217:1 poke=x:0:C0BC8939,x:1:C0E8E5BF,x:2:C14214CB,x:3:C158430E,x:4:C16E7151,"
                       "x:5:C1E09466,x:6:C1F13719,x:7:C1F6C2A9,x:8:C203B2AE,x:9:C2067876,x:10:C219E0F1,"
                       "x:11:C2300F34,x:12:C249033F,x:13:C24BC908,x:14:C24E8ED0,x:15:C25F3182,x:16:C261F74B,"
                       "x:17:C264BD13,x:18:C27299FD,x:19:C2755FC5,x:20:C27AEB56,x:21:C2846420,x:22:C285C704,"
                       "x:23:C28E185D,x:24:C292410A,x:25:C29BF547,x:26:C2A01DF4,x:27:C2A446A0,x:28:C2A86F4D,"
                       "x:29:C2A9D231" },
    { 3, "half", "narrow n=8192 x=11 format=1" },
    { 3, "half_near", "narrow n=4096 x=12:0.0001220703125 format=1 "
                      "poke=x:0:477FEFFF,x:1:477FF000,x:2:33000000,x:3:33000001,x:4:387FF000,x:5:7F800001" },
    { 3, "bfloat16", "narrow n=8192 x=13 format=2 poke=x:0:7F7F8000,x:1:7F800001,x:2:FFC12345,x:3:3F808000" },
    { 3, "eight_bits", "eight rows=9 n=37 x=278:2:40 poke=x:37:7FC00000,x:74:7F800000,x:111:7F7FFFFF,x:112:FF7FFFFF" },
    { 3, "eight_near", "eight rows=6 n=2 x=279:0 poke=x:0:03FFFFFF,x:1:83FFFFFF,x:2:04000000,x:3:82FDFDFE,x:4:42FE0000,"
                       "x:5:3F000000,x:6:42FE0000,x:7:BFC00000,x:8:42FE0000,x:9:40200000,x:10:3FC1835F,x:11:3F91840C" },
    { 3, "widen_half", "widen format=1" },
    { 3, "widen_bfloat16", "widen format=2" },
    { 4, "top_left", "attention batch=2 n_q=6 n_k=9 heads=2 head_dim=4 q=21:2 k=22:2 v=23:2 causal=2 q_pos=-2 "
                     "q_pos_each=0,3" },
    { 4, "bottom_right", "attention batch=2 n_q=5 n_k=12 heads=1 head_dim=4 q=24:2 k=25:2 v=26:2 causal=1 "
                         "k_starts=3,0 k_lengths=7,3 q_lengths=4,5" },
    { 4, "window", "attention n_q=8 n_k=11 heads=1 head_dim=4 q=27:2 k=28:2 v=29:2 align=1 window_left=3 "
                   "window_right=2 q_pos=1" },
    { 4, "cells", "attention batch=2 n_q=4 n_k=10 heads=2 head_dim=4 q=31:2 k=32:2 v=33:2 mask=34:1:3 "
                  "mask_shape=2,1,4 bias=35:1:4 bias_shape=1,2,1 keep=36:5 keep_shape=2,2,4 "
                  "poke=k:3:7FC00000,v:5:7F800000,mask:3:FF7FFFFF" },
    { 4, "merge_masks", "mask_merge batch=2 n_q=3 n_k=50 mask=37:2:4 by=38:2:5 by_batch=1 "
                        "poke=mask:1:7F800000,mask:2:7FC00001,mask:3:80000000,by:3:80000000" },
    { 4, "shift", "bias_shift matrices=2 n_q=4 n_k=6 columns=7 zero=4 pos=1 x=39:2" },
    { 4, "t5", "t5 buckets=32 max_distance=128 heads=2 extent=140 table=40:2" },
    { 4, "t5_one_way", "t5 buckets=13 max_distance=50 one_way=1 heads=1 extent=60 table=130:2" },
    { 4, "mask_hides", "attention n_q=3 n_k=6 heads=1 head_dim=2 q=217:2 k=218:2 v=219:1 mask=220:1:2 "
                       "poke=mask:0:FF800000,mask:1:FF800000,mask:2:FF800000,mask:3:FF800000,mask:4:FF800000,"
                       "mask:5:FF800000,mask:6:FF800000,k:0:7FC00000,v:1:7F800000" },
    { 4, "mask_lowest", "attention n_q=1 n_k=2 heads=1 head_dim=2 q=221:2 k=222:2 v=223:1 mask=224:0 "
                        "poke=mask:0:FF7FFFFF,mask:1:FF800000" },
    { 4, "t5_large", "t5 buckets=513 max_distance=2147482624 heads=1 extent=2000 table=248:2" },
    { 4, "build_causal", "builder kind=0 n_q=4 n_k=6 pos=1" },
    { 4, "build_window", "builder kind=1 n_q=5 n_k=6 pos=-1 window_left=3 window_right=2" },
    { 4, "build_padding", "builder kind=2 batch=2 n_k=5 keep=262:3" },
    { 4, "build_cross", "builder kind=3 batch=2 n_q=3 n_k=5 keep=263:3" },
    { 4, "build_lengths", "builder kind=4 batch=3 n_q=2 n_k=5 k_lengths=0,5,3" },
    { 4, "build_keep", "builder kind=5 batch=1 n_q=3 n_k=7 keep=264:2" },
    { 5, "raw", "attention n_q=3 n_k=20 heads=4 kv_heads=2 head_dim=37 q=41:2 k=42:2 v=43:1 stage=1 causal=2" },
    { 5, "capped", "attention n_q=3 n_k=20 heads=2 head_dim=16 q=44:4 k=45:4 v=46:1 stage=2 softcap=3 scale=0.75" },
    { 5, "alibi", "attention n_q=4 n_k=150 heads=2 head_dim=8 q=47:2 k=48:2 v=49:1 stage=3 alibi=50:0.5 q_pos=70 "
                  "k_starts=5" },
    { 5, "alibi_far", "attention n_q=4 n_k=140 heads=2 head_dim=1 q=57:0 k=58:0 v=59:1 stage=3 alibi=60:1 causal=2 "
                      "q_pos=16777217" },
    { 5, "rel_bias", "attention n_q=4 n_k=150 heads=2 head_dim=8 q=107:2 k=108:2 v=109:1 stage=3 rel_bias=110:2:8 "
                     "rel_extent=20 alibi=127:0.5 q_pos=100 k_starts=3 mask=128:2:5" },
    { 5, "rel_bias_hides", "attention batch=2 n_q=4 n_k=150 heads=2 head_dim=8 q=241:2 k=242:2 v=243:1 stage=3 "
                           "rel_extent=9 rel_bias=244:2:5 bias=245:1 causal=1 k_starts=5,0 "
                           "poke=rel_bias:0:FF800000,rel_bias:18:FF800000,k:320:7FC00000" },
    { 5, "all_terms", "attention n_q=4 n_k=140 heads=2 head_dim=24 q=51:4 k=52:4 v=53:1 stage=3 softcap=5 "
                      "alibi=54:0.25 bias=55:2:9 mask=56:2:7 causal=1 q_pos=16777215" },
    { 5, "capped_hidden", "attention n_q=3 n_k=20 heads=2 head_dim=16 q=225:4 k=226:4 v=227:1 stage=2 softcap=3 "
                         "causal=2" },
    { 5, "raw_kept", "attention n_q=2 n_k=4 heads=1 head_dim=1 q=228:1 k=229:1 v=230:1 stage=1 poke=q:0:80800000,"
                     "k:0:00800001,k:1:FFC12345,k:2:7F800000,q:1:00000000" },
    { 5, "capped_kept", "attention n_q=2 n_k=4 heads=1 head_dim=1 q=228:1 k=229:1 v=230:1 stage=2 softcap=2 "
                        "poke=q:0:80800000,k:0:00800001,k:1:FFC12345,k:2:7F800000,q:1:00000000" },
    { 5, "biased_kept", "attention n_q=2 n_k=4 heads=1 head_dim=1 q=228:1 k=229:1 v=230:1 stage=3 "
                        "poke=q:0:80800000,k:0:00800001,k:1:FFC12345,k:2:7F800000,q:1:00000000" },
    { 5, "alibi_starts", "attention n_q=4 n_k=150 heads=2 head_dim=1 q=57:0 k=58:0 v=59:1 stage=3 alibi=60:1 "
                         "causal=2 q_pos=16777217 k_starts=5" },
    { 6, "one_chunk", "attention n_q=3 n_k=100 heads=2 head_dim=16 v_head_dim=5 q=61:2 k=62:2 v=63:1" },
    { 6, "chunks", "attention n_q=3 n_k=400 heads=2 kv_heads=1 head_dim=33 v_head_dim=40 q=64:2 k=65:2 v=66:1" },
    { 6, "starts", "attention batch=2 n_q=2 n_k=300 heads=1 head_dim=8 q=67:4 k=68:4 v=69:1 k_starts=37,128 "
                   "k_lengths=200,172 mask=70:0:3" },
    { 6, "sinks", "attention n_q=4 n_k=140 heads=3 head_dim=8 q=71:2 k=72:2 v=73:1 sinks=74:4 causal=2 q_pos=-1 "
                  "poke=sinks:1:FF800000" },
    { 6, "forgotten", "attention n_q=3 n_k=290 heads=2 head_dim=4 q=85:2 k=86:2 v=87:1 causal=1 window_left=150 stage=1 "
                      "forgotten=128,256 alibi=88:0.25" },
    { 6, "v_in_k", "attention n_q=3 n_k=20 heads=2 kv_heads=1 head_dim=6 v_head_dim=4 q=89:2 k=90:2 v=91:1 v_in_k=1 "
                   "k_storage=1" },
    { 6, "not_finite", "attention n_q=6 n_k=150 heads=1 head_dim=2 v_head_dim=3 q=75:2 k=76:2 v=77:1 causal=2 "
                       "q_pos=143 poke=k:290:7FC00000,k:294:7F800000,v:4:FF800000,q:0:00000000" },
    { 6, "minus_infinity", "attention n_q=2 n_k=3 heads=1 head_dim=1 q=78:2 k=79:2 v=80:1 sinks=84:1 "
                           "poke=sinks:0:FF800000,k:0:FF800000,k:1:FF800000,k:2:FF800000,q:0:3F800000,q:1:BF800000" },
    { 6, "underflow", "attention n_q=2 n_k=300 heads=1 head_dim=2 q=81:64 k=82:64 v=83:0.0000152587890625" },
    { 6, "lse_kept", "attention n_q=1 n_k=2 heads=1 head_dim=1 q=231:1 k=232:1 v=233:1 sinks=234:1 "
                     "poke=sinks:0:FFC12345" },
    { 6, "kept", "attention n_q=1 n_k=1 heads=1 head_dim=1 v_head_dim=8 q=207:1 k=208:1 v=209:1 poke=v:0:80000000,"
                 "v:1:00000001,v:2:807FFFFF,v:3:7FA00001,v:4:FFC12345,v:5:7F7FFFFF,v:6:80000001,v:7:7F800000" },
    { 6, "eight", "attention n_q=3 n_k=150 heads=4 kv_heads=2 head_dim=21 v_head_dim=18 q=261:2 k=262:2 v=263:4 "
                  "k_storage=3 v_storage=3 causal=2 softcap=8 q_pos=140" },
    { 6, "eight_mixed", "attention n_q=2 n_k=140 heads=2 head_dim=16 q=264:2 k=265:2 v=266:4 k_storage=3 v_storage=1 "
                        "stage=1 mask=267:1:3" },
    { 6, "eight_values", "attention n_q=2 n_k=140 heads=2 head_dim=16 q=268:2 k=269:2 v=270:4 v_storage=3 mask=271:1:3" },
    { 6, "eight_v_in_k", "attention n_q=3 n_k=20 heads=2 kv_heads=1 head_dim=6 v_head_dim=4 q=272:2 k=273:2 v=274:1 "
                         "v_in_k=1 k_storage=3" },
    { 6, "eight_odd", "attention n_q=6 n_k=150 heads=1 head_dim=2 v_head_dim=3 q=275:2 k=276:2 v=277:1 causal=2 "
                      "q_pos=143 k_storage=3 v_storage=3 "
                      "poke=k:290:7FC00000,k:294:7F800000,v:440:FF800000,q:0:00000000,q:1:80000000,v:3:00000001,"
                      "v:4:80000001,v:5:00000000,k:4:00800000,k:5:03FFFFFF,k:6:04000000,k:7:00000000,q:6:7F800000" },
    { 6, "stored", "attention n_q=3 n_k=140 heads=2 head_dim=20 q=14:2 k=15:2 v=16:2 k_storage=1 v_storage=2" },
    { 6, "trace", "attention n_q=1 n_k=130 heads=1 head_dim=2 v_head_dim=1 q=251:2 k=252:2 v=253:1 mask=254:1:1 "
                  "poke=mask:0:00000000,mask:16:00000000,mask:17:00000000,mask:129:00000000" },
    { 7, "states", "states batch=2 n_q=3 n_k=290 heads=2 head_dim=8 v_head_dim=5 q=91:2 k=92:2 v=93:1 causal=2 q_pos=150 "
                   "q_pos_each=-151,100 q_lengths=3,2" },
    { 7, "parts", "parts parts=4 batch=2 n_q=3 n_k=290 heads=2 head_dim=8 v_head_dim=5 q=94:2 k=95:2 v=96:1 causal=2 "
                  "q_pos=150 q_pos_each=-151,60 window_left=140" },
    { 7, "resume", "resume cut=128 n_q=3 n_k=290 heads=2 head_dim=8 q=97:2 k=98:2 v=99:1 causal=1 sinks=100:2" },
    { 7, "resume_elsewhere", "resume cut=100 n_q=3 n_k=290 heads=2 head_dim=8 q=101:2 k=102:2 v=103:1 causal=1" },
    { 7, "nan_state", "states n_q=2 n_k=130 heads=1 head_dim=2 q=104:2 k=105:2 v=106:1 poke=k:3:7FC00000,v:20:7F800000" },
    { 7, "fold", "fold parts=4 rows=6 v_head_dim=3 x=213:4 poke=x:2:00000000,x:44:80000000,x:100:00000000,x:16:00000000,"
                 "x:58:00000000,x:142:00000000,x:28:7FC00000,x:71:7FC00000,x:35:FF800000,x:38:80000000" },
    { 7, "states_kept", "states n_q=2 n_k=2 heads=1 head_dim=1 v_head_dim=2 q=234:0 k=235:1 v=236:1 "
                        "poke=v:0:80000001,v:2:80000001,q:0:7FA00001,v:1:FFC12345" },
    { 7, "fold_kept", "fold parts=2 rows=3 v_head_dim=1 x=237:4 poke=x:0:80000000,x:15:80000000,x:1:80000000,"
                      "x:16:80000000,x:3:80000000,x:18:80000000,x:6:FFC12345,x:12:FFC12345,x:2:3F800000,"
                      "x:17:3F800000" },
    { 7, "parts_forgotten", "parts parts=2 n_q=1 n_k=290 heads=1 head_dim=4 q=239:2 k=240:2 v=246:1 causal=1 "
                         "window_left=30 forgotten=128,256" },
    { 8, "one_chain", "linear rows=3 n_in=100 n_out=21 x=111:2 w=112:0.25 b=113:1" },
    { 8, "chains", "linear rows=2 n_in=600 n_out=17 x=114:2 w=115:0.25 b=116:1" },
    { 8, "stored", "linear rows=2 n_in=300 n_out=16 x=117:2 w=118:0.25 storage=1" },
    { 8, "given", "linear rows=2 n_in=40 n_out=5 x=122:2 w=123:0.0001220703125 w_storage=2 storage=1" },
    { 8, "zeros", "linear rows=2 n_in=257 n_out=3 x=119:0 w=120:0.25 b=121:0 storage=2 "
                  "poke=b:0:80000000,b:1:80000000,x:256:FFC00000,w:300:7F800000" },
    { 8, "minus_zero", "linear rows=1 n_in=2 n_out=2 x=124:1 w=125:0 b=126:0 "
                       "poke=b:0:80000000,x:0:BF800000,x:1:BF800000" },
    { 8, "fused", "linear rows=3 n_in=1 n_out=6 x=201:1 w=202:1 b=203:1 poke=x:0:3F800001,x:1:BF800001,x:2:3F800800,"
                  "w:0:337FFFFE,w:1:337FFFFE,w:2:337FFFFE,w:3:337FFFFE,w:4:3F800800,w:5:3F800800,"
                  "b:0:3F800001,b:1:BF800001,b:2:3F800002,b:3:BF800002,b:4:17800000,b:5:97800000" },
    { 8, "fused_wide", "linear rows=40 n_in=1 n_out=40 x=204 w=205 b=206" },
    { 8, "eight_chains", "linear rows=5 n_in=600 n_out=21 x=321:2 w=322:0.25 b=323:1 storage=3" },
    { 8, "eight_given", "linear rows=1 n_in=45 n_out=16 x=324:2 w=325:0.0001220703125 w_storage=1 storage=3" },
    { 8, "eight_zeros", "linear rows=4 n_in=65 n_out=5 x=326:2 w=327:0.25 b=328:0 storage=3 poke=b:0:80000000,"
                        "x:10:FFC00000,x:65:80000000,x:64:80000000,x:129:03FFFFFF,x:194:04000000,x:259:7F7FFFFF,"
                        "w:70:7F800000,w:64:80000000,w:129:3F800000,w:194:00000001,w:259:04000000,w:324:7F7FFFFF" },
    { 8, "eight_ties", "linear rows=2 n_in=4 n_out=2 x=329:0 w=330:0 storage=3 poke=x:0:42FE0000,x:1:3F000000,x:2:3FC00000,"
                       "x:3:C0200000,x:4:C2FE0000,x:5:BF000000,x:6:BFC00000,x:7:BEFFFFFF,w:0:3F800000,w:1:3F800000,"
                       "w:2:3F800000,w:3:3F800000,w:4:42FE0000,w:5:40000000,w:6:C1200000,w:7:3FC00000" },
    { 9, "table", "rope_table positions=70 rotary_dim=24 base=10000" },
    { 9, "table_base", "rope_table positions=9 rotary_dim=128 base=500000.5" },
    { 9, "table_freqs", "rope_table positions=50 rotary_dim=16 freqs=131:4 poke=freqs:0:477FFFFF,freqs:1:00000001,"
                        "freqs:2:C0490FDB" },
    { 9, "table_tiny", "rope_table positions=6 rotary_dim=16 freqs=214:1 poke=freqs:0:1F912345,freqs:1:20234567,"
                       "freqs:2:20F54321,freqs:3:A1512345,freqs:4:21C98765,freqs:5:2248ACE1,freqs:6:22F00001,"
                       "freqs:7:1E800000" },
    { 9, "table_ties", "rope_table positions=59 rotary_dim=6 freqs=216:1 poke=freqs:0:3F60DB97,freqs:1:3D46A32F,"
                       "freqs:2:3DD82B57" },
    { 9, "linear", "rope_freqs kind=1 rotary_dim=24 base=3 factor=3" },
    { 9, "llama3", "rope_freqs kind=2 rotary_dim=128 base=500000 factor=8 low=1 high=4 original=8192" },
    { 9, "yarn", "rope_freqs kind=3 rotary_dim=96 base=500000 factor=4 original=8192" },
    { 9, "yarn_mscale", "rope_freqs kind=3 rotary_dim=64 base=150000 factor=40 original=4096 untruncated=1 "
                        "mscale=0.75 mscale_all_dim=0.5" },
    { 9, "yarn_range", "rope_freqs kind=3 rotary_dim=32 base=10000 factor=16 low=0.0009765625 original=64" },
    { 9, "yarn_last", "rope_freqs kind=3 rotary_dim=32 base=64 factor=16 original=65536 high=2000" },
    { 9, "longrope", "rope_freqs kind=4 rotary_dim=32 base=10000 factor=32 original=4096 factors=132:4" },
    { 9, "proportional", "rope_freqs kind=5 rotary_dim=32 base=1000000 factor=2 rotated=16" },
    { 9, "rotation", "rope batch=2 n=5 heads=2 head_dim=12 rotary_dim=8 x=133:2 pos_each=-2,7 base=10000 "
                     "poke=x:180:80000000,x:184:80000000" },
    { 9, "rotation_pairs", "rope n=6 heads=1 head_dim=16 x=134:2 pos=100 base=10000 interleaved=1" },
    { 9, "rotation_zeros", "rope n=8 heads=1 head_dim=2 x=215:0 base=10000" },
    { 9, "mscale_alone", "rope_freqs kind=3 rotary_dim=8 base=10000 factor=4 original=64 mscale=0.5" },
    { 9, "factor_alone", "rope_freqs kind=5 rotary_dim=8 base=10000 factor=2" },
    { 9, "before_zero", "rope batch=1 n=2 heads=1 head_dim=4 x=238:2 pos_each=-1 base=10000 "
                        "poke=x:0:80000000,x:1:FFC12345,x:2:7F800000" },
    { 9, "attention_factor", "rope_freqs kind=3 rotary_dim=8 base=10000 factor=4 original=64 attention_factor=1.25 "
                         "mscale=0.5 mscale_all_dim=0.75" },
    { 9, "table_long", "rope_table positions=20000 rotary_dim=32 base=10000" },
    { 10, "rms", "norm rows=6 n=37 x=181:2 weight=182:2 eps=0.0009765625" },
    { 10, "layer_norm", "norm kind=1 rows=6 n=384 x=183:64 weight=184:2 bias=185:1 poke=x:0:461C4000,x:1:461C4001" },
    { 10, "rms_order", "norm rows=4 n=40 x=239:2 eps=0.0009765625 poke=x:5:4066CA47,x:20:3A9E405D,x:38:34000000,"
                       "x:45:4041C589,x:60:3A171821,x:78:33B504F3,x:85:402F75CF,x:100:3A8DA69E,x:118:3487C3B6,"
                       "x:125:400FF3A9,x:140:3A6CB032,x:158:346F7750" },
    { 10, "layer_order", "norm kind=1 rows=3 n=40 x=216:2 weight=217:2 poke=x:5:5D800000,x:14:DD800000,x:43:5D800000,"
                         "x:51:DD800000,x:83:5D800000,x:99:DD800000" },
    { 10, "norm_not_finite", "norm kind=1 rows=4 n=5 x=186:1 bias=187:1 poke=x:1:7FC00000,x:7:7F800000,x:10:00000000,"
                             "x:11:80000000,x:12:00000001" },
    { 10, "gelu", "activate n=4096 x=188 poke=x:0:7F800000,x:1:FF800000,x:2:80000000,x:3:7FA00001,x:4:C1537659" },
    { 10, "gelu_near", "activate n=4096 x=189:8" },
    { 10, "gelu_tanh", "activate kind=1 n=4096 x=190:8 poke=x:0:7F800000,x:1:FF800000,x:2:80000000,x:3:7FA00001" },
    { 10, "silu", "activate kind=2 n=4096 x=191:128 poke=x:0:7F800000,x:1:FF800000,x:2:80000000,x:3:7FA00001,"
                  "x:4:C2AEAC4F,x:5:C2AEAC50" },
    { 10, "silu_gate", "activate kind=2 n=100 x=192:8 gate=193:4 poke=gate:0:7F800000,x:0:FF800000,gate:1:80000000" },
    { 10, "gelu_limit", "activate n=3 x=371:1 poke=x:0:C1537659,x:1:C153765A,x:2:C153765B" },
    { 11, "self", "layer rows=4 batch=2 d_model=24 heads=2 head_dim=12 w=141:0.5 x=161:2 bias=1 lengths=4,3" },
    { 11, "norm_rope", "layer rows=7 d_model=40 heads=4 kv_heads=2 head_dim=16 w=142:0.25 x=162:2 norm=1 causal=2 "
                       "base=10000 storage=1" },
    { 11, "cross", "layer rows=3 memory=5 d_model=260 heads=2 head_dim=4 w=146:0.125 x=167:2 m=168:2 bias=1" },
    { 11, "cross_lengths", "layer rows=3 memory=5 batch=2 d_model=12 heads=2 head_dim=4 w=147:0.5 x=171:2 m=172:2 bias=1 "
                           "k_lengths=0,4 mean=1" },
    { 11, "starts", "layer rows=5 batch=2 d_model=24 heads=3 kv_heads=1 head_dim=6 w=148:0.5 x=173:2 bias=1 storage=2 "
                    "base=10000 factors=174:2 k_starts=2,0 k_lengths=3,5 causal=2 window_left=3 softcap=5 scale=0.75 "
                    "alibi=175:0.25 sinks=176:2 mean=1" },
    { 11, "wide_values", "layer rows=4 d_model=20 heads=4 kv_heads=2 head_dim=6 v_head_dim=9 w=147:1 x=169:2 bias=1 "
                         "gate=36 v_norm=1 causal=2" },
    { 11, "eight", "layer rows=3 d_model=40 heads=4 kv_heads=2 head_dim=10 w=152:0.5 x=331:2 bias=1 gate=4 storage=3" },
    { 11, "gate_stored", "layer rows=2 d_model=8 heads=2 head_dim=2 w=149:1 x=178:2 gate=4 storage=2" },
    { 11, "v_norm", "layer rows=2 d_model=8 heads=2 head_dim=4 w=150:1 x=179:2 norm=1 qk_norm=1 v_norm=1" },
    { 11, "factors_before", "layer rows=3 d_model=8 heads=2 head_dim=2 w=151:1 x=180:2 factors=194:2 k_starts=1" },
    { 11, "lengths_both", "layer rows=3 d_model=12 heads=2 head_dim=4 w=147:0.5 x=171:2 lengths=2 k_lengths=3" },
    { 11, "norm_row", "layer rows=5 d_model=32 heads=2 head_dim=8 w=143:0.25 x=163:2 norm=1 norm_row=1 norm_after_rope=1 "
                        "base=100 rotary_dim=4 interleaved=1 v_norm=1 eps=0.0009765625 causal=2" },
    { 11, "qk_norm", "layer rows=4 d_model=24 heads=4 kv_heads=2 head_dim=6 w=148:0.5 x=170:2 norm=1 qk_norm=1 norm_row=2 "
                     "norm_bias=1 base=100 causal=2 eps=0.0009765625" },
    { 11, "gate", "layer rows=3 d_model=20 heads=2 head_dim=6 w=144:1 x=164:2 bias=1 gate=2 mean=1" },
    { 11, "gate_wide", "layer rows=3 d_model=20 heads=2 head_dim=6 w=145:1 x=165:2 gate=12 factors=166:2" },
    { 11, "trace_layer", "layer rows=2 d_model=2 heads=1 head_dim=2 w=255:1 x=256:1 bias=1 norm=1 base=100 gate=1 "
                         "causal=2" },
    { 11, "rope_pos", "layer rows=4 batch=2 d_model=8 heads=2 head_dim=4 w=152:0.5 x=257:2 base=100 factors=258:2 causal=2 "
                      "rope_pos=0,3,3,-1,1,0,2,3" },
    { 11, "memory_v", "layer rows=3 memory=5 batch=2 d_model=8 heads=2 head_dim=4 w=153:0.5 x=259:2 m=260:2 memory_v=261:2" },
    { 11, "sigmoid", "layer rows=300 memory=1 d_model=1 heads=1 head_dim=1 w=368:1 x=369:128 m=370:2 gate=1 "
                     "poke=x:0:C2C61332,x:1:C2C61333,x:2:42C3A5B8,x:3:42C3A5B9" },
    { 15, "delta", "delta n=3 heads=2 head_dim=6 v_head_dim=5 state=301:2 q=302:1 k=303:0.5 v=304:2 g=305:1 beta=306:1" },
    { 15, "delta_norm", "delta batch=2 n=4 heads=4 k_heads=2 head_dim=37 v_head_dim=3 state=307:1 q=308:4 k=309:2 v=310:2 "
                        "g=311:0.5 beta=312:1 qk_norm=1 norm_eps=0.0009765625 q_lengths=4,2" },
    { 15, "delta_components", "delta n=3 heads=2 head_dim=5 state=313:2 q=314:1 k=315:0.5 v=316:2 g=317:4 per=1 qk_norm=1" },
    { 15, "delta_add", "delta n=4 heads=2 k_heads=1 head_dim=8 state=318:2 q=319:1 k=320:1 v=321:2 g=322:1 rule=1 scale=1" },
    { 15, "delta_long", "delta n=70 heads=1 head_dim=33 v_head_dim=40 q=323:0.25 k=324:0.25 v=325:2 beta=326:1" },
    { 15, "delta_not_finite", "delta n=3 heads=1 head_dim=3 v_head_dim=4 state=327:1 q=328:1 k=329:1 v=330:1 g=331:0 beta=332:1 "
                              "poke=g:0:FF800000,g:1:42C80000,g:2:C2AEAC51,v:0:7F800000,v:1:7FC00000,state:3:FFC12345,"
                              "k:4:00000001,q:8:80000000" },
    { 15, "delta_decay", "delta n=1 heads=1 head_dim=256 v_head_dim=1 state=333:1 q=334:0 k=335:0 v=336:0 g=337 per=1 rule=1 "
                         "poke=g:0:80000000,g:1:7F800000,g:2:7FC00001,g:3:42B17218" },
    { 15, "conv", "conv batch=2 n=5 channels=19 width=4 x=338:2 w=339:1 bias=340:1 state=341:2 q_lengths=5,2" },
    { 15, "conv_silu", "conv n=2 channels=3 width=3 x=342:8 w=343:2 silu=1 poke=x:0:7F800000,x:1:80000000,x:2:7FC12345" },
    { 15, "conv_one", "conv n=3 channels=5 width=1 x=344:8 w=345:2 bias=346:1" },
    { 15, "delta_rounding", "delta n=1 heads=1 head_dim=3 v_head_dim=1 state=347:1 q=348:0 k=349:0 v=350:0 rule=1 scale=1 "
                            "poke=state:0:3F800001,state:1:397FFFFE,state:2:3F800001,q:0:3F800000,q:1:39800001,"
                            "k:2:39800001,v:0:397FFFFE" },
    { 15, "delta_idle", "delta batch=3 n=2 heads=1 head_dim=2 v_head_dim=3 state=351:1 q=352:1 k=353:1 v=354:1 g=355:1 "
                        "q_lengths=0,2,0 poke=state:0:80000000,state:1:FFC12345,state:2:00000001,state:12:7F800000" },
    { 15, "conv_rounding", "conv batch=2 n=1 channels=1 width=2 x=356:0 w=357:0 bias=358:0 state=359:0 q_lengths=1,0 "
                           "poke=x:0:397FFFFE,w:1:39800001,bias:0:3F800001,state:0:80000000,state:1:FFC12345" }
};
enum { SPEC_CASES = sizeof spec_cases / sizeof *spec_cases };

/* ---- parameters and inputs ------------------------------------------------------------------- */

static struct {
    const char *text;                                            /* of the case */
    attn_backend by;
    spec_bits hash;
    float room[1 << 21];                                         /* tensors of the case; no case needs more */
    size_t used;
    int lists[12][24], n_lists;
    int dump;                                                    /* 1: prints the bytes of outputs */
} spec;

static void spec_ok(attn_status s)
{
    if (s == ATTN_OK) return;
    fprintf(stderr, "%s: %s\n", spec.text, attn_status_str(s));
    exit(2);
}

/* The value of a parameter, or NULL. */
static const char *spec_find(const char *key)
{
    const size_t n = strlen(key);
    const char *at = spec.text;
    while ((at = strchr(at, ' ')) != NULL)
        if (!strncmp(++at, key, n) && at[n] == '=') return at + n + 1;
    return NULL;
}

static int spec_int(const char *key, int none)
{
    const char *at = spec_find(key);
    return at ? (int)strtol(at, NULL, 10) : none;
}

static double spec_double(const char *key, double none)
{
    const char *at = spec_find(key);
    return at ? strtod(at, NULL) : none;
}

static float spec_float(const char *key) { return (float)spec_double(key, 0); }

/* A list of integers, or NULL. */
static const int *spec_list(const char *key)
{
    const char *at = spec_find(key);
    int *list = spec.lists[spec.n_lists], n = 0;
    char *end;
    if (!at) return NULL;
    do {
        list[n++] = (int)strtol(at, &end, 10);
        at = end + 1;
    } while (*end == ',' && n < 24);
    spec.n_lists++;
    return list;
}

static float *spec_room(size_t n)
{
    float *at = spec.room + spec.used;
    if (n > sizeof spec.room / sizeof *spec.room - spec.used) {
        fprintf(stderr, "spec.room is too small: %s\n", spec.text);
        exit(2);
    }
    memset(at, 0, n * sizeof *at);
    spec.used += n;
    return at;
}

static unsigned spec_draw(unsigned *seed)
{
    unsigned x = *seed += 0x9E3779B9u;
    x ^= x >> 16;  x *= 0x7FEB352Du;  x ^= x >> 15;  x *= 0x846CA68Bu;
    return x ^ x >> 16;
}

/* Replaces the elements of tensor `key` that `poke` names. */
static void spec_poke(float *x, const char *key)
{
    const char *at = spec_find("poke");
    const size_t n = strlen(key);
    for (; at && *at && *at != ' '; at += strcspn(at, ", "), at += *at == ',') {
        char *end;
        unsigned long i, bits;
        unsigned u;
        if (strncmp(at, key, n) || at[n] != ':') continue;
        i = strtoul(at + n + 1, &end, 10);
        bits = strtoul(end + 1, NULL, 16);
        u = (unsigned)bits;
        memcpy(x + i, &u, sizeof u);
    }
}

/* n numbers from "seed", "seed:size" or "seed:size:hide"; NULL: there is no such parameter. */
static float *spec_drawn(const char *text, size_t n)
{
    float *x = spec_room(n), size;
    char *end;
    unsigned seed = (unsigned)strtoul(text, &end, 10), hide = 0, u;
    const int raw = *end != ':';
    size_t i;
    size = raw ? 0 : (float)strtod(end + 1, &end);
    if (*end == ':') hide = (unsigned)strtoul(end + 1, NULL, 10);
    for (i = 0; i < n; i++) {
        u = spec_draw(&seed);
        if (hide && u % hide == 0) u = 0xFF800000u;              /* -inf */
        else if (!raw) {
            x[i] = size == 0 ? 0 : (float)((int)(u >> 8) - 8388608) / 8388608 * size;
            continue;
        }
        memcpy(x + i, &u, sizeof u);
    }
    return x;
}

static float *spec_tensor(const char *key, size_t n)
{
    const char *text = spec_find(key);
    float *x = text ? spec_drawn(text, n) : NULL;
    if (x) spec_poke(x, key);
    return x;
}

/* Keep bytes: 0 if the drawn number is a multiple of the given one. */
static unsigned char *spec_keep(size_t n)
{
    const char *text = spec_find("keep");
    unsigned char *keep = (unsigned char *)spec_room(n / sizeof(float) + 1);
    char *end;
    unsigned seed, hide;
    size_t i;
    if (!text) return NULL;
    seed = (unsigned)strtoul(text, &end, 10);
    hide = (unsigned)strtoul(end + 1, NULL, 10);
    for (i = 0; i < n; i++) keep[i] = spec_draw(&seed) % hide != 0;
    return keep;
}

/* ---- the hash -------------------------------------------------------------------------------- */

static void spec_byte(unsigned byte)
{
    spec.hash = (spec.hash ^ (byte & 0xFF)) * 0x100000001B3ull;
    if (spec.dump) printf("%02X", byte & 0xFF);
}

static void spec_word(unsigned u)
{
    int i;
    for (i = 0; i < 32; i += 8) spec_byte(u >> i);
}

static void spec_floats(const float *x, size_t n)
{
    unsigned u;
    size_t i;
    for (i = 0; i < n; i++) {
        memcpy(&u, x + i, sizeof u);
        spec_word(u);
    }
}

/* ---- sections 2 to 4: functions, formats, masks ---------------------------------------------- */

/* A state of M 0 and L 0 meets one key of score x: L becomes exp(x). */
static void spec_exp(void)
{
    const int n = spec_int("n", 0);
    float *x = spec_tensor("x", (size_t)n), one[1] = { 1 }, *states = spec_room((size_t)n * 5);
    attn_args a = attn_args_for(1, n, 1, 1, 1);
    int i;
    for (i = 0; i < n; i++) {
        unsigned u;
        memcpy(&u, x + i, sizeof u);
        u |= 0x80000000u;
        memcpy(x + i, &u, sizeof u);
        states[5 * i + 2] = 1;
    }
    a.q = x;  a.k = a.v = one;  a.carry_in = a.carry_out = states;  a.scale = 1;  a.backend = spec.by;
    spec_ok(attn_sdpa(&a));
    for (i = 0; i < n; i++) spec_floats(states + 5 * i + 1, 1);
}

/* lse of the state M 0 and L x is log(x). */
static void spec_log(void)
{
    const int n = spec_int("n", 0);
    float *x = spec_tensor("x", (size_t)n), *states = spec_room((size_t)n * 5);
    float *lse = spec_room((size_t)n), *out = spec_room((size_t)n);
    attn_args a = attn_args_for(1, n, 0, 1, 1);
    int i;
    for (i = 0; i < n; i++) {
        unsigned u;
        memcpy(&u, x + i, sizeof u);
        u &= 0x7FFFFFFFu;
        memcpy(states + 5 * i + 1, &u, sizeof u);
        states[5 * i + 2] = 1;
    }
    a.q = x;  a.out = out;  a.lse = lse;  a.carry_in = states;  a.backend = spec.by;
    spec_ok(attn_sdpa(&a));
    spec_floats(lse, (size_t)n);
}

/* The score x capped at 1 is tanh(x). */
static void spec_tanh(void)
{
    const int n = spec_int("n", 0);
    float *x = spec_tensor("x", (size_t)n), one[1] = { 1 }, *out = spec_room((size_t)n);
    attn_args a = attn_args_for(1, n, 1, 1, 1);
    a.q = x;  a.k = a.v = one;  a.out = out;  a.scale = a.softcap = 1;  a.backend = spec.by;
    a.weights = spec_room((size_t)n);  a.weights_stage = ATTN_SCORES_CAPPED;
    spec_ok(attn_sdpa(&a));
    spec_floats(a.weights, (size_t)n);
}

/* The score of two unit vectors is the scale of their head_dim. */
static void spec_scale(void)
{
    const int n = spec_int("n", 0);
    float *unit = spec_room((size_t)n), *out = spec_room((size_t)n), score;
    int d;
    unit[0] = 1;
    for (d = 1; d <= n; d++) {
        attn_args a = attn_args_for(1, 1, 1, 1, d);
        a.q = a.k = a.v = unit;  a.out = out;  a.weights = &score;  a.weights_stage = ATTN_SCORES_RAW;
        a.backend = spec.by;
        spec_ok(attn_sdpa(&a));
        spec_floats(&score, 1);
    }
}

static void spec_narrow(void)
{
    const size_t n = (size_t)spec_int("n", 0);
    const float *x = spec_tensor("x", n);
    unsigned short *narrow = (unsigned short *)(void *)spec_room(n / 2 + 1);
    size_t i;
    spec_ok(attn_narrow(narrow, x, n, (attn_storage)spec_int("format", 0)));
    for (i = 0; i < n; i++) {
        spec_byte(narrow[i]);
        spec_byte((unsigned)narrow[i] >> 8);
    }
}

/* Rows in 8 bits: their scales, then their values. */
static void spec_eight_bits(void)
{
    const size_t rows = (size_t)spec_int("rows", 1), n = (size_t)spec_int("n", 1);
    const float *x = spec_tensor("x", rows * n);
    float *scale = spec_room(rows), *y = spec_room(rows * n), *row = spec_room(n / 4 + 2);
    size_t r;
    for (r = 0; r < rows; r++) {
        spec_ok(attn_narrow(row, x + r * n, n, ATTN_Q8));
        scale[r] = row[0];
        spec_ok(attn_widen(y + r * n, row, n, ATTN_Q8));
    }
    spec_floats(scale, rows);
    spec_floats(y, rows * n);
}

/* All values of 16 bits. */
static void spec_widen(void)
{
    const size_t n = 65536;
    unsigned short *narrow = (unsigned short *)(void *)spec_room(n / 2);
    float *x = spec_room(n);
    size_t i;
    for (i = 0; i < n; i++) narrow[i] = (unsigned short)i;
    spec_ok(attn_widen(x, narrow, n, (attn_storage)spec_int("format", 0)));
    spec_floats(x, n);
}

static void spec_mask_merge(void)
{
    const int batch = spec_int("batch", 1), by_batch = spec_int("by_batch", 1);
    const int n_q = spec_int("n_q", 0), n_k = spec_int("n_k", 0);
    float *m = spec_tensor("mask", (size_t)(batch * n_q * n_k));
    const float *by = spec_tensor("by", (size_t)(by_batch * n_q * n_k));
    spec_ok(attn_mask_merge(m, batch, by, by_batch, n_q, n_k));
    spec_floats(m, (size_t)(batch * n_q * n_k));
}

/* The builders of masks: kind 0 causal, 1 window, 2 padding, 3 cross, 4 lengths, 5 keep. The bytes of keep are the ids, 0
   the pad. */
static void spec_builder(void)
{
    const int batch = spec_int("batch", 1), n_q = spec_int("n_q", 0), n_k = spec_int("n_k", 0);
    const int kind = spec_int("kind", 0), pos = spec_int("pos", 0);
    const size_t n = (size_t)(kind < 2 ? n_q * n_k : kind == 2 ? batch * n_k * n_k : batch * n_q * n_k);
    const size_t n_ids = kind == 5 ? n : (size_t)(batch * n_k);
    const unsigned char *keep = kind == 2 || kind == 3 || kind == 5 ? spec_keep(n_ids) : NULL;
    int *ids = (int *)(void *)spec_room(n_ids);
    float *m = spec_room(n);
    size_t i;
    for (i = 0; keep && i < n_ids; i++) ids[i] = keep[i];
    switch (kind) {
    case 0: spec_ok(attn_mask_causal(m, n_q, n_k, pos)); break;
    case 1: spec_ok(attn_mask_window(m, n_q, n_k, spec_int("window_left", 0), spec_int("window_right", 0), pos)); break;
    case 2: spec_ok(attn_mask_padding(m, ids, 0, batch, n_k)); break;
    case 3: spec_ok(attn_mask_cross(m, ids, 0, batch, n_q, n_k)); break;
    case 4: spec_ok(attn_mask_lengths(m, spec_list("k_lengths"), batch, n_q, n_k)); break;
    default: spec_ok(attn_mask_keep(m, keep, n));
    }
    spec_floats(m, n);
}

static void spec_t5(void)
{
    const int buckets = spec_int("buckets", 0), heads = spec_int("heads", 1), extent = spec_int("extent", 0);
    const size_t n = (size_t)(heads * (2 * extent + 1));
    const float *table = spec_tensor("table", (size_t)(buckets * heads));
    float *rel_bias = spec_room(n);
    spec_ok(attn_bias_t5(rel_bias, table, buckets, spec_int("max_distance", 0), spec_int("one_way", 0), heads, extent));
    spec_floats(rel_bias, n);
}

static void spec_bias_shift(void)
{
    const int matrices = spec_int("matrices", 1), columns = spec_int("columns", 1);
    const int n_q = spec_int("n_q", 0), n_k = spec_int("n_k", 0);
    const float *x = spec_tensor("x", (size_t)(matrices * n_q * columns));
    float *bias = spec_room((size_t)(matrices * n_q * n_k));
    spec_ok(attn_bias_shift(bias, x, columns, spec_int("zero", 0), matrices, n_q, n_k, spec_int("pos", 0)));
    spec_floats(bias, (size_t)(matrices * n_q * n_k));
}

/* ---- sections 4 to 7: attention -------------------------------------------------------------- */

#include "forms.h"

/* Draws cells with the given shape, or with the default shape of the header. */
static size_t spec_cells(const char *key, int *shape, const attn_args *a, int heads)
{
    const int *given = spec_list(key);
    shape[0] = given ? given[0] : 1;
    shape[1] = given ? given[1] : heads;
    shape[2] = given ? given[2] : a->n_q;
    return (size_t)(shape[0] * shape[1] * shape[2] * a->n_k);
}

/* Rounds a tensor as a cache stores it. */
static void spec_round(float *x, size_t n, const char *key)
{
    const attn_storage storage = (attn_storage)spec_int(key, 0);
    const size_t used = spec.used;
    void *narrow = spec_room(n);
    if (storage == ATTN_Q8) return;       /* a cache rounds whole rows */
    spec_ok(attn_narrow(narrow, x, n, storage));
    spec_ok(attn_widen(x, narrow, n, storage));
    spec.used = used;
}

static attn_args spec_args(void)
{
    const int batch = spec_int("batch", 1), n_q = spec_int("n_q", 0), n_k = spec_int("n_k", 0);
    attn_args a = attn_args_for(batch, n_q, n_k, spec_int("heads", 1), spec_int("head_dim", 1));
    const size_t heads = (size_t)a.heads;
    size_t keys;
    float *k, *v;
    a.kv_heads = spec_int("kv_heads", a.heads);  a.v_head_dim = spec_int("v_head_dim", a.head_dim);
    keys = (size_t)(batch * n_k * a.kv_heads);
    a.q = spec_tensor("q", (size_t)(batch * n_q * a.head_dim) * heads);
    a.k = k = spec_tensor("k", keys * (size_t)a.head_dim);
    a.v = v = spec_tensor("v", keys * (size_t)a.v_head_dim);
    spec_round(k, keys * (size_t)a.head_dim, "k_storage");
    spec_round(v, keys * (size_t)a.v_head_dim, "v_storage");
    a.scale = spec_float("scale");  a.softcap = spec_float("softcap");
    a.causal = (attn_causal)spec_int("causal", 0);  a.align = (attn_align)spec_int("align", 0);
    a.q_pos = spec_int("q_pos", 0);  a.q_pos_each = spec_list("q_pos_each");
    a.window_left = spec_int("window_left", 0);  a.window_right = spec_int("window_right", 0);
    a.q_lengths = spec_list("q_lengths");
    a.k_starts = spec_list("k_starts");  a.k_lengths = spec_list("k_lengths");
    if (a.k_starts && !a.k_lengths) {                            /* from the start to the end */
        int *rest = spec.lists[spec.n_lists++], b;
        for (b = 0; b < batch; b++) rest[b] = n_k - a.k_starts[b];
        a.k_lengths = rest;
    }
    a.mask = spec_tensor("mask", spec_cells("mask_shape", a.mask_shape, &a, 1));
    a.bias = spec_tensor("bias", spec_cells("bias_shape", a.bias_shape, &a, a.heads));
    a.keep = spec_keep(spec_cells("keep_shape", a.keep_shape, &a, 1));
    a.rel_extent = spec_int("rel_extent", 0);
    a.rel_bias = spec_tensor("rel_bias", heads * (size_t)(2 * a.rel_extent + 1));
    a.alibi_slopes = spec_tensor("alibi", heads);  a.sinks = spec_tensor("sinks", heads);
    a.weights_stage = (attn_stage)spec_int("stage", 0);  a.backend = spec.by;
    return a;
}

/* Runs the call and hashes out, lse, the weights and the number of masked rows. */
static void spec_answer(attn_args *a)
{
    const size_t rows = (size_t)(a->batch * a->n_q * a->heads);
    float *out = spec_room(rows * (size_t)a->v_head_dim), *lse = spec_room(rows);
    float *weights = a->carry_in ? NULL : spec_room(rows * (size_t)a->n_k);
    size_t masked = 0;
    a->out = out;  a->lse = lse;  a->masked_rows = &masked;  a->weights = weights;
    spec_call(a);
    spec_floats(out, rows * (size_t)a->v_head_dim);
    spec_floats(lse, rows);
    if (weights) spec_floats(weights, rows * (size_t)a->n_k);
    spec_word((unsigned)masked);
}

static void spec_attention(void)
{
    attn_args a = spec_args();
    spec_answer(&a);
}

static size_t spec_states_of(const attn_args *a)
{
    return (size_t)(a->batch * a->n_q * a->heads) * ATTN_STATE(a->v_head_dim);
}

static void spec_states(void)
{
    attn_args a = spec_args();
    const size_t n = spec_states_of(&a);
    a.carry_out = spec_room(n);
    spec_call(&a);
    spec_floats(a.carry_out, n);
}

/* Computes the states of each chunk and folds them in order; also merges the second one into the first. */
static void spec_parts(void)
{
    attn_args a = spec_args();
    const size_t n = spec_states_of(&a), state = ATTN_STATE(a.v_head_dim);
    const int parts = spec_int("parts", 1);
    float *each = spec_room(n * (size_t)parts);
    a.parts = parts;  a.carry_out = each;
    spec_call(&a);
    spec_floats(each, n * (size_t)parts);
    a.parts = 0;  a.carry_out = spec_room(n);
    spec_ok(attn_fold(&a, each, parts));
    spec_floats(a.carry_out, n);
    spec_ok(attn_merge(each, each + n, n / state, a.v_head_dim));
    spec_floats(each, n);
}

/* Given states: folds them in order into the first one and finishes; also merges the second one into the first. */
static void spec_fold_given(void)
{
    attn_args a = attn_args_for(1, spec_int("rows", 1), 0, 1, spec_int("v_head_dim", 1));
    const size_t rows = (size_t)a.n_q, n = rows * ATTN_STATE(a.head_dim);
    const int parts = spec_int("parts", 1);
    float *x = spec_tensor("x", n * (size_t)parts);
    size_t masked;
    a.carry_in = x;  a.carry_out = spec_room(n);
    spec_ok(attn_fold(&a, x + n, parts - 1));
    spec_floats(a.carry_out, n);
    a.q = spec_room(rows * (size_t)a.head_dim);
    a.carry_in = a.carry_out;  a.carry_out = NULL;
    a.out = spec_room(rows * (size_t)a.head_dim);  a.lse = spec_room(rows);  a.masked_rows = &masked;
    spec_ok(attn_sdpa(&a));
    spec_floats(a.out, rows * (size_t)a.head_dim);
    spec_floats(a.lse, rows);
    spec_word((unsigned)masked);
    spec_ok(attn_merge(x, x + n, rows, a.head_dim));
    spec_floats(x, n);
}

/* The first `cut` keys leave states, from which a second call over the other keys resumes. */
static void spec_resume(void)
{
    attn_args a = spec_args();
    const int cut = spec_int("cut", 0), n_k = a.n_k, pos = n_k - a.n_q;
    const float *sinks = a.sinks;
    a.causal = ATTN_CAUSAL_TOP_LEFT;  a.q_pos = pos;  a.n_k = cut;  a.sinks = NULL;
    a.k_stride[0] = (ptrdiff_t)n_k * a.kv_heads * a.head_dim;
    a.v_stride[0] = (ptrdiff_t)n_k * a.kv_heads * a.v_head_dim;
    a.carry_out = spec_room(spec_states_of(&a));
    spec_call(&a);
    a.k += cut * a.kv_heads * a.head_dim;  a.v += cut * a.kv_heads * a.v_head_dim;
    a.n_k = n_k - cut;  a.q_pos = pos - cut;  a.sinks = sinks;
    a.carry_in = a.carry_out;  a.carry_out = NULL;
    spec_answer(&a);
}

/* ---- sections 8 to 11: linears, norms, activations, rotation, layers ------------------------- */

static void spec_linear(void)
{
    const int rows = spec_int("rows", 1);
    attn_linear_args a;
    attn_linear l;
    const float *x, *w;
    void *given;
    size_t n;
    float *y;
    memset(&a, 0, sizeof a);
    a.n_in = spec_int("n_in", 1);  a.n_out = spec_int("n_out", 1);
    x = spec_tensor("x", (size_t)(rows * a.n_in));
    n = (size_t)(a.n_in * a.n_out);
    w = spec_tensor("w", n);  a.b = spec_tensor("b", (size_t)a.n_out);
    a.w_storage = (attn_storage)spec_int("w_storage", 0);
    a.w = given = spec_room(n);
    spec_ok(attn_narrow(given, w, n, a.w_storage));
    a.storage = (attn_storage)spec_int("storage", 0);
    y = spec_room((size_t)(rows * a.n_out));
    spec_ok(attn_linear_init(&l, &a));
    spec_ok(attn_linear_run(&l, y, x, rows, 0, NULL));
    spec_floats(y, (size_t)(rows * a.n_out));
    attn_linear_free(&l);
}

static void spec_norm(void)
{
    attn_norm_args a;
    float *y;
    size_t n;
    memset(&a, 0, sizeof a);
    a.rows = spec_int("rows", 1);  a.n = spec_int("n", 1);
    a.kind = (attn_norm_kind)spec_int("kind", 0);  a.eps = spec_float("eps");
    n = (size_t)(a.rows * a.n);
    a.x = spec_tensor("x", n);
    a.weight = spec_tensor("weight", (size_t)a.n);  a.bias = spec_tensor("bias", (size_t)a.n);
    a.y = y = spec_room(n);
    a.backend = spec.by;  a.exec = spec_executor();
    spec_ok(attn_norm(&a));
    spec_floats(y, n);
}

static void spec_activate(void)
{
    const size_t n = (size_t)spec_int("n", 1);
    const float *x = spec_tensor("x", n), *gate = spec_tensor("gate", n);
    float *y = spec_room(n);
    spec_ok(attn_activate(y, x, gate, n, (attn_activation)spec_int("kind", 0), spec_executor()));
    spec_floats(y, n);
}

static void spec_rope_table(void)
{
    const int positions = spec_int("positions", 0), rotary_dim = spec_int("rotary_dim", 0);
    const float *freqs = spec_tensor("freqs", (size_t)rotary_dim / 2);
    float *table = spec_room((size_t)(positions * rotary_dim));
    spec_ok(attn_rope_table(table, positions, rotary_dim, freqs, spec_double("base", 0)));
    spec_floats(table, (size_t)(positions * rotary_dim));
}

static void spec_rope_freqs(void)
{
    attn_rope_freqs_args a;
    float *freqs, *factors, attention;
    int i, n;
    memset(&a, 0, sizeof a);
    a.kind = (attn_rope_kind)spec_int("kind", 0);  a.rotary_dim = spec_int("rotary_dim", 0);
    n = a.rotary_dim / 2;
    a.base = spec_double("base", 0);  a.factor = spec_double("factor", 0);
    a.low = spec_double("low", 0);  a.high = spec_double("high", 0);
    a.original = spec_int("original", 0);  a.untruncated = spec_int("untruncated", 0);
    a.attention_factor = spec_double("attention_factor", 0);
    a.mscale = spec_double("mscale", 0);  a.mscale_all_dim = spec_double("mscale_all_dim", 0);
    a.rotated = spec_int("rotated", 0);
    a.factors = factors = spec_tensor("factors", (size_t)n);
    for (i = 0; factors && i < n; i++) factors[i] = factors[i] < 0 ? 1 - factors[i] : 1 + factors[i];
    freqs = spec_room((size_t)n);
    spec_ok(attn_rope_freqs(freqs, &attention, &a));
    spec_floats(freqs, (size_t)n);
    spec_floats(&attention, 1);
}

static void spec_rope(void)
{
    attn_rope_args a;
    float *table;
    size_t n;
    memset(&a, 0, sizeof a);
    a.batch = spec_int("batch", 1);  a.n = spec_int("n", 0);
    a.heads = spec_int("heads", 1);  a.head_dim = spec_int("head_dim", 2);
    a.rotary_dim = spec_int("rotary_dim", a.head_dim);  a.positions = 128;
    n = (size_t)(a.batch * a.n * a.heads * a.head_dim);
    a.x = spec_tensor("x", n);
    a.rope_table = table = spec_room((size_t)(a.positions * a.rotary_dim));
    spec_ok(attn_rope_table(table, a.positions, a.rotary_dim, NULL, spec_double("base", 0)));
    a.rope_interleaved = spec_int("interleaved", 0);  a.pos = spec_int("pos", 0);  a.pos_each = spec_list("pos_each");
    spec_ok(attn_rope(&a));
    spec_floats(a.x, n);
}

/* Tensor number i of a layer: its seed counts up from that of w. */
static float *spec_layer_tensor(int i, int rows, int columns)
{
    const char *text = spec_find("w");
    char *size, own[64];
    const unsigned long seed = strtoul(text, &size, 10);
    snprintf(own, sizeof own, "%lu:%g", seed + 100ul * (unsigned long)i, strtod(size + 1, NULL));
    return spec_drawn(own, (size_t)(rows * columns));
}

static void spec_layer_weights(attn_mha_args *a)
{
    const int wide = a->heads * a->head_dim, narrow = a->kv_heads * a->head_dim;
    const int v_wide = a->heads * a->v_head_dim, v_narrow = a->kv_heads * a->v_head_dim;
    const int gate = spec_int("gate", 0), norm_row = spec_int("norm_row", 0);
    a->w_q = spec_layer_tensor(0, wide, a->d_model);
    a->w_k = spec_layer_tensor(1, narrow, a->d_model);
    a->w_v = spec_layer_tensor(2, v_narrow, a->d_model);
    a->w_o = spec_layer_tensor(3, a->d_model, v_wide);
    if (spec_int("bias", 0)) {
        a->b_q = spec_layer_tensor(4, wide, 1);
        a->b_k = spec_layer_tensor(5, narrow, 1);
        a->b_v = spec_layer_tensor(6, v_narrow, 1);
        a->b_o = spec_layer_tensor(7, a->d_model, 1);
    }
    if (spec_int("norm", 0)) {
        a->q_norm = spec_layer_tensor(8, norm_row ? wide : a->head_dim, 1);
        a->k_norm = spec_layer_tensor(9, norm_row ? narrow : a->head_dim, 1);
    }
    if (spec_int("norm_bias", 0)) {
        a->q_norm_b = spec_layer_tensor(12, norm_row ? wide : a->head_dim, 1);
        a->k_norm_b = spec_layer_tensor(13, norm_row ? narrow : a->head_dim, 1);
    }
    if (gate) {
        a->w_gate = spec_layer_tensor(10, gate, a->d_model);
        a->b_gate = spec_layer_tensor(11, gate, 1);
        a->gate_rows = gate;
    }
    if (spec_int("w_in", 0)) {                   /* the same weights and biases, one after the other */
        const int rows[3] = { wide, narrow, v_narrow };
        const void *const w[3] = { a->w_q, a->w_k, a->w_v };
        const float *const b[3] = { a->b_q, a->b_k, a->b_v };
        float *w_in = spec_room((size_t)((wide + narrow + v_narrow) * a->d_model));
        float *b_in = spec_room((size_t)(wide + narrow + v_narrow));
        int i;
        a->w_in = w_in;
        if (a->b_q) a->b_in = b_in;
        for (i = 0; i < 3; w_in += rows[i] * a->d_model, b_in += rows[i], i++) {
            memcpy(w_in, w[i], (size_t)(rows[i] * a->d_model) * sizeof *w_in);
            if (b[i]) memcpy(b_in, b[i], (size_t)rows[i] * sizeof *b_in);
        }
        a->w_q = a->w_k = a->w_v = NULL;
        a->b_q = a->b_k = a->b_v = NULL;
    }
}

static attn_mha_args spec_layer_args(int rows)
{
    attn_mha_args a;
    const double base = spec_double("base", 0);
    float *table;
    memset(&a, 0, sizeof a);
    a.d_model = spec_int("d_model", 1);  a.heads = spec_int("heads", 1);
    a.kv_heads = spec_int("kv_heads", a.heads);  a.head_dim = spec_int("head_dim", 1);
    a.v_head_dim = spec_int("v_head_dim", a.head_dim);
    spec_layer_weights(&a);
    a.q_factors = spec_tensor("factors", (size_t)rows);
    a.qk_norm = (attn_norm_kind)spec_int("qk_norm", 0);
    a.norm_row = spec_int("norm_row", 0);  a.norm_after_rope = spec_int("norm_after_rope", 0);
    a.v_norm = spec_int("v_norm", 0);  a.norm_eps = spec_float("eps");
    a.storage = (attn_storage)spec_int("storage", 0);
    a.positions = rows;
    if (base == 0) return a;
    a.rotary_dim = spec_int("rotary_dim", a.head_dim);  a.rope_interleaved = spec_int("interleaved", 0);
    a.rope_table = table = spec_room((size_t)(rows * a.rotary_dim));
    spec_ok(attn_rope_table(table, rows, a.rotary_dim, NULL, base));
    return a;
}

static void spec_layer_opts(attn_mha_opts *o, int heads)
{
    memset(o, 0, sizeof *o);
    o->attn.backend = spec.by;  o->attn.exec = spec_executor();
    o->attn.causal = (attn_causal)spec_int("causal", 0);  o->attn.align = (attn_align)spec_int("align", 0);
    o->attn.scale = spec_float("scale");  o->attn.softcap = spec_float("softcap");
    o->attn.window_left = spec_int("window_left", 0);  o->attn.window_right = spec_int("window_right", 0);
    o->attn.q_lengths = o->attn.k_lengths = spec_list("lengths");
    if (spec_find("k_lengths")) o->attn.k_lengths = spec_list("k_lengths");
    o->attn.k_starts = spec_list("k_starts");
    o->attn.alibi_slopes = spec_tensor("alibi", (size_t)heads);
    o->attn.sinks = spec_tensor("sinks", (size_t)heads);
}

/* The same through a cache: keys of the memory filled once, or rows in steps of `piece`, then with form=look a look at all
   of them. */
static void spec_layer_cached(const attn_mha *layer, float *y, const float *x, int batch, int rows, const float *m,
                              int memory, const attn_mha_opts *o)
{
    const int most = spec_int("piece", 1), d = layer->shape.d_model;
    float *some = spec_room((size_t)(2 * batch * rows * d)), *to = some + batch * rows * d;
    attn_mha_opts step = *o, fill;
    attn_kv_args shape;
    attn_kv c;
    int i, n, b;
    memset(&shape, 0, sizeof shape);
    shape.batch = batch;  shape.kv_heads = layer->shape.kv_heads;  shape.head_dim = layer->shape.head_dim;
    shape.v_head_dim = layer->shape.v_head_dim;
    shape.capacity = memory ? memory : rows;
    memset(&fill, 0, sizeof fill);
    fill.memory_v = o->memory_v;
    step.memory_v = NULL;
    spec_ok(attn_kv_init(&c, &shape));
    if (memory) {
        spec_ok(attn_mha_cross_fill(layer, &c, m, batch, memory, o->attn.k_lengths, &fill));
        step.attn.k_lengths = NULL;
        spec_ok(attn_mha_cross_step(layer, y, x, batch, rows, &c, &step));
    }
    for (i = 0; !memory && i < rows; i += n) {
        n = rows - i < most ? rows - i : most;
        for (b = 0; b < batch; b++)
            memcpy(some + b * n * d, x + (b * rows + i) * d, (size_t)(n * d) * sizeof *x);
        spec_ok(attn_mha_self_step(layer, to, some, batch, n, &c, &step));
        for (b = 0; b < batch; b++)
            memcpy(y + (b * rows + i) * d, to + b * n * d, (size_t)(n * d) * sizeof *x);
    }
    if (!memory && !strncmp(spec_find("form"), "look", 4))
        spec_ok(attn_mha_self_look(layer, y, x, batch, rows, &c, &step));
    attn_kv_free(&c);
}

static void spec_layer(void)
{
    const int rows = spec_int("rows", 1), batch = spec_int("batch", 1), memory = spec_int("memory", 0);
    const attn_mha_args a = spec_layer_args(rows);
    const int keys = memory ? memory : rows;
    const size_t n = (size_t)(batch * rows * a.d_model), n_weights = (size_t)(batch * rows * keys);
    const float *x = spec_tensor("x", n), *m = spec_tensor("m", (size_t)(batch * memory * a.d_model));
    float *y = spec_room(n);
    attn_mha_opts o;
    attn_mha layer;
    spec_layer_opts(&o, a.heads);
    o.weights_mean = spec_int("mean", 0);
    o.rope_pos = spec_list("rope_pos");
    o.memory_v = spec_tensor("memory_v", (size_t)(batch * memory * a.d_model));
    if (o.weights_mean) o.attn.weights = spec_room(n_weights);
    spec_ok(attn_mha_init(&layer, &a));
    if (spec_find("form")) spec_layer_cached(&layer, y, x, batch, rows, m, memory, &o);
    else if (memory) spec_ok(attn_mha_cross(&layer, y, x, batch, rows, m, memory, &o));
    else spec_ok(attn_mha_self(&layer, y, x, batch, rows, &o));
    spec_floats(y, n);
    if (o.attn.weights) spec_floats(o.attn.weights, n_weights);
    attn_mha_free(&layer);
}

/* ---- section 15: linear attention ------------------------------------------------------------ */

static void spec_delta(void)
{
    attn_delta_args a;
    size_t rows, states;
    memset(&a, 0, sizeof a);
    a.batch = spec_int("batch", 1);  a.n = spec_int("n", 1);  a.heads = spec_int("heads", 1);
    a.k_heads = spec_int("k_heads", a.heads);
    a.head_dim = spec_int("head_dim", 1);  a.v_head_dim = spec_int("v_head_dim", a.head_dim);
    a.rule = (attn_rule)spec_int("rule", 0);  a.scale = spec_float("scale");
    a.qk_norm = spec_int("qk_norm", 0);  a.norm_eps = spec_float("norm_eps");
    a.g_per_component = spec_int("per", 0);  a.q_lengths = spec_list("q_lengths");
    rows = (size_t)(a.batch * a.n);
    states = (size_t)(a.batch * a.heads * a.head_dim * a.v_head_dim);
    a.q = spec_tensor("q", rows * (size_t)(a.k_heads * a.head_dim));
    a.k = spec_tensor("k", rows * (size_t)(a.k_heads * a.head_dim));
    a.v = spec_tensor("v", rows * (size_t)(a.heads * a.v_head_dim));
    a.g = spec_tensor("g", rows * (size_t)(a.heads * (a.g_per_component ? a.head_dim : 1)));
    a.beta = spec_tensor("beta", rows * (size_t)a.heads);
    a.state = spec_tensor("state", states);
    if (!a.state) a.state = spec_room(states);
    a.out = spec_room(rows * (size_t)(a.heads * a.v_head_dim));
    a.backend = spec.by;  a.exec = spec_executor();
    spec_ok(attn_delta(&a));
    spec_floats(a.out, rows * (size_t)(a.heads * a.v_head_dim));
    spec_floats(a.state, states);
}

static void spec_conv(void)
{
    attn_conv_args a;
    size_t n, states;
    memset(&a, 0, sizeof a);
    a.batch = spec_int("batch", 1);  a.n = spec_int("n", 1);
    a.channels = spec_int("channels", 1);  a.width = spec_int("width", 1);
    a.silu = spec_int("silu", 0);  a.q_lengths = spec_list("q_lengths");
    n = (size_t)(a.batch * a.n * a.channels);
    states = (size_t)(a.batch * (a.width - 1) * a.channels);
    a.x = spec_tensor("x", n);  a.w = spec_tensor("w", (size_t)(a.channels * a.width));
    a.bias = spec_tensor("bias", (size_t)a.channels);
    a.state = spec_tensor("state", states);
    if (!a.state) a.state = spec_room(states);
    a.y = spec_room(n);
    a.backend = spec.by;  a.exec = spec_executor();
    spec_ok(attn_conv(&a));
    spec_floats(a.y, n);
    spec_floats(a.state, states);
}

/* ---- all cases ------------------------------------------------------------------------------- */

static const struct { const char *name; void (*run)(void); } spec_operations[] = {
    { "exp", spec_exp }, { "log", spec_log }, { "tanh", spec_tanh }, { "scale", spec_scale },
    { "narrow", spec_narrow }, { "eight", spec_eight_bits },
    { "widen", spec_widen }, { "mask_merge", spec_mask_merge },
    { "builder", spec_builder }, { "bias_shift", spec_bias_shift }, { "t5", spec_t5 }, { "attention", spec_attention },
    { "states", spec_states }, { "parts", spec_parts }, { "fold", spec_fold_given }, { "resume", spec_resume },
    { "linear", spec_linear }, { "norm", spec_norm }, { "activate", spec_activate },
    { "rope_table", spec_rope_table }, { "rope_freqs", spec_rope_freqs }, { "rope", spec_rope },
    { "layer", spec_layer }, { "delta", spec_delta }, { "conv", spec_conv }
};
enum { SPEC_OPERATIONS = sizeof spec_operations / sizeof *spec_operations };

/* Returns backend number `backend` of the case among those with fused multiply-add; without this key, the best one. */
static attn_backend spec_backend(void)
{
    attn_backend list[16], fused[16];
    const int n = attn_backends(list, 16);
    int i, fit = 0;
    for (i = 0; i < n; i++)
        if (list[i] != ATTN_SSE2 && list[i] != ATTN_WASM) fused[fit++] = list[i];
    return spec_find("backend") ? fused[spec_int("backend", 0) % fit] : ATTN_AUTO;
}

/* The hash of a case. */
static spec_bits spec_case(const char *text)
{
    const size_t name = strcspn(text, " ");
    int at = 0;
    spec.text = text;
    spec.by = spec_backend();
    spec.hash = 0xCBF29CE484222325ull;
    spec.used = 0;
    spec.n_lists = 0;
    while (at < SPEC_OPERATIONS && (strlen(spec_operations[at].name) != name ||
                                    strncmp(spec_operations[at].name, spec.text, name))) at++;
    if (at == SPEC_OPERATIONS) exit(2);
    spec_operations[at].run();
    return spec.hash;
}

/* Adds a hash to the hash of a section: FNV-1a over the hashes of its cases. */
static spec_bits spec_add(spec_bits all, spec_bits one)
{
    spec.hash = all;
    spec_word((unsigned)one);
    spec_word((unsigned)(one >> 32));
    return spec.hash;
}

/* The number of SPEC.md, section 13, and that of backends that round each product (SSE2, wasm). Vectors change both. */
static const spec_bits spec_number = 0x457DA26D9C9ED619ull, spec_number_apart = 0x1E16A10E414D255Bull;

static void spec_print(const char *before, spec_bits h, const char *after)
{
    printf("%s%08lX%08lX%s", before, (unsigned long)(h >> 32), (unsigned long)(h & 0xFFFFFFFFu), after);
}

/* Returns the number here: the hash of the hashes of the sections. print 1: prints each of them. */
static spec_bits spec_number_here(int print)
{
    spec_bits all = 0xCBF29CE484222325ull;
    int i = 0;
    while (i < SPEC_CASES) {
        const int section = spec_cases[i].section;
        spec_bits one = 0xCBF29CE484222325ull;
        for (; i < SPEC_CASES && spec_cases[i].section == section; i++) one = spec_add(one, spec_case(spec_cases[i].text));
        if (print) printf("section %-2d ", section), spec_print("", one, "\n");
        all = spec_add(all, one);
    }
    return all;
}

#ifndef SPEC_NO_MAIN
/* The hash at the end of the next line of a file that this program has printed; 0 at its end. */
static spec_bits spec_next(FILE *file)
{
    char line[512];
    do if (!fgets(line, sizeof line, file)) return 0; while (*line == '#');
    return strtoull(strrchr(line, ' '), NULL, 16);
}

/* One line for each section of SPEC.md, and one for each case that differs from the file. */
static int spec_sections(const char *name)
{
    FILE *file = fopen(name, "r");
    int i = 0, differ = 0;
    if (!file) return perror(name), 2;
    while (i < SPEC_CASES) {
        const int section = spec_cases[i].section;
        spec_bits here = 0xCBF29CE484222325ull, there = here;
        for (; i < SPEC_CASES && spec_cases[i].section == section; i++) {
            const spec_bits one = spec_case(spec_cases[i].text), want = spec_next(file);
            here = spec_add(here, one);
            there = spec_add(there, want);
            if (one != want) printf("    other bits in case %s: %s\n", spec_cases[i].name, spec_cases[i].text);
        }
        printf("tests/SPEC.md section %-2d", section);
        spec_print(" ", here, here == there ? "  as everywhere\n" : "  NOT the bits of this section\n");
        differ += here != there;
    }
    fclose(file);
    return differ > 0;
}

/* Cases from standard input, one a line. A hash for each of them, or all bytes of its outputs. */
static int spec_read(int dump)
{
    static char line[1 << 14];
    spec.dump = dump;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\r\n")] = 0;
        spec_print(" ", spec_case(line), "\n");
        fflush(stdout);
    }
    return 0;
}

/* Returns 0 if the best backend has no fused multiply-add, and therefore other bits. */
static int spec_fused(void)
{
    attn_backend best[1];
    return attn_backends(best, 1) > 0 && best[0] != ATTN_SSE2 && best[0] != ATTN_WASM;
}

int main(int argc, char **argv)
{
    const int sections = argc == 3 && !strcmp(argv[1], "-s");
    int i;
    if (argc == 2 && !strcmp(argv[1], "-n")) {
        const spec_bits here = spec_number_here(1);
        spec_print("number     ", here, "\n");
        return here != (spec_fused() ? spec_number : spec_number_apart);
    }
    if (!spec_fused()) {
        fputs("vectors: SKIPPED, no fused multiply-add here: the bits are others by design\n", stderr);
        return sections ? 0 : 77;
    }
    if (sections) return spec_sections(argv[2]);
    if (argc == 2 && (!strcmp(argv[1], "-r") || !strcmp(argv[1], "-d"))) return spec_read(argv[1][1] == 'd');
    if (argc > 1) return puts("usage: vectors [-s vectors.txt | -n | -r | -d]"), 2;
    puts("# printed by tests/spec/vectors.c: section, name, operation, parameters, hash (tests/SPEC.md, section 13)");
    for (i = 0; i < SPEC_CASES; i++) {
        const spec_bits hash = spec_case(spec_cases[i].text);
        printf("%d %s %s", spec_cases[i].section, spec_cases[i].name, spec_cases[i].text);
        spec_print(" ", hash, "\n");
    }
    return 0;
}
#endif
