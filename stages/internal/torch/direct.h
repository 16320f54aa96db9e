// What libtch does not offer: attention without a mask, products with another result type, AdamW, and memory.
#ifndef RCGRPO_DIRECT_H
#define RCGRPO_DIRECT_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
// Causal attention of [B, H, T, D] without a mask, by libtorch's fastest implementation for the device and type. The
// arguments and the result are handles of libtch. Null after an exception; direct_error returns its message.
void *causal_attention(void *q, void *k, void *v);
// Writes the product of two matrices of a narrower type into out, float32, without rounding it to their type; on GPUs.
// The arguments are handles of libtch. 0 after an exception.
int wide_mm(void *out, void *a, void *b);
// FlashAttention of sequences with different lengths, in bfloat16 on GPUs: q [queries, heads, D], k and v [keys,
// kvHeads, D]; bounds [sequences+1] int32, the first query of each sequence and the end; starts likewise of the keys;
// used [sequences] int32, the keys in use, null for all; the largest numbers of queries and keys of a sequence. The
// causal mask is aligned at the ends. made receives handles of the result and of the logsumexps [heads, queries]. 0
// after an exception.
int flash_forward(void *q, void *k, void *v, void *bounds, void *starts, void *used, int64_t queries, int64_t keys,
	void **made);
// The gradients of q, k and v of flash_forward, by an algorithm whose sums have a fixed order. 0 after an exception.
int flash_backward(void *dout, void *q, void *k, void *v, void *out, void *lse, void *bounds, void *starts,
	int64_t queries, int64_t keys, void **made);
// Makes one AdamW step of float32 parameters p with gradient g, moments m and v, and the number of steps with this one
// in step [1]. g is first divided by scale [1], unless that is null. 0 after an exception.
int fused_adamw(void *p, void *g, void *m, void *v, void *step, double lr, double beta1, double beta2, double decay,
	double eps, void *scale);
// Makes the operations of GPUs use deterministic algorithms, as far as there are any. New tensors are not filled.
void device_begin(void);
// Returns the largest number of bytes in tensors of a GPU since the last call; 0 after an exception.
int64_t device_peak(int index);
// Returns the memory that the allocator of the GPUs holds without using it. 0 after an exception.
int device_trim(void);
// Message of the last exception, valid until the next one.
const char *direct_error(void);
#ifdef __cplusplus
}
#endif
#endif
