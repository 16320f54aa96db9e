//go:build libtorch

#include "kernel_sets.h"
#include <sys/mman.h>

static const kernels *chosen = &kernels_avx2;

void k_use(int avx512) { chosen = avx512 ? &kernels_avx512 : &kernels_avx2; }

// A kernel whose rows are shared out, because no row's result depends on those beside it: IN_ROWS says how a piece is done, n rows
// from row at on, and SHARE does them all. work is how much a row is.
#define IN_ROWS(name, fields, call) \
	typedef struct { \
		const kernels *f; \
		int64_t all, each; \
		fields; \
	} name##_rows; \
	static void name##_piece(void *job, int64_t piece, int thread) { \
		const name##_rows *j = job; \
		int64_t at = piece * j->each, n = j->all - at < j->each ? j->all - at : j->each; \
		j->f->call; \
	}
#define SHARE(name, rows, work, ...) \
	{ \
		int64_t all = (rows), each = (all + 4 * pool_size() - 1) / (4 * pool_size()); \
		name##_rows j = {chosen, all, each, __VA_ARGS__}; \
		if (all > 0) \
			in_pieces(all * (work), (all + each - 1) / each, name##_piece, &j); \
	}

IN_ROWS(rms_norm, int64_t d; const float *x; const float *w; float eps; float *y; float *rstd,
	rms_norm(n, j->d, j->x + at * j->d, j->w, j->eps, j->y + at * j->d, j->rstd + at))
void k_rms_norm(int64_t n, int64_t d, const float *x, const float *w, float eps, float *y, float *rstd) SHARE(rms_norm, n, 2 * d, d, x, w, eps, y, rstd)

IN_ROWS(rms_norm_backward, int64_t d; const float *x; const float *w; const float *rstd; const float *dy; float *dx,
	rms_norm_backward(n, j->d, j->x + at * j->d, j->w, j->rstd + at, j->dy + at * j->d, j->dx + at * j->d))
IN_ROWS(rms_norm_weight, int64_t n; int64_t d; const float *x; const float *rstd; const float *dy; float *dw,
	rms_norm_weight_backward(j->n, j->d, 16 * at, j->d < 16 * (at + n) ? j->d : 16 * (at + n), j->x, j->rstd, j->dy, j->dw))
void k_rms_norm_backward(int64_t n, int64_t d, const float *x, const float *w, const float *rstd, const float *dy, float *dx, float *dw) {
	SHARE(rms_norm_backward, n, 4 * d, d, x, w, rstd, dy, dx)
	SHARE(rms_norm_weight, (d + 15) / 16, 16 * n, n, d, x, rstd, dy, dw) // by columns, so that each is added up in the order of rows
}

IN_ROWS(rope, int64_t heads; int64_t d; int64_t ld; float *x; const int32_t *pos; const float *cos; const float *sin; float sign,
	rope(n, j->heads, j->d, j->ld, j->x + at * j->ld, j->pos + at, j->cos, j->sin, j->sign))
void k_rope(int64_t n, int64_t heads, int64_t d, int64_t ld, float *x, const int32_t *pos, const float *cos, const float *sin, float sign)
	SHARE(rope, n, 2 * heads * d, heads, d, ld, x, pos, cos, sin, sign)

IN_ROWS(swiglu, int64_t m; const float *gu; float *y, swiglu(n, j->m, j->gu + at * 2 * j->m, j->y + at * j->m))
void k_swiglu(int64_t n, int64_t m, const float *gu, float *y) SHARE(swiglu, n, 16 * m, m, gu, y)

IN_ROWS(swiglu_backward, int64_t m; const float *gu; const float *dy; float *dgu,
	swiglu_backward(n, j->m, j->gu + at * 2 * j->m, j->dy + at * j->m, j->dgu + at * 2 * j->m))
void k_swiglu_backward(int64_t n, int64_t m, const float *gu, const float *dy, float *dgu) SHARE(swiglu_backward, n, 16 * m, m, gu, dy, dgu)

IN_ROWS(column_sum, int64_t n; int64_t d; const float *y; float *db,
	column_sum(j->n, j->d, 16 * at, j->d < 16 * (at + n) ? j->d : 16 * (at + n), j->y, j->db))
void k_column_sum(int64_t n, int64_t d, const float *y, float *db) SHARE(column_sum, (d + 15) / 16, 16 * n, n, d, y, db)

IN_ROWS(rows_add, int64_t n; int64_t d; const int64_t *ids; const float *dx; float *de,
	rows_add(j->n, j->d, 16 * at, j->d < 16 * (at + n) ? j->d : 16 * (at + n), j->ids, j->dx, j->de))
void k_rows_add(int64_t n, int64_t d, const int64_t *ids, const float *dx, float *de) SHARE(rows_add, (d + 15) / 16, 16 * n, n, d, ids, dx, de)

IN_ROWS(head_stats, int64_t v; const float *logits; const float *ref; float k; const int64_t *target; double *stats,
	head_stats(n, j->v, j->logits + at * j->v, j->ref ? j->ref + at * j->v : 0, j->k, j->target + at, j->stats + 6 * at))
void k_head_stats(int64_t n, int64_t v, const float *logits, const float *ref, float inverse_temperature, const int64_t *target, double *stats)
	SHARE(head_stats, n, 16 * v, v, logits, ref, inverse_temperature, target, stats)

IN_ROWS(head_backward, int64_t v; float *logits; const float *ref; float k; const int64_t *target; const double *stats; const double *weights,
	head_backward(n, j->v, j->logits + at * j->v, j->ref ? j->ref + at * j->v : 0, j->k, j->target + at, j->stats + 6 * at, j->weights + 3 * at))
void k_head_backward(int64_t n, int64_t v, float *logits, const float *ref, float inverse_temperature, const int64_t *target, const double *stats, const double *weights)
	SHARE(head_backward, n, 16 * v, v, logits, ref, inverse_temperature, target, stats, weights)

IN_ROWS(adamw, int64_t n; float *p; float *g; float *m; float *v; float scale; float lr; float b1; float b2; float eps; float decay; float bias1; float bias2,
	adamw(j->n < 16 * (at + n) ? j->n - 16 * at : 16 * n, j->p + 16 * at, j->g + 16 * at, j->m + 16 * at, j->v + 16 * at, j->scale, j->lr, j->b1, j->b2, j->eps, j->decay,
		j->bias1, j->bias2))
void k_adamw(int64_t n, float *p, float *g, float *m, float *v, float scale, float lr, float b1, float b2, float eps, float decay, float bias1, float bias2)
	SHARE(adamw, (n + 15) / 16, 64, n, p, g, m, v, scale, lr, b1, b2, eps, decay, bias1, bias2)

// The sum is made of those of pieces that are the same whatever the number of threads.
enum { SUMS = 64 };
typedef struct {
	const kernels *f;
	int64_t n;
	const float *x;
	double *sums;
} square_sums;
static void square_sum_piece(void *job, int64_t piece, int thread) {
	const square_sums *j = job;
	int64_t each = (j->n + SUMS - 1) / SUMS, at = piece * each;
	j->sums[piece] = at < j->n ? j->f->square_sum(j->n - at < each ? j->n - at : each, j->x + at) : 0;
}
double k_square_sum(int64_t n, const float *x) {
	double sums[SUMS], sum = 0;
	square_sums j = {chosen, n, x, sums};
	in_pieces(n, SUMS, square_sum_piece, &j);
	for (int i = 0; i < SUMS; i++)
		sum += sums[i];
	return sum;
}

typedef struct {
	const kernels *f;
	int64_t v;
	const float *logits, *inverse_temperature;
	const double *u;
	int32_t *token;
	float *logp, *scratch;
} sample_job;
static void sample_piece(void *job, int64_t i, int thread) {
	const sample_job *j = job;
	j->f->sample(j->v, j->logits + i * j->v, j->inverse_temperature[i], j->u[i], j->token + i, j->logp + i, j->scratch + thread * j->v);
}
void k_sample(int64_t n, int64_t v, const float *logits, const float *inverse_temperature, const double *u, int32_t *token, float *logp, float *scratch) {
	sample_job j = {chosen, v, logits, inverse_temperature, u, token, logp, scratch};
	in_pieces(16 * n * v, n, sample_piece, &j);
}

void k_attention(int64_t segments, const int32_t *bounds, const int32_t *path, const int32_t *query_bounds, const int32_t *places, int64_t heads, int64_t kv_heads, int64_t d,
	const float *q, int64_t ldq, const float *k, const float *v, int64_t ldkv, float *out, float *lse, float *scratch, int64_t room) {
	packed_attention x = {segments, bounds, path, query_bounds, places, heads, kv_heads, d, q, ldq, k, v, ldkv, out, lse, .scratch = scratch, .room = room};
	pool_share(segments * kv_heads, chosen->attention, &x);
}

void k_attention_backward(int64_t segments, const int32_t *bounds, const int32_t *path, const int32_t *query_bounds, const int32_t *places, int64_t heads, int64_t kv_heads, int64_t d,
	const float *q, int64_t ldq, const float *k, const float *v, int64_t ldkv, const float *out, const float *lse, const float *dout,
	float *dq, int64_t lddq, float *dk, float *dv, int64_t lddkv, float *scratch, int64_t room) {
	packed_attention x = {segments, bounds, path, query_bounds, places, heads, kv_heads, d, q, ldq, k, v, ldkv, (float *)out, (float *)lse, dout, dq, lddq, dk, dv, lddkv, scratch, room, 0};
	for (int64_t i = 1; i < bounds[segments]; i++)
		x.shared |= path[i] <= path[i - 1];
	pool_share(x.shared ? kv_heads : segments * kv_heads, chosen->attention_backward, &x);
}

static void in_steps(const attention_step *x, pool_piece f) { pool_share((x->n + AT_ONCE - 1) / AT_ONCE * x->kv_heads, f, (void *)x); }

void k_cache_rows(int64_t n, const int32_t *slot, const int32_t *pos, int64_t heads, int64_t kv_heads, int64_t d, const float *qkv, float *keys, float *values, int64_t ld) {
	attention_step x = {n, slot, pos, heads, kv_heads, d, qkv, keys, values, ld, 0, 0};
	in_steps(&x, chosen->cache_rows);
}

void k_cached_attention(int64_t n, const int32_t *slot, const int32_t *pos, int64_t heads, int64_t kv_heads, int64_t d, const float *qkv, const float *keys, const float *values,
	int64_t ld, float *out, float *scratch) {
	attention_step x = {n, slot, pos, heads, kv_heads, d, qkv, (float *)keys, (float *)values, ld, out, scratch};
	in_steps(&x, chosen->cached_attention);
}

int64_t k_matmul_room(int64_t m, int64_t n, int64_t k) { return chosen->matmul_room(m, n, k); }

void k_matmul_in(float *room, int64_t m, int64_t n, int64_t k, const float *a, int64_t rsa, int64_t csa, const float *b, int64_t rsb, int64_t csb, const float *from, int64_t ldf, float *c,
	int64_t ldc) {
	product x = {m, n, k, a, rsa, csa, b, rsb, csb, from, ldf, c, ldc, room};
	chosen->matmul(&x);
}

int k_matmul(int64_t m, int64_t n, int64_t k, const float *a, int64_t rsa, int64_t csa, const float *b, int64_t rsb, int64_t csb, const float *from, int64_t ldf, float *c, int64_t ldc) {
	static float *room; // kept, and made larger when a product needs more; no part of the heap, where it would lie between tensors
	static size_t roomed;
	size_t need = sizeof(float) * k_matmul_room(m, n, k);
	if (need > roomed) {
		if (roomed > 0)
			munmap(room, roomed);
		room = mmap(0, need, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		roomed = room != MAP_FAILED ? need : 0;
	}
	if (roomed == 0)
		return 0;
	k_matmul_in(room, m, n, k, a, rsa, csa, b, rsb, csb, from, ldf, c, ldc);
	return 1;
}
