/* onnx.h: reads the parts of ONNX files that a node test needs: one node with its attributes, and tensors.
 *
 * The files are protobuf messages. Nothing is generated and nothing is linked: the wire format is five rules (onnx.c),
 * and unknown fields are skipped. Every length is checked against what is left; a damaged file is an error with a
 * sentence, never a read outside of it. */
#ifndef ONNX_H
#define ONNX_H

#include <stddef.h>
#include <stdint.h>

enum { ONNX_FLOAT = 1, ONNX_INT64 = 7, ONNX_BOOL = 9 };     /* TensorProto.DataType */
enum { ONNX_NAME = 64, ONNX_RANK = 8, ONNX_ENDS = 16, ONNX_ATTRIBUTES = 16 };

typedef struct onnx_tensor {
    char name[ONNX_NAME];
    int type, rank;
    size_t dims[ONNX_RANK], count;        /* count: their product */
    float *floats;                        /* one of these, by type; malloc */
    int64_t *ints;
    unsigned char *bools;
} onnx_tensor;

typedef struct onnx_attribute {
    char name[ONNX_NAME];
    int64_t i;
    float f;
} onnx_attribute;

typedef struct onnx_node {
    int nodes;                            /* number of nodes in the graph; the other members describe the first one */
    char op[ONNX_NAME], domain[ONNX_NAME];
    char input[ONNX_ENDS][ONNX_NAME], output[ONNX_ENDS][ONNX_NAME];     /* "" if an optional one is absent */
    int inputs, outputs;
    onnx_attribute attribute[ONNX_ATTRIBUTES];
    int attributes;
} onnx_node;

/* Returns 1, or 0 with a sentence in *why. The data of a tensor of another type are not read. */
int onnx_read_model(const char *path, onnx_node *node, const char **why);
int onnx_read_tensor(const char *path, onnx_tensor *tensor, const char **why);
void onnx_free_tensor(onnx_tensor *tensor);

const onnx_attribute *onnx_find(const onnx_node *node, const char *name);       /* NULL: not given */

#endif
