/* sizes.c: WP on the functions whose contracts stand in sizes.h, and on strides that are packed. All values, no bounds. */
#include "sizes.h"

/* how a sentence is put together is not proved */
/*@ assigns *why; ensures \result == status; */
static attn_status attn__fail(attn__why *why, attn_status status, const char *sentence, const char *name,
                              long long x, long long y, long long z);

/* A tensor whose strides are all left to attn__pack_strides, heads inside rows: where it is accepted and not empty, element x
 * of run (i0, i1, i2) lies below *reach, and *reach cells are an object. */
/*@ requires width >= 0 && c0 >= 0 && c1 >= 0 && c2 >= 0 && (cell == 4 || cell == 1); */
void packed_bshd(int c0, int c1, int c2, int width, size_t cell, int i0, int i1, int i2, int x)
{
    attn__why why;
    ptrdiff_t given[3] = { 0, 0, 0 }, stride[3];
    size_t reach;
    const attn__tensor t = { "t", given, given, stride, { c0, c1, c2 }, width, 2, cell };
    if (attn__pack_strides(&why, &t, &reach) != 0 || reach == 0) return;
    //@ assert small: reach * cell <= LARGEST;
    //@ assert head: stride[2] == width;
    //@ assert row: stride[1] == times(width, c2);
    //@ assert entry: stride[0] == times(stride[1], c1);
    //@ assert all: reach == times(stride[0], c0);
    //@ assert in_row: 0 <= i2 < c2 && 0 <= x < width ==> 0 <= times(stride[2], i2) + x < stride[1];
    /*@ assert in_entry: 0 <= i1 < c1 && 0 <= i2 < c2 && 0 <= x < width ==>
            0 <= times(stride[1], i1) + (times(stride[2], i2) + x) < stride[0]; */
    /*@ assert inside: 0 <= i0 < c0 && 0 <= i1 < c1 && 0 <= i2 < c2 && 0 <= x < width ==>
            0 <= times(stride[0], i0) + (times(stride[1], i1) + (times(stride[2], i2) + x)) < reach; */
}

/* The same with rows inside heads. */
/*@ requires width >= 0 && c0 >= 0 && c1 >= 0 && c2 >= 0 && (cell == 4 || cell == 1); */
void packed_bhsd(int c0, int c1, int c2, int width, size_t cell, int i0, int i1, int i2, int x)
{
    attn__why why;
    ptrdiff_t given[3] = { 0, 0, 0 }, stride[3];
    size_t reach;
    const attn__tensor t = { "t", given, given, stride, { c0, c1, c2 }, width, 1, cell };
    if (attn__pack_strides(&why, &t, &reach) != 0 || reach == 0) return;
    //@ assert small: reach * cell <= LARGEST;
    //@ assert row: stride[1] == width;
    //@ assert head: stride[2] == times(width, c1);
    //@ assert entry: stride[0] == times(stride[2], c2);
    //@ assert all: reach == times(stride[0], c0);
    //@ assert in_head: 0 <= i1 < c1 && 0 <= x < width ==> 0 <= times(stride[1], i1) + x < stride[2];
    /*@ assert in_entry: 0 <= i2 < c2 && 0 <= i1 < c1 && 0 <= x < width ==>
            0 <= times(stride[2], i2) + (times(stride[1], i1) + x) < stride[0]; */
    /*@ assert inside: 0 <= i0 < c0 && 0 <= i1 < c1 && 0 <= i2 < c2 && 0 <= x < width ==>
            0 <= times(stride[0], i0) + (times(stride[2], i2) + (times(stride[1], i1) + x)) < reach; */
}
