// The kernels of each instruction set. kernels_avx2.c and kernels_avx512.c compile them from kernel_bodies.h.
#ifndef RCGRPO_KERNEL_SETS_H
#define RCGRPO_KERNEL_SETS_H
#include "kernels.h"
#include "pool.h"

// The jobs that are done in pieces.
typedef struct {
	int64_t segments;
	const int32_t *bounds, *path, *query_bounds, *places;
	int64_t heads, kv_heads, d;
	const float *q;
	int64_t ldq;
	const float *k, *v;
	int64_t ldkv;
	float *out, *lse;
	const float *dout;
	float *dq;
	int64_t lddq;
	float *dk, *dv;
	int64_t lddkv;
	float *scratch;
	int64_t room;
	int shared; // segments share rows
} packed_attention;

typedef struct {
	int64_t n;
	const int32_t *slot, *pos;
	int64_t heads, kv_heads, d;
	const float *qkv;
	float *keys, *values;
	int64_t ld;
	float *out, *scratch;
} attention_step;

enum { AT_ONCE = 4 }; // rows whose key head is one piece of a step

typedef struct {
	int64_t m, n, k;
	const float *a;
	int64_t rsa, csa;
	const float *b;
	int64_t rsb, csb;
	const float *from;
	int64_t ldf;
	float *c;
	int64_t ldc;
	float *room;           // for packed operands
	int64_t j0, p, pieces; // column and row of B from which on pieces are done, and how many the rows are cut into
} product;

// worthwhile is the number of multiplications from which on other threads help.
static const int64_t worthwhile = 1 << 16;

static inline void in_pieces(int64_t work, int64_t n, pool_piece f, void *job) {
	if (work >= worthwhile)
		pool_share(n, f, job);
	else
		for (int64_t i = 0; i < n; i++)
			f(job, i, 0);
}

// One instruction set's kernels, in the order in which kernel_bodies.h lists them.
typedef struct {
	void (*rms_norm)(int64_t n, int64_t d, const float *x, const float *w, float eps, float *y, float *rstd);
	void (*rms_norm_backward)(int64_t n, int64_t d, const float *x, const float *w, const float *rstd, const float *dy, float *dx);
	void (*rms_norm_weight_backward)(int64_t n, int64_t d, int64_t lo, int64_t hi, const float *x, const float *rstd, const float *dy, float *dw);
	void (*rope)(int64_t n, int64_t heads, int64_t d, int64_t ld, float *x, const int32_t *pos, const float *cos, const float *sin, float sign);
	void (*swiglu)(int64_t n, int64_t m, const float *gu, float *y);
	void (*swiglu_backward)(int64_t n, int64_t m, const float *gu, const float *dy, float *dgu);
	void (*column_sum)(int64_t n, int64_t d, int64_t lo, int64_t hi, const float *y, float *db);
	void (*rows_add)(int64_t n, int64_t d, int64_t lo, int64_t hi, const int64_t *ids, const float *dx, float *de);
	pool_piece attention, attention_backward, cache_rows, cached_attention;
	void (*head_stats)(int64_t n, int64_t v, const float *logits, const float *ref, float inverse_temperature, const int64_t *target, double *stats);
	void (*head_backward)(int64_t n, int64_t v, float *logits, const float *ref, float inverse_temperature, const int64_t *target, const double *stats, const double *weights);
	void (*sample)(int64_t v, const float *logits, float inverse_temperature, double u, int32_t *token, float *logp, float *scratch);
	double (*square_sum)(int64_t n, const float *x);
	void (*adamw)(int64_t n, float *p, float *g, float *m, float *v, float scale, float lr, float b1, float b2, float eps, float decay, float bias1, float bias2);
	int64_t (*matmul_room)(int64_t m, int64_t n, int64_t k);
	void (*matmul)(product *x);
} kernels;

extern const kernels kernels_avx512, kernels_avx2;
#endif
