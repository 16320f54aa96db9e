// The fused CPU kernels of package torch: float32, row-major. Each is compiled for AVX2 and for AVX-512, with the same results.
// Pointers refer to libtorch's memory and are not retained.
#ifndef RCGRPO_KERNELS_H
#define RCGRPO_KERNELS_H
#include <stdint.h>

// Chooses the kernels for AVX-512 instead of those for AVX2.
void k_use(int avx512);

// Kernels divide their work between the threads of pool.h; results are identical for any number of threads.

// y = x * rstd * w with rstd = 1/sqrt(mean(x^2) + eps) of the row. x, y [n,d], which may be the same; w [d]; rstd [n].
void k_rms_norm(int64_t n, int64_t d, const float *x, const float *w, float eps, float *y, float *rstd);
// dx += the gradient through rms_norm, dw += that of the weight.
void k_rms_norm_backward(int64_t n, int64_t d, const float *x, const float *w, const float *rstd, const float *dy, float *dx, float *dw);
// Rotates the first heads*d columns of x [n, ld] in place by the angles of table (cos, then sin, [positions, d/2] each)
// at position pos[i]; sign -1 turns back.
void k_rope(int64_t n, int64_t heads, int64_t d, int64_t ld, float *x, const int32_t *pos, const float *cos, const float *sin, float sign);
// y = silu(g) * u; gu [n, 2m] holds g and u side by side, y [n, m].
void k_swiglu(int64_t n, int64_t m, const float *gu, float *y);
void k_swiglu_backward(int64_t n, int64_t m, const float *gu, const float *dy, float *dgu);
// db += the column sums of y [n,d].
void k_column_sum(int64_t n, int64_t d, const float *y, float *db);
// out[i] += in[i] over rows ids: de[ids[i]] += dx[i].
void k_rows_add(int64_t n, int64_t d, const int64_t *ids, const float *dx, float *de);

// Causal attention over packed segments with grouped queries. A segment is a path of rows of k and v (stride ldkv, each
// kv_heads*d wide): path[bounds[i] .. bounds[i+1]). Its queries are rows query_bounds[i] .. query_bounds[i+1]-1 of q (stride ldq);
// query j has index places[j] in the path, ascending, and sees the path up to it. out [queries, heads*d];
// lse [queries, heads]; scratch holds room floats for each of pool_room() threads, for the longest path of t rows (2d + 4) * t rounded up to 16.
void k_attention(int64_t segments, const int32_t *bounds, const int32_t *path, const int32_t *query_bounds, const int32_t *places, int64_t heads, int64_t kv_heads, int64_t d,
	const float *q, int64_t ldq, const float *k, const float *v, int64_t ldkv, float *out, float *lse, float *scratch, int64_t room);
// Writes dq (stride lddq), and adds to dk and dv (stride lddkv), because segments may share rows. scratch as above with
// (5d + 8).
void k_attention_backward(int64_t segments, const int32_t *bounds, const int32_t *path, const int32_t *query_bounds, const int32_t *places, int64_t heads, int64_t kv_heads, int64_t d,
	const float *q, int64_t ldq, const float *k, const float *v, int64_t ldkv, const float *out, const float *lse, const float *dout,
	float *dq, int64_t lddq, float *dk, float *dv, int64_t lddkv, float *scratch, int64_t room);
// Row i of qkv (q, k, v side by side) is position pos[i] of slot[i]: its key and value enter the caches keys [slots, kv_heads, d, ld]
// and values [slots, kv_heads, ld, d], ld a multiple of 16.
void k_cache_rows(int64_t n, const int32_t *slot, const int32_t *pos, int64_t heads, int64_t kv_heads, int64_t d, const float *qkv, float *keys, float *values, int64_t ld);
// Attention of such rows to the positions 0..pos[i] of their slots; out [n, heads*d]; scratch 4*ld floats for each of pool_room() threads.
void k_cached_attention(int64_t n, const int32_t *slot, const int32_t *pos, int64_t heads, int64_t kv_heads, int64_t d, const float *qkv,
	const float *keys, const float *values, int64_t ld, float *out, float *scratch);

