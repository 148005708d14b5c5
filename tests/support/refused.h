/* refused.h: ATTN_REFUSED of the implementations inside the tests: passes the sentence to the harness, which keeps it
   for REFUSED (test.h) and checks its form. Include it before attn.h. */
#ifndef REFUSED_H
#define REFUSED_H
void test_refused(void *user, int status, const char *sentence);
#define ATTN_REFUSED(user, status, sentence) test_refused((user), (int)(status), (sentence))
#endif
