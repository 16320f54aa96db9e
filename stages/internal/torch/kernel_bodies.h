// The bodies of the kernels, included by one C file per instruction set.
//
// A vec is one register of the instruction set, because GCC moves the halves of wider vectors through general registers and the
// stack. A sum over a row has 16 lanes with every instruction set, so that its order of additions, and so its result, is the
// same. Rows whose length is no multiple of 16 end in a scalar loop.

#include "kernel_sets.h"
#include <immintrin.h>
#include <math.h>
#include <string.h>

#if defined(__AVX512F__)
#define WIDTH 16
#define INTRINSIC(f) _mm512_##f
#else
#define WIDTH 8
#define INTRINSIC(f) _mm256_##f
#endif
typedef float vec __attribute__((vector_size(4 * WIDTH)));
typedef float vec_in_memory __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH)));
typedef float vec8 __attribute__((vector_size(32)));
typedef float vec8_in_memory __attribute__((vector_size(32), aligned(4), may_alias));
#define INLINE static inline __attribute__((always_inline))
#define LOAD(p) (*(const vec_in_memory *)(p))
#define STORE(p, x) (*(vec_in_memory *)(p) = (x))

#define WHOLE(n) ((n) / 16 * 16)
#define PADDED(n) (((n) + 15) / 16 * 16)

// A loop over the vectors of 16 floats; l is the offset of a vector.
#define EACH_OF_16(l) _Pragma("GCC unroll 2") for (int l = 0; l < 16; l += WIDTH)
typedef struct {
	vec part[16 / WIDTH];
} lanes16;

// The result is b if a or b is NaN.
INLINE vec larger(vec a, vec b) { return INTRINSIC(max_ps)(a, b); }
INLINE vec smaller(vec a, vec b) { return INTRINSIC(min_ps)(a, b); }

// The first n elements, then zeros.
INLINE vec first_lanes(int64_t n, vec x) {
	ivec place;
	for (int i = 0; i < WIDTH; i++)
		place[i] = i;
	return n < WIDTH ? (vec)((ivec)x & (place < (int32_t)n)) : x;
}

INLINE lanes16 load16(const float *p) {
	lanes16 x;
	EACH_OF_16(l)
		x.part[l / WIDTH] = LOAD(p + l);
	return x;
}

// Adds lane i + 8 to lane i, then i + 4, i + 2 and i + 1.
INLINE float sum(lanes16 x) {
#if WIDTH == 16
	vec a = x.part[0];
	vec8 b = __builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7) + __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15);
#else
	vec8 b = x.part[0] + x.part[1];
#endif
	b += __builtin_shufflevector(b, b, 4, 5, 6, 7, 4, 5, 6, 7);
	b += __builtin_shufflevector(b, b, 2, 3, 2, 3, 2, 3, 2, 3);
	return b[0] + b[1];
}

INLINE float largest(vec x) {
	float m = x[0];
	for (int i = 1; i < WIDTH; i++)
		m = x[i] > m ? x[i] : m;
	return m;
}

// exp; relative error below 2e-7. Arguments below -87 give 0, those above 88 are taken as 88. Powers of two by the exponent field, the
// rest by the usual polynomial for |r| <= ln(2)/2.
INLINE vec vexp(vec x) {
	const vec zero = {0}, lo = zero - 87.0f, hi = zero + 88.0f;
	ivec gone = x < lo;
	x = smaller(hi, x);
	vec t = x * 1.44269504088896341f + 12582912.0f;
	vec n = t - 12582912.0f;
	vec r = x - n * 0.693359375f;
	r = r + n * 2.12194440e-4f;
	vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = p * (r * r) + r + 1.0f;
	return (vec)(((ivec)p + ((ivec)t << 23)) & ~gone);
}

// Large functions with several callers are compiled once.
#define SEPARATE static __attribute__((noinline))

// x[j] becomes column j of the rows x.
INLINE void transpose(vec *x) {
#if WIDTH == 16
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#else
#define LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
#endif
#pragma GCC unroll 4
	for (int done = 1; done < WIDTH; done *= 2) {
		vec y[WIDTH];
#pragma GCC unroll 8
		for (int i = 0; i < WIDTH / 2; i++) {
			y[2 * i] = __builtin_shufflevector(x[i], x[i + WIDTH / 2], LOW);
			y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + WIDTH / 2], HIGH);
		}
#pragma GCC unroll 16
		for (int i = 0; i < WIDTH; i++)
			x[i] = y[i];
	}
#undef LOW
#undef HIGH
}

