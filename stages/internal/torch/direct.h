// What libtch does not offer: attention without a mask, products with another result type, and memory.
#ifndef RCGRPO_DIRECT_H
#define RCGRPO_DIRECT_H
#ifdef __cplusplus
extern "C" {
#endif
// Causal attention of [B, H, T, D] without a mask, by libtorch's fastest implementation for the device and type. The
// arguments and the result are handles of libtch. Null after an exception; direct_error returns its message.
void *causal_attention(void *q, void *k, void *v);
// Writes the product of two matrices of a narrower type into out, float32, without rounding it to their type; on GPUs.
// The arguments are handles of libtch. 0 after an exception.
int wide_mm(void *out, void *a, void *b);
// Returns the memory that the allocator of the GPUs holds without using it. 0 after an exception.
int device_trim(void);
// Message of the last exception, valid until the next one.
const char *direct_error(void);
#ifdef __cplusplus
}
#endif
#endif
