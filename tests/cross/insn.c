/* insn.c: a plugin of qemu-user that counts the instructions of a program and prints the number at its end. Built and
 * used by tests/cross/count.sh. Debian's qemu-user has no header for plugins: the necessary declarations are here. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct qemu_plugin_tb;                    /* a block of instructions that run one after the other */
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*found)(uint64_t id, struct qemu_plugin_tb *block));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, void (*runs)(unsigned cpu, void *arg), int flags,
                                          void *arg);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*end)(uint64_t id, void *arg), void *arg);

#ifndef QEMU_PLUGIN_VERSION               /* version of the installed qemu, determined by count.sh */
#define QEMU_PLUGIN_VERSION 1
#endif
extern int qemu_plugin_version;
extern int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv);
int qemu_plugin_version = QEMU_PLUGIN_VERSION;
static uint64_t count;

static void runs(unsigned cpu, void *instructions)
{
    (void)cpu;
    count += (uintptr_t)instructions;
}

static void found(uint64_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_cb(block, runs, 0, (void *)(uintptr_t)qemu_plugin_tb_n_insns(block));
}

static void end(uint64_t id, void *arg)
{
    (void)id;
    (void)arg;
    fprintf(stderr, "%llu\n", (unsigned long long)count);
}

int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
    (void)info;
    (void)argc;
    (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, found);
    qemu_plugin_register_atexit_cb(id, end, NULL);
    return 0;
}