// Writes the transpose of x, rows x columns, into y. With a path, row i is row path[i] of x.
SEPARATE void transposed(int64_t rows, int64_t columns, const float *x, int64_t ldx, const int32_t *path, float *y, int64_t ldy) {
#define ROW(i) (x + (path ? path[i] : (i)) * ldx)
	for (int64_t i = 0; i < rows; i += WIDTH)
		for (int64_t j = 0; j < columns; j += WIDTH) {
			if (i + WIDTH <= rows && j + WIDTH <= columns) {
				vec block[WIDTH];
#pragma GCC unroll 16
				for (int r = 0; r < WIDTH; r++)
					block[r] = LOAD(ROW(i + r) + j);
				transpose(block);
#pragma GCC unroll 16
				for (int r = 0; r < WIDTH; r++)
					STORE(y + (j + r) * ldy + i, block[r]);
				continue;
			}
			for (int64_t l = j; l < columns && l < j + WIDTH; l++)
				for (int64_t r = i; r < rows && r < i + WIDTH; r++)
					y[l * ldy + r] = ROW(r)[l];
		}
#undef ROW
}

INLINE float exp1(float x) {
	vec a = {x};
	return vexp(a)[0];
}

static void rms_norm(int64_t n, int64_t d, const float *x, const float *w, float eps, float *y, float *rstd) {
	for (int64_t i = 0; i < n; i++, x += d, y += d) {
		lanes16 acc = {0};
		float tail = 0;
		int64_t j = 0;
		for (; j < WHOLE(d); j += 16)
			EACH_OF_16(l) {
				vec a = LOAD(x + j + l);
				acc.part[l / WIDTH] += a * a;
			}
		for (; j < d; j++)
			tail += x[j] * x[j];
		float r = 1.0f / sqrtf((sum(acc) + tail) / (float)d + eps);
		rstd[i] = r;
		for (j = 0; j < WHOLE(d); j += WIDTH)
			STORE(y + j, LOAD(x + j) * r * LOAD(w + j));
		for (; j < d; j++)
			y[j] = x[j] * r * w[j];
	}
}

static void rms_norm_backward(int64_t n, int64_t d, const float *x, const float *w, const float *rstd, const float *dy, float *dx) {
	for (int64_t i = 0; i < n; i++, x += d, dy += d, dx += d) {
		float r = rstd[i], tail = 0;
		lanes16 acc = {0};
		int64_t j = 0;
		for (; j < WHOLE(d); j += 16)
			EACH_OF_16(l)
				acc.part[l / WIDTH] += LOAD(dy + j + l) * LOAD(w + j + l) * LOAD(x + j + l);
		for (; j < d; j++)
			tail += dy[j] * w[j] * x[j];
		float c = (sum(acc) + tail) * r * r / (float)d;
		for (j = 0; j < WHOLE(d); j += WIDTH) {
			vec a = LOAD(x + j), g = LOAD(dy + j);
			STORE(dx + j, LOAD(dx + j) + (g * LOAD(w + j) - a * c) * r);
		}
		for (; j < d; j++)
			dx[j] += (dy[j] * w[j] - x[j] * c) * r;
	}
}

// The weight's gradient in the columns lo to hi.
static void rms_norm_weight_backward(int64_t n, int64_t d, int64_t lo, int64_t hi, const float *x, const float *rstd, const float *dy, float *dw) {
	for (int64_t i = 0; i < n; i++, x += d, dy += d) {
		float r = rstd[i];
		int64_t j = lo;
		for (; j < WHOLE(hi); j += WIDTH)
			STORE(dw + j, LOAD(dw + j) + LOAD(dy + j) * LOAD(x + j) * r);
		for (; j < hi; j++)
			dw[j] += dy[j] * x[j] * r;
	}
}

static void rope(int64_t n, int64_t heads, int64_t d, int64_t ld, float *x, const int32_t *pos, const float *cos, const float *sin, float sign) {
	int64_t half = d / 2;
	for (int64_t i = 0; i < n; i++) {
		const float *c = cos + pos[i] * half, *s = sin + pos[i] * half;
		for (int64_t h = 0; h < heads; h++) {
			float *a = x + i * ld + h * d, *b = a + half;
			int64_t j = 0;
			for (; j < WHOLE(half); j += WIDTH) {
				vec p = LOAD(a + j), q = LOAD(b + j), cc = LOAD(c + j), ss = LOAD(s + j) * sign;
				STORE(a + j, p * cc - q * ss);
				STORE(b + j, q * cc + p * ss);
			}
			for (; j < half; j++) {
				float p = a[j], q = b[j], ss = s[j] * sign;
				a[j] = p * c[j] - q * ss;
				b[j] = q * c[j] + p * ss;
			}
		}
	}
}

