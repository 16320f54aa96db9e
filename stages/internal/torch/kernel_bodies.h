// Included by kernels.c once per instruction set, with NAME giving each function its suffix. No include guard.
//
// Vectors are 16 floats wide whatever the machine: wider sums have a fixed order of addition, so that a result depends
// on its inputs only. Rows whose length is no multiple of 16 end in a scalar loop.

typedef float NAME(v16) __attribute__((vector_size(64)));
typedef float NAME(v16u) __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t NAME(i16) __attribute__((vector_size(64)));
#define v16 NAME(v16)
#define i16 NAME(i16)
#define INLINE static inline __attribute__((always_inline))
#define LOAD(p) (*(const NAME(v16u) *)(p))
#define STORE(p, x) (*(NAME(v16u) *)(p) = (x))

INLINE v16 NAME(select)(i16 mask, v16 a, v16 b) { return (v16)((mask & (i16)a) | (~mask & (i16)b)); }
INLINE v16 NAME(larger)(v16 a, v16 b) { return NAME(select)(a > b, a, b); }

// The first n elements, then zeros.
INLINE v16 NAME(first)(int64_t n, v16 x) {
	const i16 place = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
	return n < 16 ? (v16)((i16)x & (place < (int32_t)n)) : x;
}

INLINE float NAME(sum)(v16 x) {
	float a[16];
	memcpy(a, &x, sizeof a);
	for (int width = 8; width > 0; width /= 2)
		for (int i = 0; i < width; i++)
			a[i] += a[i + width];
	return a[0];
}

INLINE float NAME(max)(v16 x) {
	float a[16], m;
	memcpy(a, &x, sizeof a);
	m = a[0];
	for (int i = 1; i < 16; i++)
		m = a[i] > m ? a[i] : m;
	return m;
}

// exp; relative error below 2e-7. Arguments below -87 give 0, those above 88 are taken as 88. Powers of two by the exponent field, the
// rest by the usual polynomial for |r| <= ln(2)/2.
INLINE v16 NAME(exp16)(v16 x) {
	const v16 zero = {0}, lo = zero - 87.0f, hi = zero + 88.0f;
	i16 gone = x < lo;
	x = NAME(select)(x > hi, hi, x);
	v16 t = x * 1.44269504088896341f + 12582912.0f;
	v16 n = t - 12582912.0f;
	v16 r = x - n * 0.693359375f;
	r = r + n * 2.12194440e-4f;
	v16 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = p * (r * r) + r + 1.0f;
	return (v16)(((i16)p + ((i16)t << 23)) & ~gone);
}

INLINE v16 NAME(sqrt16)(v16 x) {
#if defined(__AVX512F__)
	return (v16)_mm512_sqrt_ps((__m512)x);
#else
	float a[16];
	memcpy(a, &x, sizeof a);
	for (int i = 0; i < 16; i++)
		a[i] = sqrtf(a[i]);
	memcpy(&x, a, sizeof a);
	return x;
#endif
}

INLINE float NAME(exp1)(float x) {
	v16 a = {x};
	return NAME(exp16)(a)[0];
}

static void NAME(rms_norm)(int64_t n, int64_t d, const float *x, const float *w, float eps, float *y, float *rstd) {
	for (int64_t i = 0; i < n; i++, x += d, y += d) {
		v16 acc = {0};
		float tail = 0;
		int64_t j = 0;
		for (; j + 16 <= d; j += 16) {
			v16 a = LOAD(x + j);
			acc += a * a;
		}
		for (; j < d; j++)
			tail += x[j] * x[j];
		float r = 1.0f / sqrtf((NAME(sum)(acc) + tail) / (float)d + eps);
		rstd[i] = r;
		for (j = 0; j + 16 <= d; j += 16)
			STORE(y + j, LOAD(x + j) * r * LOAD(w + j));
		for (; j < d; j++)
			y[j] = x[j] * r * w[j];
	}
}

