// What libtch cannot call: its attention has no way to leave the mask out, and its products none to say the type of the result.
#ifndef RCGRPO_DIRECT_H
#define RCGRPO_DIRECT_H
#ifdef __cplusplus
extern "C" {
#endif
// Causal attention without a mask of [B, H, T, D], libtorch's fastest where there is one for the device and type. The
// arguments and the result are handles of libtch; null after an exception, whose text direct_error gives until the next call.
void *causal_attention(void *q, void *k, void *v);
// Writes the product of two matrices of one narrower type into out, float32, without rounding it to theirs; on GPUs. The
// arguments are handles of libtch; 0 after an exception.
int wide_mm(void *out, void *a, void *b);
const char *direct_error(void);
#ifdef __cplusplus
}
#endif
#endif