static void swiglu(int64_t n, int64_t m, const float *gu, float *y) {
	for (int64_t i = 0; i < n; i++, gu += 2 * m, y += m) {
		int64_t j = 0;
		for (; j < WHOLE(m); j += WIDTH) {
			vec g = LOAD(gu + j);
			STORE(y + j, g / (1.0f + vexp(-g)) * LOAD(gu + m + j));
		}
		for (; j < m; j++)
			y[j] = gu[j] / (1.0f + exp1(-gu[j])) * gu[m + j];
	}
}

static void swiglu_backward(int64_t n, int64_t m, const float *gu, const float *dy, float *dgu) {
	for (int64_t i = 0; i < n; i++, gu += 2 * m, dgu += 2 * m, dy += m) {
		int64_t j = 0;
		for (; j < WHOLE(m); j += WIDTH) {
			vec g = LOAD(gu + j), a = LOAD(dy + j);
			vec s = 1.0f / (1.0f + vexp(-g));
			STORE(dgu + j, a * LOAD(gu + m + j) * s * (1.0f + g * (1.0f - s)));
			STORE(dgu + m + j, a * g * s);
		}
		for (; j < m; j++) {
			float g = gu[j], s = 1.0f / (1.0f + exp1(-g));
			dgu[j] = dy[j] * gu[m + j] * s * (1.0f + g * (1.0f - s));
			dgu[m + j] = dy[j] * g * s;
		}
	}
}

static void column_sum(int64_t n, int64_t d, int64_t lo, int64_t hi, const float *y, float *db) {
	for (int64_t i = 0; i < n; i++, y += d) {
		int64_t j = lo;
		for (; j < WHOLE(hi); j += WIDTH)
			STORE(db + j, LOAD(db + j) + LOAD(y + j));
		for (; j < hi; j++)
			db[j] += y[j];
	}
}

static void rows_add(int64_t n, int64_t d, int64_t lo, int64_t hi, const int64_t *ids, const float *dx, float *de) {
	for (int64_t i = 0; i < n; i++, dx += d)
		column_sum(1, d, lo, hi, dx, de + ids[i] * d);
}

// The four products of attention, for nq query vectors at once (1, 2 or 4: a constant where they are called, so that
// the loops over i unroll and the accumulators stay in registers). Rows of s are lds apart; kt has d rows ldk apart, padded with zeros to a
// multiple of 16 columns.

// Number of accumulators that leave enough registers for their operands.
#define ACCUMULATORS (WIDTH == 16 ? 16 : 8)

// s[i][j] = scale * sum over c of q[i][c]*kt[c][j], for the columns j of some vectors. next, if not null, is laid out like kt and
// is fetched meanwhile.
INLINE void score_block(const int nq, const int vectors, const float *const *q, int64_t d, const float *kt, int64_t ldk, const float *next, float scale, float *s, int64_t lds) {
	vec acc[4][4] = {{{0}}};
	for (int64_t c = 0; c < d; c++)
#pragma GCC unroll 4
		for (int x = 0; x < vectors; x++) {
			vec k = LOAD(kt + c * ldk + WIDTH * x);
			if (next && WIDTH * x % 16 == 0)
				__builtin_prefetch(next + c * ldk + WIDTH * x, 0, 2);
#pragma GCC unroll 4
			for (int i = 0; i < nq; i++)
				acc[x][i] += k * q[i][c];
		}
#pragma GCC unroll 4
	for (int x = 0; x < vectors; x++)
#pragma GCC unroll 4
		for (int i = 0; i < nq; i++)
			STORE(s + i * lds + WIDTH * x, acc[x][i] * scale);
}

// The same for j < n rounded up to 16. Several vectors at once hide the latency of a multiply-add.
INLINE void scores(const int nq, const float *const *q, int64_t d, const float *kt, int64_t ldk, const float *next, int64_t n, float scale, float *s, int64_t lds) {
	const int vectors = nq > 2 ? 2 : 4;
	int64_t j = 0;
	for (; j + WIDTH * vectors <= PADDED(n); j += WIDTH * vectors)
		score_block(nq, vectors, q, d, kt + j, ldk, next ? next + j : 0, scale, s + j, lds);
	for (; j < n; j += 16)
		score_block(nq, 16 / WIDTH, q, d, kt + j, ldk, next ? next + j : 0, scale, s + j, lds);
}