// Statistics of softmax(logits*inverse_temperature) per row: stats [n, 6] doubles = logp of target, entropy, logp of
// target under the reference, KL(policy || reference), and the two logsumexps. ref may be null (its columns are 0).
void k_head_stats(int64_t n, int64_t v, const float *logits, const float *ref, float inverse_temperature, const int64_t *target, double *stats);
// Overwrites logits with the gradient of sum(w0*logp + w1*entropy + w2*KL); weights [n, 3].
void k_head_backward(int64_t n, int64_t v, float *logits, const float *ref, float inverse_temperature, const int64_t *target, const double *stats, const double *weights);
// Draws from softmax(row*inverse_temperature) of each row by inverse CDF: the first id whose cumulated probability exceeds u; where
// inverse_temperature is 0, the first of the largest logits. logits [n,v]; scratch v floats for each of pool_room() threads.
void k_sample(int64_t n, int64_t v, const float *logits, const float *inverse_temperature, const double *u, int32_t *token, float *logp, float *scratch);

// c = from + a*b for a [m,k] and b [k,n], whose elements are rs apart along the rows and cs along the columns; from [m,n] with rows ldf
// apart (0: one row for all) may be null, for zeros, or c itself. c's rows are ldc apart. m, n and k are above 0. Returns 0 when there
// is no memory for packing. One thread at a time may call it.
int k_matmul(int64_t m, int64_t n, int64_t k, const float *a, int64_t rsa, int64_t csa, const float *b, int64_t rsb, int64_t csb, const float *from, int64_t ldf, float *c, int64_t ldc);

// The same with scratch memory room of k_matmul_room(m, n, k) floats; several threads may call it.
int64_t k_matmul_room(int64_t m, int64_t n, int64_t k);
void k_matmul_in(float *room, int64_t m, int64_t n, int64_t k, const float *a, int64_t rsa, int64_t csa, const float *b, int64_t rsb, int64_t csb, const float *from, int64_t ldf, float *c, int64_t ldc);

double k_square_sum(int64_t n, const float *x);
// AdamW (Loshchilov and Hutter 2019, algorithm 2) with gradient g*scale; zeroes g.
void k_adamw(int64_t n, float *p, float *g, float *m, float *v, float scale, float lr, float b1, float b2, float eps, float decay, float bias1, float bias2);

// A decoder layer's weights, matrices as [out, in] with rows without a gap, and its caches. qkv_bias may be null, and so may
// q_norm and k_norm, the weights of the norms of heads [d]. Where unrotated is set, the layer has no rotary embedding.
typedef struct {
	const float *norm1, *qkv, *qkv_bias, *q_norm, *k_norm, *o, *norm2, *gate_up, *down;
	float *keys, *values;
	int unrotated;
} k_layer;
typedef struct {
	int64_t layers, hidden, heads, kv_heads, d, mlp, vocab;
	float eps;
	const float *embed, *cos, *sin, *norm, *head;
	int64_t ld; // of the caches
} k_decoder;
// Number of rows per pass through the layers, so few that their intermediates stay in a core's cache.
enum { BLOCK_ROWS = 128 };
// A decoder's pass over new tokens: row i is token ids[i] at position pos[i] of slot[i]. The rows of a slot are ascending and in one
// part, part p being rows bounds[p]..bounds[p+1]-1. Several parts are computed by a thread each, a single one by all together, with the
// same bits. logits [n, vocab] are those after rows ends[0..n), ascending. room holds k_decode_room floats for each of pool_room() threads.
int64_t k_decode_room(const k_decoder *m);
void k_decode(const k_decoder *m, const k_layer *layer, int64_t parts, const int64_t *bounds, const int64_t *ids, const int32_t *slot, const int32_t *pos, int64_t n, const int64_t *ends,
	float *logits, float *room);
#endif