static void NAME(rms_norm_backward)(int64_t n, int64_t d, const float *x, const float *w, const float *rstd, const float *dy, float *dx) {
	for (int64_t i = 0; i < n; i++, x += d, dy += d, dx += d) {
		float r = rstd[i], tail = 0;
		v16 acc = {0};
		int64_t j = 0;
		for (; j + 16 <= d; j += 16)
			acc += LOAD(dy + j) * LOAD(w + j) * LOAD(x + j);
		for (; j < d; j++)
			tail += dy[j] * w[j] * x[j];
		float c = (NAME(sum)(acc) + tail) * r * r / (float)d;
		for (j = 0; j + 16 <= d; j += 16) {
			v16 a = LOAD(x + j), g = LOAD(dy + j);
			STORE(dx + j, LOAD(dx + j) + (g * LOAD(w + j) - a * c) * r);
		}
		for (; j < d; j++)
			dx[j] += (dy[j] * w[j] - x[j] * c) * r;
	}
}

// The weight's gradient in the columns lo to hi.
static void NAME(rms_norm_weight_backward)(int64_t n, int64_t d, int64_t lo, int64_t hi, const float *x, const float *rstd, const float *dy, float *dw) {
	for (int64_t i = 0; i < n; i++, x += d, dy += d) {
		float r = rstd[i];
		int64_t j = lo;
		for (; j + 16 <= hi; j += 16)
			STORE(dw + j, LOAD(dw + j) + LOAD(dy + j) * LOAD(x + j) * r);
		for (; j < hi; j++)
			dw[j] += dy[j] * x[j] * r;
	}
}