// out[i][c] = scale[i] * sum over j < n of s[i][j]*v[j][c], for the columns c of some vectors.
INLINE void value_block(const int nq, const int vectors, const float *s, int64_t lds, int64_t n, const float *v, int64_t ldv, const float *next, int64_t c, const float *scale, float *const *out) {
	vec acc[4][4] = {{{0}}};
	for (int64_t j = 0; j < n; j++)
#pragma GCC unroll 4
		for (int x = 0; x < vectors; x++) {
			vec y = LOAD(v + j * ldv + c + WIDTH * x);
			if (next && WIDTH * x % 16 == 0)
				__builtin_prefetch(next + j * ldv + c + WIDTH * x, 0, 2);
#pragma GCC unroll 4
			for (int i = 0; i < nq; i++)
				acc[x][i] += y * s[i * lds + j];
		}
#pragma GCC unroll 4
	for (int x = 0; x < vectors; x++)
#pragma GCC unroll 4
		for (int i = 0; i < nq; i++)
			STORE(out[i] + c + WIDTH * x, acc[x][i] * scale[i]);
}

INLINE void values(const int nq, const float *s, int64_t lds, int64_t n, const float *v, int64_t ldv, const float *next, int64_t d, const float *scale, float *const *out) {
	const int vectors = ACCUMULATORS / nq < 4 ? ACCUMULATORS / nq : 4;
	int64_t c = 0;
	for (; c + WIDTH * vectors <= d; c += WIDTH * vectors)
		value_block(nq, vectors, s, lds, n, v, ldv, next, c, scale, out);
	for (; c + WIDTH <= d; c += WIDTH)
		value_block(nq, 1, s, lds, n, v, ldv, next, c, scale, out);
	for (; c < d; c++)
		for (int i = 0; i < nq; i++) {
			float acc = 0;
			for (int64_t j = 0; j < n; j++)
				acc += s[i * lds + j] * v[j * ldv + c];
			out[i][c] = acc * scale[i];
		}
}

// dkt[c][j] += sum over i of q[i][c]*s[i][j], for j < n rounded up to 16.
INLINE void outer(const int nq, const float *const *q, int64_t d, const float *s, int64_t lds, int64_t n, float *dkt, int64_t ldk) {
	for (int64_t j = 0; j < n; j += 16) {
		lanes16 p[4];
		for (int i = 0; i < nq; i++)
			EACH_OF_16(l)
				p[i].part[l / WIDTH] = LOAD(s + i * lds + j + l);
		for (int64_t c = 0; c < d; c++)
			EACH_OF_16(l) {
				vec acc = LOAD(dkt + c * ldk + j + l);
#pragma GCC unroll 4
				for (int i = 0; i < nq; i++)
					acc += p[i].part[l / WIDTH] * q[i][c];
				STORE(dkt + c * ldk + j + l, acc);
			}
	}
}

// s[j] = exp(s[j] - max) for j < n and 0 from there to padded; returns the sum and gives the maximum.
INLINE float softmax_row(float *s, int64_t n, int64_t padded, float *max) {
	vec top = {0};
	top -= 1e30f;
	for (int64_t j = n; j < padded; j++)
		s[j] = -1e30f;
	for (int64_t j = 0; j < padded; j += WIDTH)
		top = larger(top, LOAD(s + j));
	float m = largest(top);
	lanes16 acc = {0};
	for (int64_t j = 0; j < padded; j += 16)
		EACH_OF_16(l) {
			vec e = first_lanes(n - j - l, vexp(LOAD(s + j + l) - m));
			STORE(s + j + l, e);
			acc.part[l / WIDTH] += e;
		}
	*max = m;
	return sum(acc);
}

// Packs the rows path[0..t) of x, ld apart, as columns of xt [d, tp], zeros behind column t.
INLINE void columns(const float *x, int64_t ld, const int32_t *path, int64_t t, int64_t tp, int64_t d, float *xt) {
	for (int64_t c = 0; c < d; c++)
		memset(xt + c * tp + t, 0, sizeof(float) * (tp - t));
	transposed(t, d, x, ld, path, xt, tp);
}

// Packs them as rows.
INLINE void gather(const float *x, int64_t ld, const int32_t *path, int64_t t, int64_t d, float *y) {
	for (int64_t j = 0; j < t; j++)
		memcpy(y + j * d, x + path[j] * ld, sizeof(float) * d);
}

