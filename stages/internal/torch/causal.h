// What libtch cannot call: its attention has no way to leave the mask out.
#ifndef RCGRPO_CAUSAL_H
#define RCGRPO_CAUSAL_H
#ifdef __cplusplus
extern "C" {
#endif
// Causal attention without a mask of [B, H, T, D], libtorch's fastest where there is one for the device and type. The
// arguments and the result are handles of libtch; null after an exception, whose text causal_error gives until the next call.
void *causal_attention(void *q, void *k, void *v);
const char *causal_error(void);
#ifdef __cplusplus
}
#endif
#endif