static void NAME(rope)(int64_t n, int64_t heads, int64_t d, int64_t ld, float *x, const int32_t *pos, const float *cos, const float *sin, float sign) {
	int64_t half = d / 2;
	for (int64_t i = 0; i < n; i++) {
		const float *c = cos + pos[i] * half, *s = sin + pos[i] * half;
		for (int64_t h = 0; h < heads; h++) {
			float *a = x + i * ld + h * d, *b = a + half;
			int64_t j = 0;
			for (; j + 16 <= half; j += 16) {
				v16 p = LOAD(a + j), q = LOAD(b + j), cc = LOAD(c + j), ss = LOAD(s + j) * sign;
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

static void NAME(swiglu)(int64_t n, int64_t m, const float *gu, float *y) {
	for (int64_t i = 0; i < n; i++, gu += 2 * m, y += m) {
		int64_t j = 0;
		for (; j + 16 <= m; j += 16) {
			v16 g = LOAD(gu + j);
			STORE(y + j, g / (1.0f + NAME(exp16)(-g)) * LOAD(gu + m + j));
		}
		for (; j < m; j++)
			y[j] = gu[j] / (1.0f + NAME(exp1)(-gu[j])) * gu[m + j];
	}
}

static void NAME(swiglu_backward)(int64_t n, int64_t m, const float *gu, const float *dy, float *dgu) {
	for (int64_t i = 0; i < n; i++, gu += 2 * m, dgu += 2 * m, dy += m) {
		int64_t j = 0;
		for (; j + 16 <= m; j += 16) {
			v16 g = LOAD(gu + j), a = LOAD(dy + j);
			v16 s = 1.0f / (1.0f + NAME(exp16)(-g));
			STORE(dgu + j, a * LOAD(gu + m + j) * s * (1.0f + g * (1.0f - s)));
			STORE(dgu + m + j, a * g * s);
		}
		for (; j < m; j++) {
			float g = gu[j], s = 1.0f / (1.0f + NAME(exp1)(-g));
			dgu[j] = dy[j] * gu[m + j] * s * (1.0f + g * (1.0f - s));
			dgu[m + j] = dy[j] * g * s;
		}
	}
}

static void NAME(column_sum)(int64_t n, int64_t d, int64_t lo, int64_t hi, const float *y, float *db) {
	for (int64_t i = 0; i < n; i++, y += d) {
		int64_t j = lo;
		for (; j + 16 <= hi; j += 16)
			STORE(db + j, LOAD(db + j) + LOAD(y + j));
		for (; j < hi; j++)
			db[j] += y[j];
	}
}

static void NAME(rows_add)(int64_t n, int64_t d, int64_t lo, int64_t hi, const int64_t *ids, const float *dx, float *de) {
	for (int64_t i = 0; i < n; i++, dx += d)
		NAME(column_sum)(1, d, lo, hi, dx, de + ids[i] * d);
}

// The four products of attention, for nq query vectors at once (1, 2 or 4: a constant where they are called, so that
// the loops over i unroll and the accumulators stay in registers). Rows of s are lds apart; kt has d rows ldk apart, padded with zeros to a
// multiple of 16 columns.

// How many vectors of 16 may wait in registers.
#if defined(__AVX512F__)
#define ACCUMULATORS 16
#else
#define ACCUMULATORS 8
#endif

// s[i][j] = scale * sum over c of q[i][c]*kt[c][j], for so many blocks of 16 columns j. next, if not null, is what lies like kt and
// is fetched meanwhile.
INLINE void NAME(score_blocks)(const int nq, const int blocks, const float *const *q, int64_t d, const float *kt, int64_t ldk, const float *next, float scale, float *s, int64_t lds) {
	v16 acc[4][4] = {{{0}}};
	for (int64_t c = 0; c < d; c++)
#pragma GCC unroll 4
		for (int x = 0; x < blocks; x++) {
			v16 k = LOAD(kt + c * ldk + 16 * x);
			if (next)
				__builtin_prefetch(next + c * ldk + 16 * x, 0, 2);
#pragma GCC unroll 4
			for (int i = 0; i < nq; i++)
				acc[x][i] += k * q[i][c];
		}
#pragma GCC unroll 4
	for (int x = 0; x < blocks; x++)
#pragma GCC unroll 4
		for (int i = 0; i < nq; i++)
			STORE(s + i * lds + 16 * x, acc[x][i] * scale);
}

// The same for j < n rounded up to 16. Several blocks at once keep the processor busy while a sum waits for its last term.
INLINE void NAME(scores)(const int nq, const float *const *q, int64_t d, const float *kt, int64_t ldk, const float *next, int64_t n, float scale, float *s, int64_t lds) {
	const int blocks = ACCUMULATORS / 4 / (nq > 2 ? 2 : 1);
	int64_t j = 0;
	for (; j + 16 * (blocks - 1) < n; j += 16 * blocks)
		NAME(score_blocks)(nq, blocks, q, d, kt + j, ldk, next ? next + j : 0, scale, s + j, lds);
	for (; j + 16 < n; j += 32)
		NAME(score_blocks)(nq, 2, q, d, kt + j, ldk, next ? next + j : 0, scale, s + j, lds);
	for (; j < n; j += 16)
		NAME(score_blocks)(nq, 1, q, d, kt + j, ldk, next ? next + j : 0, scale, s + j, lds);
}

// out[i][c] = scale[i] * sum over j < n of s[i][j]*v[j][c], for so many blocks of 16 columns c.
INLINE void NAME(value_blocks)(const int nq, const int blocks, const float *s, int64_t lds, int64_t n, const float *v, int64_t ldv, const float *next, int64_t c, const float *scale, float *const *out) {
	v16 acc[4][4] = {{{0}}};
	for (int64_t j = 0; j < n; j++)
#pragma GCC unroll 4
		for (int x = 0; x < blocks; x++) {
			v16 y = LOAD(v + j * ldv + c + 16 * x);
			if (next)
				__builtin_prefetch(next + j * ldv + c + 16 * x, 0, 2);
#pragma GCC unroll 4
			for (int i = 0; i < nq; i++)
				acc[x][i] += y * s[i * lds + j];
		}
#pragma GCC unroll 4
	for (int x = 0; x < blocks; x++)
#pragma GCC unroll 4
		for (int i = 0; i < nq; i++)
			STORE(out[i] + c + 16 * x, acc[x][i] * scale[i]);
}

INLINE void NAME(values)(const int nq, const float *s, int64_t lds, int64_t n, const float *v, int64_t ldv, const float *next, int64_t d, const float *scale, float *const *out) {
	int64_t c = 0;
	for (; ACCUMULATORS == 16 && c + 64 <= d; c += 64)
		NAME(value_blocks)(nq, 4, s, lds, n, v, ldv, next, c, scale, out);
	for (; c + 32 <= d; c += 32)
		NAME(value_blocks)(nq, 2, s, lds, n, v, ldv, next, c, scale, out);
	for (; c < d; c++)
		for (int i = 0; i < nq; i++) {
			float acc = 0;
			for (int64_t j = 0; j < n; j++)
				acc += s[i * lds + j] * v[j * ldv + c];
			out[i][c] = acc * scale[i];
		}
}

// dkt[c][j] += sum over i of q[i][c]*s[i][j], for j < n rounded up to 16.
INLINE void NAME(outer)(const int nq, const float *const *q, int64_t d, const float *s, int64_t lds, int64_t n, float *dkt, int64_t ldk) {
	for (int64_t j = 0; j < n; j += 16) {
		v16 p[4];
		for (int i = 0; i < nq; i++)
			p[i] = LOAD(s + i * lds + j);
		for (int64_t c = 0; c < d; c++) {
			v16 acc = LOAD(dkt + c * ldk + j);
			for (int i = 0; i < nq; i++)
				acc += p[i] * q[i][c];
			STORE(dkt + c * ldk + j, acc);
		}
	}
}

// s[j] = exp(s[j] - max) for j < n and 0 from there to padded; returns the sum and gives the maximum.
INLINE float NAME(softmax_row)(float *s, int64_t n, int64_t padded, float *max) {
	v16 top = {0};
	top -= 1e30f;
	for (int64_t j = n; j < padded; j++)
		s[j] = -1e30f;
	for (int64_t j = 0; j < padded; j += 16)
		top = NAME(larger)(top, LOAD(s + j));
	float m = NAME(max)(top);
	v16 acc = {0};
	for (int64_t j = 0; j < padded; j += 16) {
		v16 e = NAME(first)(n - j, NAME(exp16)(LOAD(s + j) - m));
		STORE(s + j, e);
		acc += e;
	}
	*max = m;
	return NAME(sum)(acc);
}

#define PADDED(n) (((n) + 15) / 16 * 16)

// Packs the rows path[0..t) of x, ld apart, as columns of xt [d, tp], zeros behind column t.
INLINE void NAME(columns)(const float *x, int64_t ld, const int32_t *path, int64_t t, int64_t tp, int64_t d, float *xt) {
	for (int64_t c = 0; c < d; c++)
		for (int64_t j = t; j < tp; j++)
			xt[c * tp + j] = 0;
	for (int64_t j = 0; j < t; j++)
		for (int64_t c = 0; c < d; c++)
			xt[c * tp + j] = x[path[j] * ld + c];
}

// Packs them as rows.
INLINE void NAME(gather)(const float *x, int64_t ld, const int32_t *path, int64_t t, int64_t d, float *y) {
	for (int64_t j = 0; j < t; j++)
		memcpy(y + j * d, x + path[j] * ld, sizeof(float) * d);
}

INLINE void NAME(attend)(const int nq, const float *const *q, const int64_t *n, int64_t d, const float *kt, int64_t ldk, const float *v, int64_t ldv, float scale,
	float *s, int64_t lds, float *const *out, float *const *lse, const float *next_kt, const float *next_v) {
	int64_t longest = n[nq - 1], padded = PADDED(longest);
	float inverse[4];
	NAME(scores)(nq, q, d, kt, ldk, next_kt, longest, scale, s, lds);
	for (int i = 0; i < nq; i++) {
		float max, sum = NAME(softmax_row)(s + i * lds, n[i], padded, &max);
		inverse[i] = 1.0f / sum;
		if (lse)
			*lse[i] = max + logf(sum);
	}
	NAME(values)(nq, s, lds, longest, v, ldv, next_v, d, inverse, out);
}

// Query vectors of one segment and one key head, in order of their rows: vector i is head i%r of query i/r.
#define VECTOR(base, ld, i) ((base) + (first + (i) / r) * (ld) + (g * r + (i) % r) * d)

// A piece is a key head of a segment.
static void NAME(attention)(void *job, int64_t piece, int thread) {
	const packed_attention *x = job;
	const int64_t d = x->d, r = x->heads / x->kv_heads, sgm = piece / x->kv_heads, g = piece % x->kv_heads;
	int64_t t = x->bounds[sgm + 1] - x->bounds[sgm], tp = PADDED(t), first = x->query_bounds[sgm], vectors = (x->query_bounds[sgm + 1] - first) * r;
	const int32_t *rows = x->path + x->bounds[sgm];
	float *kt = x->scratch + thread * x->room, *vp = kt + d * tp, *s = vp + d * tp, scale = 1.0f / sqrtf((float)d);
	if (vectors == 0)
		return;
	NAME(columns)(x->k + g * d, x->ldkv, rows, t, tp, d, kt);
	NAME(gather)(x->v + g * d, x->ldkv, rows, t, d, vp);
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
			NAME(attend)(4, qs, n, d, kt, tp, vp, d, scale, s, tp, os, ls, 0, 0);
		else if (count == 2)
			NAME(attend)(2, qs, n, d, kt, tp, vp, d, scale, s, tp, os, ls, 0, 0);
		else
			NAME(attend)(1, qs, n, d, kt, tp, vp, d, scale, s, tp, os, ls, 0, 0);
		i += count;
	}
}

INLINE void NAME(attend_backward)(const int nq, const float *const *q, const int64_t *n, int64_t d, const float *kt, const float *vt, int64_t tp, const float *k, int64_t ldk,
	float scale, const float *const *out, const float *const *lse, const float *const *dout, float *p, float *ds, float *const *dq, float *dkt, float *dvt) {
	int64_t longest = n[nq - 1], padded = PADDED(longest);
	const float one[4] = {1, 1, 1, 1};
	NAME(scores)(nq, q, d, kt, tp, 0, longest, scale, p, tp);
	NAME(scores)(nq, dout, d, vt, tp, 0, longest, 1.0f, ds, tp);
	for (int i = 0; i < nq; i++) {
		float delta = 0, l = *lse[i];
		for (int64_t c = 0; c < d; c++)
			delta += dout[i][c] * out[i][c];
		float *pi = p + i * tp, *di = ds + i * tp;
		for (int64_t j = 0; j < padded; j += 16) {
			v16 e = NAME(first)(n[i] - j, NAME(exp16)(LOAD(pi + j) - l));
			STORE(pi + j, e);
			STORE(di + j, e * (LOAD(di + j) - delta) * scale);
		}
	}
	NAME(values)(nq, ds, tp, longest, k, ldk, 0, d, one, dq);
	NAME(outer)(nq, q, d, ds, tp, longest, dkt, tp);
	NAME(outer)(nq, dout, d, p, tp, longest, dvt, tp);
}

static void NAME(segment_backward)(const packed_attention *x, int64_t sgm, int64_t g, float *scratch) {
	const int64_t d = x->d, r = x->heads / x->kv_heads;
	int64_t t = x->bounds[sgm + 1] - x->bounds[sgm], tp = PADDED(t), first = x->query_bounds[sgm], vectors = (x->query_bounds[sgm + 1] - first) * r;
	const int32_t *rows = x->path + x->bounds[sgm];
	float *kt = scratch, *vt = kt + d * tp, *dkt = vt + d * tp, *dvt = dkt + d * tp, *kp = dvt + d * tp, *p = kp + d * tp, *ds = p + 4 * tp;
	float scale = 1.0f / sqrtf((float)d);
	if (vectors == 0)
		return;
	NAME(columns)(x->k + g * d, x->ldkv, rows, t, tp, d, kt);
	NAME(columns)(x->v + g * d, x->ldkv, rows, t, tp, d, vt);
	NAME(gather)(x->k + g * d, x->ldkv, rows, t, d, kp);
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
			NAME(attend_backward)(4, qs, n, d, kt, vt, tp, kp, d, scale, os, ls, dos, p, ds, dqs, dkt, dvt);
		else if (count == 2)
			NAME(attend_backward)(2, qs, n, d, kt, vt, tp, kp, d, scale, os, ls, dos, p, ds, dqs, dkt, dvt);
		else
			NAME(attend_backward)(1, qs, n, d, kt, vt, tp, kp, d, scale, os, ls, dos, p, ds, dqs, dkt, dvt);
		i += count;
	}
	for (int64_t j = 0; j < t; j++)
		for (int64_t c = 0; c < d; c++) {
			x->dk[rows[j] * x->lddkv + g * d + c] += dkt[c * tp + j];
			x->dv[rows[j] * x->lddkv + g * d + c] += dvt[c * tp + j];
		}
}

// A piece is a key head of a segment, or of all where segments share rows, whose gradients add up in the order of segments.
static void NAME(attention_backward)(void *job, int64_t piece, int thread) {
	const packed_attention *x = job;
	float *scratch = x->scratch + thread * x->room;
	if (!x->shared)
		NAME(segment_backward)(x, piece / x->kv_heads, piece % x->kv_heads, scratch);
	for (int64_t sgm = 0; x->shared && sgm < x->segments; sgm++)
		NAME(segment_backward)(x, sgm, piece, scratch);
}
#undef VECTOR

// Keys and values enter the caches. Here and below, a piece is a key head of AT_ONCE rows.
static void NAME(cache_rows)(void *job, int64_t piece, int thread) {
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
static void NAME(cached_attention)(void *job, int64_t piece, int thread) {
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
				NAME(attend)(4, qs, t, d, kt, ld, v, d, scale, s, ld, os, 0, next_kt, next_v);
				b += 4;
			} else if (count - b >= 2) {
				NAME(attend)(2, qs + b, t + b, d, kt, ld, v, d, scale, s, ld, os + b, 0, next_kt, next_v);
				b += 2;
			} else {
				NAME(attend)(1, qs + b, t + b, d, kt, ld, v, d, scale, s, ld, os + b, 0, next_kt, next_v);
				b++;
			}
	}
}

// Largest of a row times k (k > 0).
INLINE float NAME(row_max)(int64_t v, const float *z, float k) {
	v16 top = {0};
	top -= 1e30f;
	int64_t j = 0;
	for (; j + 16 <= v; j += 16)
		top = NAME(larger)(top, LOAD(z + j) * k);
	float m = NAME(max)(top);
	for (; j < v; j++)
		m = z[j] * k > m ? z[j] * k : m;
	return m;
}

static void NAME(head_stats)(int64_t n, int64_t v, const float *logits, const float *ref, float k, const int64_t *target, double *stats) {
	for (int64_t i = 0; i < n; i++, stats += 6) {
		const float *z = logits + i * v, *zr = ref ? ref + i * v : z;
		float m = NAME(row_max)(v, z, k), mr = ref ? NAME(row_max)(v, zr, k) : m;
		v16 sum = {0}, weighted = {0}, cross = {0}, sumr = {0};
		int64_t j = 0;
		for (; j + 16 <= v; j += 16) {
			v16 a = LOAD(z + j) * k - m, e = NAME(exp16)(a);
			sum += e;
			weighted += e * a;
			if (ref) {
				v16 b = LOAD(zr + j) * k - mr;
				sumr += NAME(exp16)(b);
				cross += e * (a - b);
			}
		}
		double s = NAME(sum)(sum), w = NAME(sum)(weighted), x = NAME(sum)(cross), sr = NAME(sum)(sumr);
		for (; j < v; j++) {
			float a = z[j] * k - m, e = NAME(exp1)(a), b = zr[j] * k - mr;
			s += e;
			w += e * a;
			x += e * (a - b);
			sr += NAME(exp1)(b);
		}
		stats[0] = (double)(z[target[i]] * k - m) - log(s);
		stats[1] = log(s) - w / s;
		stats[2] = ref ? (double)(zr[target[i]] * k - mr) - log(sr) : 0;
		stats[3] = ref ? x / s - log(s) + log(sr) : 0;
		stats[4] = m + log(s);
		stats[5] = ref ? mr + log(sr) : 0;
	}
}

static void NAME(head_backward)(int64_t n, int64_t v, float *logits, const float *ref, float k, const int64_t *target, const double *stats, const double *weights) {
	for (int64_t i = 0; i < n; i++, stats += 6, weights += 3) {
		float *z = logits + i * v;
		const float *zr = ref ? ref + i * v : z;
		// d logp = 1[y] - p; d entropy = -p (log p + H); d KL = p (log p - log q - KL); all times k.
		float a = weights[0] * k, b = weights[1] * k, c = ref ? weights[2] * k : 0;
		float lse = stats[4], lser = stats[5], entropy = stats[1], kl = stats[3];
		int64_t j = 0;
		for (; j + 16 <= v; j += 16) {
			v16 l = LOAD(z + j) * k - lse, p = NAME(exp16)(l), g = -a - b * (l + entropy);
			if (ref)
				g += c * (l - (LOAD(zr + j) * k - lser) - kl);
			STORE(z + j, p * g);
		}
		for (; j < v; j++) {
			float l = z[j] * k - lse, g = -a - b * (l + entropy);
			if (ref)
				g += c * (l - (zr[j] * k - lser) - kl);
			z[j] = NAME(exp1)(l) * g;
		}
		z[target[i]] += a;
	}
}

static void NAME(sample)(int64_t v, const float *z, float k, double u, int32_t *token, float *logp, float *e) {
	if (k == 0) { // greedy
		float m = NAME(row_max)(v, z, 1);
		v16 sum = {0};
		double rest = 0;
		int64_t j = 0;
		for (; j + 16 <= v; j += 16)
			sum += NAME(exp16)(LOAD(z + j) - m);
		for (; j < v; j++)
			rest += NAME(exp1)(z[j] - m);
		for (j = 0; j + 1 < v && z[j] != m; j++)
			;
		*token = (int32_t)j;
		*logp = (float)((double)(z[j] - m) - log(NAME(sum)(sum) + rest));
		return;
	}
	float m = NAME(row_max)(v, z, k);
	double total = 0;
	int64_t j = 0;
	for (; j < v; j += 16) {
		float block[16] = {0};
		if (j + 16 <= v) {
			v16 x = NAME(exp16)(LOAD(z + j) * k - m);
			STORE(e + j, x);
			total += NAME(sum)(x);
		} else {
			for (int64_t i = j; i < v; i++) {
				e[i] = NAME(exp1)(z[i] * k - m);
				block[i - j] = e[i];
			}
			v16 x;
			memcpy(&x, block, sizeof x);
			total += NAME(sum)(x);
		}
	}
	double want = u * total, so_far = 0;
	for (j = 0; j + 16 <= v; j += 16) { // skip whole blocks first
		double block = NAME(sum)(LOAD(e + j));
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

static double NAME(square_sum)(int64_t n, const float *x) {
	double acc[8] = {0};
	int64_t i = 0;
	for (; i + 8 <= n; i += 8)
		for (int j = 0; j < 8; j++)
			acc[j] += (double)x[i + j] * x[i + j];
	for (; i < n; i++)
		acc[0] += (double)x[i] * x[i];
	return ((acc[0] + acc[1]) + (acc[2] + acc[3])) + ((acc[4] + acc[5]) + (acc[6] + acc[7]));
}

static void NAME(adamw)(int64_t n, float * p, float * g, float * m, float * v, float scale, float lr, float b1, float b2, float eps, float decay, float bias1, float bias2) {
	float keep = 1.0f - lr * decay, step = lr / bias1, root = 1.0f / bias2;
	int64_t i = 0;
	for (; i + 16 <= n; i += 16) {
		v16 x = LOAD(g + i) * scale, a = LOAD(m + i) * b1 + x * (1.0f - b1), b = LOAD(v + i) * b2 + x * x * (1.0f - b2), zero = {0};
		STORE(m + i, a);
		STORE(v + i, b);
		STORE(p + i, LOAD(p + i) * keep - a * step / (NAME(sqrt16)(b * root) + eps));
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

static const kernels NAME(all) = {NAME(rms_norm), NAME(rms_norm_backward), NAME(rms_norm_weight_backward), NAME(rope), NAME(swiglu), NAME(swiglu_backward), NAME(column_sum), NAME(rows_add),
	NAME(attention), NAME(attention_backward), NAME(cache_rows), NAME(cached_attention), NAME(head_stats), NAME(head_backward), NAME(sample), NAME(square_sum), NAME(adamw), NAME(matmul_room),
	NAME(matmul)};

#undef v16
#undef i16
#undef INLINE
#undef LOAD
#undef STORE
#undef PADDED
#undef ACCUMULATORS