INLINE void attend(const int nq, const float *const *q, const int64_t *n, int64_t d, const float *kt, int64_t ldk, const float *v, int64_t ldv, float scale,
	float *s, int64_t lds, float *const *out, float *const *lse, const float *next_kt, const float *next_v) {
	int64_t longest = n[nq - 1], padded = PADDED(longest);
	float inverse[4];
	scores(nq, q, d, kt, ldk, next_kt, longest, scale, s, lds);
	for (int i = 0; i < nq; i++) {
		float max, sum = softmax_row(s + i * lds, n[i], padded, &max);
		inverse[i] = 1.0f / sum;
		if (lse)
			*lse[i] = max + logf(sum);
	}
	values(nq, s, lds, longest, v, ldv, next_v, d, inverse, out);
}

// Query vectors of one segment and one key head, in order of their rows: vector i is head i%r of query i/r.
#define VECTOR(base, ld, i) ((base) + (first + (i) / r) * (ld) + (g * r + (i) % r) * d)

// A piece is a key head of a segment.
static void attention(void *job, int64_t piece, int thread) {
	const packed_attention *x = job;
	const int64_t d = x->d, r = x->heads / x->kv_heads, sgm = piece / x->kv_heads, g = piece % x->kv_heads;
	int64_t t = x->bounds[sgm + 1] - x->bounds[sgm], tp = PADDED(t), first = x->query_bounds[sgm], vectors = (x->query_bounds[sgm + 1] - first) * r;
	const int32_t *rows = x->path + x->bounds[sgm];
	float *kt = x->scratch + thread * x->room, *vp = kt + d * tp, *s = vp + d * tp, scale = 1.0f / sqrtf((float)d);
	if (vectors == 0)
		return;
	columns(x->k + g * d, x->ldkv, rows, t, tp, d, kt);
	gather(x->v + g * d, x->ldkv, rows, t, d, vp);
	for (int64_t i = 0; i < vectors;) {
		const float *qs[4];
		float *os[4], *ls[4];
		int64_t n[4], count = vectors - i >= 4 ? 4 : vectors - i >= 2 ? 2 : 1;
		for (int64_t b = 0; b < count; b++) {
			qs[b] = VECTOR(x->q, x->ldq, i + b);
			os[b] = VECTOR(x->out, x->heads * d, i + b);
			ls[b] = x->lse + (first + (i + b) / r) * x->heads + g * r + (i + b) % r;
			n[b] = x->places[first + (i + b) / r] + 1;
		}
		if (count == 4)
			attend(4, qs, n, d, kt, tp, vp, d, scale, s, tp, os, ls, 0, 0);
		else if (count == 2)
			attend(2, qs, n, d, kt, tp, vp, d, scale, s, tp, os, ls, 0, 0);
		else
			attend(1, qs, n, d, kt, tp, vp, d, scale, s, tp, os, ls, 0, 0);
		i += count;
	}
}

INLINE void attend_backward(const int nq, const float *const *q, const int64_t *n, int64_t d, const float *kt, const float *vt, int64_t tp, const float *k, int64_t ldk,
	float scale, const float *const *out, const float *const *lse, const float *const *dout, float *p, float *ds, float *const *dq, float *dkt, float *dvt) {
	int64_t longest = n[nq - 1], padded = PADDED(longest);
	const float one[4] = {1, 1, 1, 1};
	scores(nq, q, d, kt, tp, 0, longest, scale, p, tp);
	scores(nq, dout, d, vt, tp, 0, longest, 1.0f, ds, tp);
	float delta[4] = {0}; // by fmaf, because GCC would not fuse the sums of several i
	for (int64_t c = 0; c < d; c++)
#pragma GCC unroll 4
		for (int i = 0; i < nq; i++)
			delta[i] = fmaf(dout[i][c], out[i][c], delta[i]);
	for (int i = 0; i < nq; i++) {
		float l = *lse[i];
		float *pi = p + i * tp, *di = ds + i * tp;
		for (int64_t j = 0; j < padded; j += WIDTH) {
			vec e = first_lanes(n[i] - j, vexp(LOAD(pi + j) - l));
			STORE(pi + j, e);
			STORE(di + j, e * (LOAD(di + j) - delta[i]) * scale);
		}
	}
	values(nq, ds, tp, longest, k, ldk, 0, d, one, dq);
	outer(nq, q, d, ds, tp, longest, dkt, tp);
	outer(nq, dout, d, p, tp, longest, dvt, tp);
}

