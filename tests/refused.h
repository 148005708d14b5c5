/* refused.h: what an implementation inside the tests does when it refuses a call: it tells the harness, which keeps
   the sentence for REFUSED (test.h) and doubts its form at once. Stands before attn.h. */
#ifndef REFUSED_H
#define REFUSED_H
void test_refused(void *user, int status, const char *sentence);
#define ATTN_REFUSED(user, status, sentence) test_refused((user), (int)(status), (sentence))
#endif
