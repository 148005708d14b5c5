/* sizes.h: contracts for "sizes that cannot wrap" (section 5), which WP proves for all values. Included before the
 * definitions of attn.h.
 * Products are times(a, b), not a * b: in a product of four numbers the provers cannot determine which two belong
 * together. facts.smt2 proves the assumptions about times and 64-bit words for a * b and for bit vectors. */
#define ATTN_NO_SIMD
#define ATTN_NO_STDIO
#define ATTN_STATIC
#define ATTN_MALLOC(user, n) ((void)(user), (void)(n), (void *)0)
#define ATTN_FREE(user, p) ((void)(user), (void)(p))
#define ATTN_IMPLEMENTATION
#include <stddef.h>

#define MAX     18446744073709551615      /* the largest size_t */
#define LARGEST 4611686018427387903       /* ATTN__BYTES_MAX */

/*@ axiomatic Words {
      axiom f_wrapped: \forall integer x; MAX < x <= 2 * MAX ==> (size_t)x == x - MAX - 1;
      axiom f_high_bits: \forall size_t a, size_t b;
          (18446744069414584320 & (a | b)) == 0 ==> a < 4294967296 && b < 4294967296;
    } */
/*@ axiomatic Times {
      logic integer times(integer a, integer b);
      axiom f_sign: \forall integer a, integer b; a >= 0 && b >= 0 ==> times(a, b) >= 0;
      axiom f_factor: \forall integer a, integer b; a >= 0 && b >= 1 ==> a <= times(a, b);
      axiom f_zero: \forall integer a, integer b; (a == 0 || b == 0) ==> times(a, b) == 0;
      axiom f_ints: \forall integer a, integer b;
          0 <= a < 2147483648 && 0 <= b < 2147483648 ==> times(a, b) <= 4611686018427387904;
      axiom f_halves: \forall integer a, integer b;
          0 <= a < 4294967296 && 0 <= b < 4294967296 ==> times(a, b) <= MAX;
      axiom f_last: \forall integer a, integer i, integer n;
          a >= 0 && 0 <= i < n ==> times(a, i) <= times(a, n - 1) <= times(a, n) - a;
      axiom f_fits: \forall integer a, integer b, integer m;
          a >= 0 && b > 0 && m >= 0 ==> (a <= m / b <==> times(a, b) <= m);
    } */
#ifdef PRODUCT                            /* its definition: only for attn__mul */
/*@ axiomatic Product { axiom f_product: \forall integer a, integer b; times(a, b) == a * b; } */
#endif

/* the product; returns 1 if it does not fit */
/*@ requires \valid(r);
    assigns *r;
    ensures \result == 0 ==> times(a, b) <= MAX;
    ensures times(a, b) <= MAX ==> \result == 0;
    ensures \result == 0 ==> *r == times(a, b); */
static int attn__mul(size_t a, size_t b, size_t *r);

/*@ requires \valid(r);
    assigns *r;
    ensures \result == 0 <==> a + b <= MAX;
    ensures \result == 0 ==> *r == a + b; */
static int attn__add(size_t a, size_t b, size_t *r);

/*@ requires to > 0 && n + to <= MAX;
    assigns \nothing;
    ensures n <= \result < n + to;
    ensures \result % to == 0; */
static size_t attn__up(size_t n, size_t to);

/* an accepted result is the product and no larger than an object; not shown: that nothing else is rejected */
/*@ requires \valid(bytes);
    requires a >= 0 && b >= 0 && c >= 0 && d >= 0 && 0 < cell <= 8;
    assigns *bytes;
    ensures \result == 0 ==> times(times(times(times(a, b), c), d), cell) <= LARGEST;
    ensures \result == 0 ==> *bytes == times(times(times(times(a, b), c), d), cell); */
static int attn__bytes(size_t *bytes, int a, int b, int c, int d, size_t cell);

/* 1 if and only if the two runs of bytes share one */
/*@ assigns \nothing;
    ensures x_bytes > 0 && y_bytes > 0 && x + x_bytes <= MAX + 1 && y + y_bytes <= MAX + 1 ==>
            (\result != 0 <==> \exists integer i; x <= i < x + x_bytes && y <= i < y + y_bytes); */
static int attn__meet(size_t x, size_t x_bytes, size_t y, size_t y_bytes);

#include "attn.h"