static void segment_backward(const packed_attention *x, int64_t sgm, int64_t g, float *scratch) {
	const int64_t d = x->d, r = x->heads / x->kv_heads;
	int64_t t = x->bounds[sgm + 1] - x->bounds[sgm], tp = PADDED(t), first = x->query_bounds[sgm], vectors = (x->query_bounds[sgm + 1] - first) * r;
	const int32_t *rows = x->path + x->bounds[sgm];
	float *kt = scratch, *vt = kt + d * tp, *dkt = vt + d * tp, *dvt = dkt + d * tp, *kp = dvt + d * tp, *p = kp + d * tp, *ds = p + 4 * tp;
	float scale = 1.0f / sqrtf((float)d);
	if (vectors == 0)
		return;
	columns(x->k + g * d, x->ldkv, rows, t, tp, d, kt);
	columns(x->v + g * d, x->ldkv, rows, t, tp, d, vt);
	gather(x->k + g * d, x->ldkv, rows, t, d, kp);
	memset(dkt, 0, sizeof(float) * 2 * d * tp);
	for (int64_t i = 0; i < vectors;) {
		const float *qs[4], *os[4], *ls[4], *dos[4];
		float *dqs[4];
		int64_t n[4], count = vectors - i >= 4 ? 4 : vectors - i >= 2 ? 2 : 1;
		for (int64_t b = 0; b < count; b++) {
			qs[b] = VECTOR(x->q, x->ldq, i + b);
			os[b] = VECTOR(x->out, x->heads * d, i + b);
			dos[b] = VECTOR(x->dout, x->heads * d, i + b);
			dqs[b] = VECTOR(x->dq, x->lddq, i + b);
			ls[b] = x->lse + (first + (i + b) / r) * x->heads + g * r + (i + b) % r;
			n[b] = x->places[first + (i + b) / r] + 1;
		}
		if (count == 4)
			attend_backward(4, qs, n, d, kt, vt, tp, kp, d, scale, os, ls, dos, p, ds, dqs, dkt, dvt);
		else if (count == 2)
			attend_backward(2, qs, n, d, kt, vt, tp, kp, d, scale, os, ls, dos, p, ds, dqs, dkt, dvt);
		else
			attend_backward(1, qs, n, d, kt, vt, tp, kp, d, scale, os, ls, dos, p, ds, dqs, dkt, dvt);
		i += count;
	}
	float *sums[2] = {dkt, dvt}, *to[2] = {x->dk, x->dv};
	for (int i = 0; i < 2; i++) {
		transposed(d, t, sums[i], tp, 0, kp, d);
		for (int64_t j = 0; j < t; j++)
			column_sum(1, d, 0, d, kp + j * d, to[i] + rows[j] * x->lddkv + g * d);
	}
}

// A piece is a key head of a segment, or of all where segments share rows, whose gradients add up in the order of segments.
static void attention_backward(void *job, int64_t piece, int thread) {
	const packed_attention *x = job;
	float *scratch = x->scratch + thread * x->room;
	if (!x->shared)
		segment_backward(x, piece / x->kv_heads, piece % x->kv_heads, scratch);
	for (int64_t sgm = 0; x->shared && sgm < x->segments; sgm++)
		segment_backward(x, sgm, piece, scratch);
}
#undef VECTOR

// Keys and values enter the caches. Here and below, a piece is a key head of AT_ONCE rows.
static void cache_rows(void *job, int64_t piece, int thread) {
	const attention_step *x = job;
	const int64_t d = x->d, ld = x->ld, width = (x->heads + 2 * x->kv_heads) * d, g = piece % x->kv_heads, first = piece / x->kv_heads * AT_ONCE;
	for (int64_t i = first; i < first + AT_ONCE && i < x->n; i++) {
		int64_t room = x->slot[i] * x->kv_heads + g;
		const float *k = x->qkv + i * width + (x->heads + g) * d, *v = k + x->kv_heads * d;
		float *kt = x->keys + room * d * ld + x->pos[i];
		for (int64_t c = 0; c < d; c++)
			kt[c * ld] = k[c];
		memcpy(x->values + (room * ld + x->pos[i]) * d, v, sizeof(float) * d);
	}
}

