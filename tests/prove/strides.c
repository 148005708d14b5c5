/* strides.c: WP on strides, given or not. All values, no bounds. */
#include "sizes.h"

/* building a sentence is not proved */
/*@ assigns *why; ensures \result == ATTN_E_OVERFLOW; */
static attn_status attn__fail_large(attn__why *why, const attn__tensor *t, int d);
/*@ assigns *why; ensures \result == ATTN_E_STRIDE; */
static attn_status attn__fail_stride(attn__why *why, const attn__tensor *t, int d, size_t least);

/*@ predicate tensor(attn__tensor *t) =
        \valid_read(t) && \valid(t->stride + (0 .. 2)) && \valid_read(t->given + (0 .. 2)) && t->width >= 0 &&
        (t->inner == 1 || t->inner == 2) && (t->cell == 4 || t->cell == 1) &&
        t->count[0] >= 0 && t->count[1] >= 0 && t->count[2] >= 0 &&
        \separated(t, t->stride + (0 .. 2), t->given + (0 .. 2));
    predicate fits(integer reach, size_t cell) = cell == 4 ? reach <= LARGEST / 4 : reach <= LARGEST;
    logic integer steps(ptrdiff_t stride, int count) = count < 2 ? 0 : times(stride, count - 1); */

/*@ requires tensor(t) && 0 <= d <= 2 && \valid(inside) && *inside <= LARGEST;
    requires \separated(inside, t, t->stride + (0 .. 2), t->given + (0 .. 2));
    requires \separated(why, inside, t, t->stride + (0 .. 2), t->given + (0 .. 2));
    assigns *why, *inside, t->stride[d];
    ensures sign: \result == 0 ==> t->stride[d] >= 0;
    ensures given: \result == 0 && t->given[d] != 0 ==> t->stride[d] == t->given[d];
    ensures small: \result == 0 ==> *inside <= LARGEST; */
static attn_status attn__fill_stride(attn__why *why, const attn__tensor *t, int d, size_t *inside);

/*@ requires tensor(t) && \valid(reach);
    requires \separated(reach, t, t->stride + (0 .. 2), t->given + (0 .. 2));
    requires \separated(why, reach, t, t->stride + (0 .. 2), t->given + (0 .. 2));
    assigns *why, *reach, t->stride[0 .. 2];
    ensures sign: \result == 0 ==> t->stride[0] >= 0 && t->stride[1] >= 0 && t->stride[2] >= 0;
    ensures given: \result == 0 ==> \forall integer d; 0 <= d <= 2 && t->given[d] != 0 ==> t->stride[d] == t->given[d];
    ensures some: \result == 0 ==>
        (*reach == 0 <==> t->count[0] == 0 || t->count[1] == 0 || t->count[2] == 0 || t->width == 0); */
static attn_status attn__fill_strides(attn__why *why, const attn__tensor *t, size_t *reach);

/*@ requires \valid_read(t) && \valid_read(t->stride + (0 .. 2)) && \valid(x) && \valid(y) && 0 <= *x <= 2 && 0 <= *y <= 2;
    requires \separated(x, y, t, t->stride + (0 .. 2));
    assigns *x, *y;
    ensures (*x == \old(*x) && *y == \old(*y)) || (*x == \old(*y) && *y == \old(*x));
    ensures t->stride[*x] <= t->stride[*y]; */
static void attn__order(const attn__tensor *t, int *x, int *y);

/*@ requires \valid_read(t) && \valid_read(t->stride + (0 .. 2)) && \valid(reach) && (t->cell == 4 || t->cell == 1);
    requires index: d == 0 || d == 1 || d == 2;
    requires sign: t->stride[0] >= 0 && t->stride[1] >= 0 && t->stride[2] >= 0;
    requires \separated(why, reach, t, t->stride + (0 .. 2));
    assigns *why, *reach;
    ensures sum: \result == 0 ==> *reach == \old(*reach) + steps(t->stride[d], t->count[d]);
    ensures clear: \result == 0 && t->count[d] >= 2 ==> t->stride[d] >= \old(*reach);
    ensures small: \result == 0 && fits(\old(*reach), t->cell) ==> fits(*reach, t->cell);
    ensures same: t->stride == \old(t->stride) && t->cell == \old(t->cell) && t->width == \old(t->width) &&
        t->stride[0] == \old(t->stride[0]) && t->stride[1] == \old(t->stride[1]) && t->stride[2] == \old(t->stride[2]) &&
        t->count[0] == \old(t->count[0]) && t->count[1] == \old(t->count[1]) && t->count[2] == \old(t->count[2]); */
static attn_status attn__check_stride(attn__why *why, const attn__tensor *t, int d, size_t *reach);

/*@ requires tensor(t) && \valid(reach) && t->stride[0] >= 0 && t->stride[1] >= 0 && t->stride[2] >= 0;
    requires \separated(reach, t, t->stride + (0 .. 2), t->given + (0 .. 2));
    requires \separated(why, reach, t, t->stride + (0 .. 2), t->given + (0 .. 2));
    assigns *why, *reach;
    ensures sum: \result == 0 ==> *reach == t->width + steps(t->stride[0], t->count[0]) +
                                            steps(t->stride[1], t->count[1]) + steps(t->stride[2], t->count[2]);
    ensures small: \result == 0 ==> fits(*reach, t->cell); */
static attn_status attn__check_strides(attn__why *why, const attn__tensor *t, size_t *reach);

/* Strides of any values: if they are accepted and the tensor is not empty, element x of run (i0, i1, i2) is below
 * *reach, and *reach elements fit an object. */
/*@ requires width >= 0 && c0 >= 0 && c1 >= 0 && c2 >= 0 && (cell == 4 || cell == 1) && (inner == 1 || inner == 2); */
void given(ptrdiff_t g0, ptrdiff_t g1, ptrdiff_t g2, int c0, int c1, int c2, int width, int inner, size_t cell,
           int i0, int i1, int i2, int x)
{
    attn__why why;
    ptrdiff_t given[3] = { g0, g1, g2 }, stride[3];
    size_t reach;
    const attn__tensor t = { "t", given, given, stride, { c0, c1, c2 }, width, inner, cell };
    if (attn__fill_strides(&why, &t, &reach) != 0 || reach == 0) return;
    if (attn__check_strides(&why, &t, &reach) != 0) return;
    //@ assert small: fits(reach, cell);
    //@ assert first: 0 <= i0 < c0 ==> 0 <= times(stride[0], i0) <= times(stride[0], c0 - 1);
    //@ assert second: 0 <= i1 < c1 ==> 0 <= times(stride[1], i1) <= times(stride[1], c1 - 1);
    //@ assert third: 0 <= i2 < c2 ==> 0 <= times(stride[2], i2) <= times(stride[2], c2 - 1);
    /*@ assert inside: 0 <= i0 < c0 && 0 <= i1 < c1 && 0 <= i2 < c2 && 0 <= x < width ==>
            0 <= times(stride[0], i0) + times(stride[1], i1) + times(stride[2], i2) + x < reach; */
}
