//go:build libtorch

#include "kernels.h"
#include <math.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

// One instruction set's kernels, in the order in which kernel_bodies.h lists them.
typedef struct {
	void (*rms_norm)(int64_t n, int64_t d, const float *x, const float *w, float eps, float *y, float *rstd);
	void (*rms_norm_backward)(int64_t n, int64_t d, const float *x, const float *w, const float *rstd, const float *dy, float *dx, float *dw);
	void (*rope)(int64_t n, int64_t heads, int64_t d, int64_t ld, float *x, const int32_t *pos, const float *cos, const float *sin, float sign);
	void (*swiglu)(int64_t n, int64_t m, const float *gu, float *y);
	void (*swiglu_backward)(int64_t n, int64_t m, const float *gu, const float *dy, float *dgu);
	void (*column_sum)(int64_t n, int64_t d, const float *y, float *db);
	void (*rows_add)(int64_t n, int64_t d, const int64_t *ids, const float *dx, float *de);
	void (*attention)(int64_t segments, const int32_t *bounds, const int32_t *path, const int32_t *query_bounds, const int32_t *places, int64_t heads, int64_t kv_heads, int64_t d, const float *q, int64_t ldq, const float *k, const float *v, int64_t ldkv, float *out, float *lse, float *scratch);
	void (*attention_backward)(int64_t segments, const int32_t *bounds, const int32_t *path, const int32_t *query_bounds, const int32_t *places, int64_t heads, int64_t kv_heads, int64_t d, const float *q, int64_t ldq, const float *k, const float *v, int64_t ldkv, const float *out, const float *lse, const float *dout, float *dq, int64_t lddq, float *dk, float *dv, int64_t lddkv, float *scratch);
	void (*cached_attention)(int64_t n, const int32_t *slot, const int32_t *pos, int64_t heads, int64_t kv_heads, int64_t d, const float *qkv, float *keys, float *values, int64_t ld, float *out, float *scratch);
	void (*head_stats)(int64_t n, int64_t v, const float *logits, const float *ref, float inverse_temperature, const int64_t *target, double *stats);
	void (*head_backward)(int64_t n, int64_t v, float *logits, const float *ref, float inverse_temperature, const int64_t *target, const double *stats, const double *weights);
	void (*sample)(int64_t v, const float *logits, float inverse_temperature, double u, int32_t *token, float *logp, float *scratch);
	double (*square_sum)(int64_t n, const float *x);
	void (*adamw)(int64_t n, float *p, float *g, float *m, float *v, float scale, float lr, float b1, float b2, float eps, float decay, float bias1, float bias2);
} kernels;

// The bodies are included once per instruction set rather than cloned by attribute, because GCC splits vector
// operations of helper functions for the helper's own target before it inlines them.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE 1
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")
#define NAME(f) f##_avx512
#include "kernel_bodies.h"
#undef NAME
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi2")
#define NAME(f) f##_avx2
#include "kernel_bodies.h"
#undef NAME
#pragma GCC pop_options
#endif

#define NAME(f) f##_base
#include "kernel_bodies.h"
#undef NAME

static int widest = 2; // 0 base, 1 AVX2, 2 AVX-512
static const kernels *known;

void k_limit(int level) {
	widest = level;
	known = 0;
}

static const kernels *chosen(void) {
	if (known)
		return known;
#ifdef WIDE
	__builtin_cpu_init();
	if (widest >= 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
		__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma"))
		return known = &all_avx512;
	if (widest >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return known = &all_avx2;
#endif
	return known = &all_base;
}

void k_rms_norm(int64_t n, int64_t d, const float *x, const float *w, float eps, float *y, float *rstd) { chosen()->rms_norm(n, d, x, w, eps, y, rstd); }
void k_rms_norm_backward(int64_t n, int64_t d, const float *x, const float *w, const float *rstd, const float *dy, float *dx, float *dw) { chosen()->rms_norm_backward(n, d, x, w, rstd, dy, dx, dw); }
void k_rope(int64_t n, int64_t heads, int64_t d, int64_t ld, float *x, const int32_t *pos, const float *cos, const float *sin, float sign) { chosen()->rope(n, heads, d, ld, x, pos, cos, sin, sign); }
void k_swiglu(int64_t n, int64_t m, const float *gu, float *y) { chosen()->swiglu(n, m, gu, y); }
void k_swiglu_backward(int64_t n, int64_t m, const float *gu, const float *dy, float *dgu) { chosen()->swiglu_backward(n, m, gu, dy, dgu); }
void k_column_sum(int64_t n, int64_t d, const float *y, float *db) { chosen()->column_sum(n, d, y, db); }
void k_rows_add(int64_t n, int64_t d, const int64_t *ids, const float *dx, float *de) { chosen()->rows_add(n, d, ids, dx, de); }
void k_attention(int64_t segments, const int32_t *bounds, const int32_t *path, const int32_t *query_bounds, const int32_t *places, int64_t heads, int64_t kv_heads, int64_t d, const float *q, int64_t ldq, const float *k, const float *v, int64_t ldkv, float *out, float *lse, float *scratch) { chosen()->attention(segments, bounds, path, query_bounds, places, heads, kv_heads, d, q, ldq, k, v, ldkv, out, lse, scratch); }
void k_attention_backward(int64_t segments, const int32_t *bounds, const int32_t *path, const int32_t *query_bounds, const int32_t *places, int64_t heads, int64_t kv_heads, int64_t d, const float *q, int64_t ldq, const float *k, const float *v, int64_t ldkv, const float *out, const float *lse, const float *dout, float *dq, int64_t lddq, float *dk, float *dv, int64_t lddkv, float *scratch) { chosen()->attention_backward(segments, bounds, path, query_bounds, places, heads, kv_heads, d, q, ldq, k, v, ldkv, out, lse, dout, dq, lddq, dk, dv, lddkv, scratch); }
void k_cached_attention(int64_t n, const int32_t *slot, const int32_t *pos, int64_t heads, int64_t kv_heads, int64_t d, const float *qkv, float *keys, float *values, int64_t ld, float *out, float *scratch) { chosen()->cached_attention(n, slot, pos, heads, kv_heads, d, qkv, keys, values, ld, out, scratch); }
void k_head_stats(int64_t n, int64_t v, const float *logits, const float *ref, float inverse_temperature, const int64_t *target, double *stats) { chosen()->head_stats(n, v, logits, ref, inverse_temperature, target, stats); }
void k_head_backward(int64_t n, int64_t v, float *logits, const float *ref, float inverse_temperature, const int64_t *target, const double *stats, const double *weights) { chosen()->head_backward(n, v, logits, ref, inverse_temperature, target, stats, weights); }
void k_sample(int64_t v, const float *logits, float inverse_temperature, double u, int32_t *token, float *logp, float *scratch) { chosen()->sample(v, logits, inverse_temperature, u, token, logp, scratch); }
double k_square_sum(int64_t n, const float *x) { return chosen()->square_sum(n, x); }
void k_adamw(int64_t n, float *p, float *g, float *m, float *v, float scale, float lr, float b1, float b2, float eps, float decay, float bias1, float bias2) { chosen()->adamw(n, p, g, m, v, scale, lr, b1, b2, eps, decay, bias1, bias2); }