// Rows of one slot share what they read, up to four query vectors at a time.
static void cached_attention(void *job, int64_t piece, int thread) {
	const attention_step *x = job;
	const int64_t d = x->d, ld = x->ld, r = x->heads / x->kv_heads, width = (x->heads + 2 * x->kv_heads) * d, g = piece % x->kv_heads, first = piece / x->kv_heads * AT_ONCE;
	const int64_t end = first + AT_ONCE < x->n ? first + AT_ONCE : x->n;
	float *s = x->scratch + thread * 4 * ld, scale = 1.0f / sqrtf((float)d);
	for (int64_t i = first, h = 0; i < end;) {
		int64_t room = x->slot[i] * x->kv_heads + g, count = 0, t[4];
		const float *qs[4], *next_kt = 0, *next_v = 0;
		float *os[4];
		for (int32_t slot = x->slot[i]; count < 4 && i < end && x->slot[i] == slot && (count == 0 || x->pos[i] + 1 >= t[count - 1]);) {
			qs[count] = x->qkv + i * width + (g * r + h) * d;
			os[count] = x->out + i * x->heads * d + (g * r + h) * d;
			t[count++] = x->pos[i] + 1;
			if (++h == r)
				h = 0, i++;
		}
		int64_t row = i < end ? i : g + 1 < x->kv_heads ? first : end, head = i < end ? g : (g + 1) % x->kv_heads;
		if (row < x->n && x->slot[row] * x->kv_heads + head != room) { // what this thread is likely to do next
			int64_t after = x->slot[row] * x->kv_heads + head;
			next_kt = x->keys + after * d * ld, next_v = x->values + after * ld * d;
		}
		const float *kt = x->keys + room * d * ld, *v = x->values + room * ld * d;
		for (int64_t b = 0; b < count; next_kt = next_v = 0)
			if (count - b == 4) {
				attend(4, qs, t, d, kt, ld, v, d, scale, s, ld, os, 0, next_kt, next_v);
				b += 4;
			} else if (count - b >= 2) {
				attend(2, qs + b, t + b, d, kt, ld, v, d, scale, s, ld, os + b, 0, next_kt, next_v);
				b += 2;
			} else {
				attend(1, qs + b, t + b, d, kt, ld, v, d, scale, s, ld, os + b, 0, next_kt, next_v);
				b++;
			}
	}
}

// Largest of a row times k (k > 0).
INLINE float row_max(int64_t v, const float *z, float k) {
	vec top = {0};
	top -= 1e30f;
	int64_t j = 0;
	for (; j < WHOLE(v); j += WIDTH)
		top = larger(top, LOAD(z + j) * k);
	float m = largest(top);
	for (; j < v; j++)
		m = z[j] * k > m ? z[j] * k : m;
	return m;
}

static void head_stats(int64_t n, int64_t v, const float *logits, const float *ref, float k, const int64_t *target, double *stats) {
	for (int64_t i = 0; i < n; i++, stats += 6) {
		const float *z = logits + i * v, *zr = ref ? ref + i * v : z;
		float m = row_max(v, z, k), mr = ref ? row_max(v, zr, k) : m;
		lanes16 whole = {0}, weighted = {0}, cross = {0}, wholer = {0};
		EACH_OF_16(l) { // outside, and one exp per loop, because all sums at once would not fit into the registers
			for (int64_t j = 0; j < WHOLE(v); j += 16) {
				vec a = LOAD(z + j + l) * k - m, e = vexp(a);
				whole.part[l / WIDTH] += e;
				weighted.part[l / WIDTH] += e * a;
				cross.part[l / WIDTH] += e * (a - (LOAD(zr + j + l) * k - mr));
			}
			for (int64_t j = 0; ref && j < WHOLE(v); j += 16)
				wholer.part[l / WIDTH] += vexp(LOAD(zr + j + l) * k - mr);
		}
		double s = sum(whole), w = sum(weighted), x = sum(cross), sr = sum(wholer);
		for (int64_t j = WHOLE(v); j < v; j++) {
			float a = z[j] * k - m, e = exp1(a), b = zr[j] * k - mr;
			s += e;
			w += e * a;
			x += e * (a - b);
			sr += exp1(b);
		}
		stats[0] = (double)(z[target[i]] * k - m) - log(s);
		stats[1] = log(s) - w / s;
		stats[2] = ref ? (double)(zr[target[i]] * k - mr) - log(sr) : 0;
		stats[3] = ref ? x / s - log(s) + log(sr) : 0;
		stats[4] = m + log(s);
		stats[5] = ref ? mr + log(sr) : 0;
	}
}

static void head_backward(int64_t n, int64_t v, float *logits, const float *ref, float k, const int64_t *target, const double *stats, const double *weights) {
	for (int64_t i = 0; i < n; i++, stats += 6, weights += 3) {
		float *z = logits + i * v;
		const float *zr = ref ? ref + i * v : z;
		// d logp = 1[y] - p; d entropy = -p (log p + H); d KL = p (log p - log q - KL); all times k.
		float a = weights[0] * k, b = weights[1] * k, c = ref ? weights[2] * k : 0;
		float lse = stats[4], lser = stats[5], entropy = stats[1], kl = stats[3];
		int64_t j = 0;
		for (; j < WHOLE(v); j += WIDTH) {
			vec l = LOAD(z + j) * k - lse, p = vexp(l), g = -a - b * (l + entropy);
			if (ref)
				g += c * (l - (LOAD(zr + j) * k - lser) - kl);
			STORE(z + j, p * g);
		}
		for (; j < v; j++) {
			float l = z[j] * k - lse, g = -a - b * (l + entropy);
			if (ref)
				g += c * (l - (zr[j] * k - lser) - kl);
			z[j] = exp1(l) * g;
		}
		z[target[i]] += a;
	}
}

static void sample(int64_t v, const float *z, float k, double u, int32_t *token, float *logp, float *e) {
	if (k == 0) { // greedy
		float m = row_max(v, z, 1);
		lanes16 most = {0};
		double rest = 0;
		EACH_OF_16(l)
			for (int64_t j = 0; j < WHOLE(v); j += 16)
				most.part[l / WIDTH] += vexp(LOAD(z + j + l) - m);
		int64_t j = WHOLE(v);
		for (; j < v; j++)
			rest += exp1(z[j] - m);
		for (j = 0; j + 1 < v && z[j] != m; j++)
			;
		*token = (int32_t)j;
		*logp = (float)((double)(z[j] - m) - log(sum(most) + rest));
		return;
	}
	float m = row_max(v, z, k);
	double total = 0;
	int64_t j = 0;
	for (; j < WHOLE(v); j += 16) {
		EACH_OF_16(l)
			STORE(e + j + l, vexp(LOAD(z + j + l) * k - m));
		total += sum(load16(e + j));
	}
	if (j < v) {
		float block[16] = {0};
		for (int64_t i = j; i < v; i++)
			e[i] = block[i - j] = exp1(z[i] * k - m);
		total += sum(load16(block));
	}
	double want = u * total, so_far = 0;
	for (j = 0; j < WHOLE(v); j += 16) { // skip whole blocks first
		double block = sum(load16(e + j));
		if (so_far + block > want)
			break;
		so_far += block;
	}
	for (; j < v; j++) {
		so_far += e[j];
		if (so_far > want)
			break;
	}
	if (j == v) // rounding at the end: the last token that is possible at all
		for (j = v - 1; j > 0 && e[j] == 0; j--)
			;
	*token = (int32_t)j;
	*logp = (float)((double)(z[j] * k - m) - log(total));
}

static double square_sum(int64_t n, const float *x) {
	double acc[8] = {0};
	int64_t i = 0;
	for (; i + 8 <= n; i += 8)
		for (int j = 0; j < 8; j++)
			acc[j] += (double)x[i + j] * x[i + j];
	for (; i < n; i++)
		acc[0] += (double)x[i] * x[i];
	return ((acc[0] + acc[1]) + (acc[2] + acc[3])) + ((acc[4] + acc[5]) + (acc[6] + acc[7]));
}

static void adamw(int64_t n, float * p, float * g, float * m, float * v, float scale, float lr, float b1, float b2, float eps, float decay, float bias1, float bias2) {
	float keep = 1.0f - lr * decay, step = lr / bias1, root = 1.0f / bias2;
	int64_t i = 0;
	for (; i < WHOLE(n); i += WIDTH) {
		vec x = LOAD(g + i) * scale, a = LOAD(m + i) * b1 + x * (1.0f - b1), b = LOAD(v + i) * b2 + x * x * (1.0f - b2), zero = {0};
		STORE(m + i, a);
		STORE(v + i, b);
		STORE(p + i, LOAD(p + i) * keep - a * step / (INTRINSIC(sqrt_ps)(b * root) + eps));
		STORE(g + i, zero);
	}
	for (; i < n; i++) {
		float x = g[i] * scale, a = m[i] * b1 + x * (1.0f - b1), b = v[i] * b2 + x * x * (1.0f - b2);
		m[i] = a;
		v[i] = b;
		p[i] = p[i] * keep - a * step / (sqrtf(b * root) + eps);
		g[i] = 0;
	}
}

#include "matmul_bodies.h"

const kernels SET = {rms_norm, rms_norm_backward, rms_norm_weight_backward, rope, swiglu, swiglu_backward, column_sum, rows_add,
	attention, attention_backward, cache_rows, cached_attention, head_stats, head_backward, sample, square_sum, adamw, matmul_room,
	matmul};
