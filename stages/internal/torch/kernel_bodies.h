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

static void NAME(rms_norm_backward)(int64_t n, int64_t d, const float *x, const float *w, const float *rstd, const float *dy, float *dx, float *dw) {
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
			STORE(dw + j, LOAD(dw + j) + g * a * r);
		}
		for (; j < d; j++) {
			dx[j] += (dy[j] * w[j] - x[j] * c) * r;
			dw[j] += dy[j] * x[j] * r;
		}
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

static void NAME(column_sum)(int64_t n, int64_t d, const float *y, float *db) {
	for (int64_t i = 0; i < n; i++, y += d) {
		int64_t j = 0;
		for (; j + 16 <= d; j += 16)
			STORE(db + j, LOAD(db + j) + LOAD(y + j));
		for (; j < d; j++)
			db[j] += y[j];
	}
}

static void NAME(rows_add)(int64_t n, int64_t d, const int64_t *ids, const float *dx, float *de) {
	for (int64_t i = 0; i < n; i++, dx += d)
		NAME(column_sum)(1, d, dx, de + ids[i] * d);
}

// The four products of attention, for nq query vectors at once (1, 2 or 4: a constant where they are called, so that
// the loops over i unroll and the accumulators stay in registers). Rows of s are lds apart; kt has d rows ldk apart, padded with zeros to a
// multiple of 16 columns.

// s[i][j] = scale * sum over c of q[i][c]*kt[c][j], for j < n rounded up to 16.
INLINE void NAME(scores)(const int nq, const float *const *q, int64_t d, const float *kt, int64_t ldk, int64_t n, float scale, float *s, int64_t lds) {
	for (int64_t j = 0; j < n; j += 16) {
		v16 acc[4] = {{0}};
		for (int64_t c = 0; c < d; c++) {
			v16 k = LOAD(kt + c * ldk + j);
			for (int i = 0; i < nq; i++)
				acc[i] += k * q[i][c];
		}
		for (int i = 0; i < nq; i++)
			STORE(s + i * lds + j, acc[i] * scale);
	}
}

// out[i][c] = scale[i] * sum over j < n of s[i][j]*v[j][c].
INLINE void NAME(values)(const int nq, const float *s, int64_t lds, int64_t n, const float *v, int64_t ldv, int64_t d, const float *scale, float *const *out) {
	int64_t c = 0;
	for (; c + 32 <= d; c += 32) {
		v16 a[4] = {{0}}, b[4] = {{0}};
		for (int64_t j = 0; j < n; j++) {
			v16 x = LOAD(v + j * ldv + c), y = LOAD(v + j * ldv + c + 16);
			for (int i = 0; i < nq; i++) {
				float p = s[i * lds + j];
				a[i] += x * p;
				b[i] += y * p;
			}
		}
		for (int i = 0; i < nq; i++) {
			STORE(out[i] + c, a[i] * scale[i]);
			STORE(out[i] + c + 16, b[i] * scale[i]);
		}
	}
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
		v16 e = NAME(exp16)(LOAD(s + j) - m);
		if (j + 16 > n) {
			for (int k = 0; k < 16; k++)
				if (j + k >= n)
					e[k] = 0;
		}
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
	float *s, int64_t lds, float *const *out, float *const *lse) {
	int64_t longest = n[nq - 1], padded = PADDED(longest);
	float inverse[4];
	NAME(scores)(nq, q, d, kt, ldk, longest, scale, s, lds);
	for (int i = 0; i < nq; i++) {
		float max, sum = NAME(softmax_row)(s + i * lds, n[i], padded, &max);
		inverse[i] = 1.0f / sum;
		if (lse)
			*lse[i] = max + logf(sum);
	}
	NAME(values)(nq, s, lds, longest, v, ldv, d, inverse, out);
}

// Query vectors of one segment and one key head, in order of their rows: vector i is head i%r of query i/r.
#define VECTOR(base, ld, i) ((base) + (first + (i) / r) * (ld) + (g * r + (i) % r) * d)

static void NAME(attention)(int64_t segments, const int32_t *bounds, const int32_t *path, const int32_t *query_bounds, const int32_t *places, int64_t heads, int64_t kv_heads, int64_t d,
	const float *q, int64_t ldq, const float *k, const float *v, int64_t ldkv, float *out, float *lse, float *scratch) {
	int64_t r = heads / kv_heads;
	float scale = 1.0f / sqrtf((float)d);
	for (int64_t sgm = 0; sgm < segments; sgm++) {
		int64_t t = bounds[sgm + 1] - bounds[sgm], tp = PADDED(t), first = query_bounds[sgm], vectors = (query_bounds[sgm + 1] - first) * r;
		const int32_t *rows = path + bounds[sgm];
		float *kt = scratch, *vp = kt + d * tp, *s = vp + d * tp;
		if (vectors == 0)
			continue;
		for (int64_t g = 0; g < kv_heads; g++) {
			NAME(columns)(k + g * d, ldkv, rows, t, tp, d, kt);
			NAME(gather)(v + g * d, ldkv, rows, t, d, vp);
			for (int64_t i = 0; i < vectors;) {
				const float *qs[4];
				float *os[4], *ls[4];
				int64_t n[4], count = vectors - i >= 4 ? 4 : vectors - i >= 2 ? 2 : 1;
				for (int64_t b = 0; b < count; b++) {
					qs[b] = VECTOR(q, ldq, i + b);
					os[b] = VECTOR(out, heads * d, i + b);
					ls[b] = lse + (first + (i + b) / r) * heads + g * r + (i + b) % r;
					n[b] = places[first + (i + b) / r] + 1;
				}
				if (count == 4)
					NAME(attend)(4, qs, n, d, kt, tp, vp, d, scale, s, tp, os, ls);
				else if (count == 2)
					NAME(attend)(2, qs, n, d, kt, tp, vp, d, scale, s, tp, os, ls);
				else
					NAME(attend)(1, qs, n, d, kt, tp, vp, d, scale, s, tp, os, ls);
				i += count;
			}
		}
	}
}

INLINE void NAME(attend_backward)(const int nq, const float *const *q, const int64_t *n, int64_t d, const float *kt, const float *vt, int64_t tp, const float *k, int64_t ldk,
	float scale, const float *const *out, const float *const *lse, const float *const *dout, float *p, float *ds, float *const *dq, float *dkt, float *dvt) {
	int64_t longest = n[nq - 1], padded = PADDED(longest);
	const float one[4] = {1, 1, 1, 1};
	NAME(scores)(nq, q, d, kt, tp, longest, scale, p, tp);
	NAME(scores)(nq, dout, d, vt, tp, longest, 1.0f, ds, tp);
	for (int i = 0; i < nq; i++) {
		float delta = 0, l = *lse[i];
		for (int64_t c = 0; c < d; c++)
			delta += dout[i][c] * out[i][c];
		float *pi = p + i * tp, *di = ds + i * tp;
		for (int64_t j = 0; j < padded; j += 16) {
			v16 e = NAME(exp16)(LOAD(pi + j) - l);
			if (j + 16 > n[i]) {
				for (int x = 0; x < 16; x++)
					if (j + x >= n[i])
						e[x] = 0;
			}
			STORE(pi + j, e);
			STORE(di + j, e * (LOAD(di + j) - delta) * scale);
		}
	}
	NAME(values)(nq, ds, tp, longest, k, ldk, d, one, dq);
	NAME(outer)(nq, q, d, ds, tp, longest, dkt, tp);
	NAME(outer)(nq, dout, d, p, tp, longest, dvt, tp);
}

static void NAME(attention_backward)(int64_t segments, const int32_t *bounds, const int32_t *path, const int32_t *query_bounds, const int32_t *places, int64_t heads, int64_t kv_heads, int64_t d,
	const float *q, int64_t ldq, const float *k, const float *v, int64_t ldkv, const float *out, const float *lse, const float *dout,
	float *dq, int64_t lddq, float *dk, float *dv, int64_t lddkv, float *scratch) {
	int64_t r = heads / kv_heads;
	float scale = 1.0f / sqrtf((float)d);
	for (int64_t sgm = 0; sgm < segments; sgm++) {
		int64_t t = bounds[sgm + 1] - bounds[sgm], tp = PADDED(t), first = query_bounds[sgm], vectors = (query_bounds[sgm + 1] - first) * r;
		const int32_t *rows = path + bounds[sgm];
		float *kt = scratch, *vt = kt + d * tp, *dkt = vt + d * tp, *dvt = dkt + d * tp, *kp = dvt + d * tp, *p = kp + d * tp, *ds = p + 4 * tp;
		if (vectors == 0)
			continue;
		for (int64_t g = 0; g < kv_heads; g++) {
			NAME(columns)(k + g * d, ldkv, rows, t, tp, d, kt);
			NAME(columns)(v + g * d, ldkv, rows, t, tp, d, vt);
			NAME(gather)(k + g * d, ldkv, rows, t, d, kp);
			memset(dkt, 0, sizeof(float) * 2 * d * tp);
			for (int64_t i = 0; i < vectors;) {
				const float *qs[4], *os[4], *ls[4], *dos[4];
				float *dqs[4];
				int64_t n[4], count = vectors - i >= 4 ? 4 : vectors - i >= 2 ? 2 : 1;
				for (int64_t b = 0; b < count; b++) {
					qs[b] = VECTOR(q, ldq, i + b);
					os[b] = VECTOR(out, heads * d, i + b);
					dos[b] = VECTOR(dout, heads * d, i + b);
					dqs[b] = VECTOR(dq, lddq, i + b);
					ls[b] = lse + (first + (i + b) / r) * heads + g * r + (i + b) % r;
					n[b] = places[first + (i + b) / r] + 1;
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
					dk[rows[j] * lddkv + g * d + c] += dkt[c * tp + j];
					dv[rows[j] * lddkv + g * d + c] += dvt[c * tp + j];
				}
		}
	}
}
#undef VECTOR

static void NAME(cached_attention)(int64_t n, const int32_t *slot, const int32_t *pos, int64_t heads, int64_t kv_heads, int64_t d, const float *qkv,
	float *keys, float *values, int64_t ld, float *out, float *scratch) {
	int64_t r = heads / kv_heads, width = (heads + 2 * kv_heads) * d;
	float scale = 1.0f / sqrtf((float)d);
	for (int64_t i = 0; i < n; i++)
		for (int64_t g = 0; g < kv_heads; g++) {
			const float *k = qkv + i * width + (heads + g) * d, *v = k + kv_heads * d;
			float *kt = keys + (slot[i] * kv_heads + g) * d * ld + pos[i];
			for (int64_t c = 0; c < d; c++)
				kt[c * ld] = k[c];
			memcpy(values + ((slot[i] * kv_heads + g) * ld + pos[i]) * d, v, sizeof(float) * d);
		}
	for (int64_t i = 0; i < n; i++)
		for (int64_t g = 0; g < kv_heads; g++) {
			const float *kt = keys + (slot[i] * kv_heads + g) * d * ld, *v = values + (slot[i] * kv_heads + g) * ld * d;
			for (int64_t h = 0; h < r;) {
				const float *qs[4];
				float *os[4];
				int64_t t[4], count = r - h >= 4 ? 4 : r - h >= 2 ? 2 : 1;
				for (int64_t b = 0; b < count; b++) {
					qs[b] = qkv + i * width + (g * r + h + b) * d;
					os[b] = out + i * heads * d + (g * r + h + b) * d;
					t[b] = pos[i] + 1;
				}
				if (count == 4)
					NAME(attend)(4, qs, t, d, kt, ld, v, d, scale, scratch, ld, os, 0);
				else if (count == 2)
					NAME(attend)(2, qs, t, d, kt, ld, v, d, scale, scratch, ld, os, 0);
				else
					NAME(attend)(1, qs, t, d, kt, ld, v, d, scale, scratch, ld, os, 0);
				h += count;
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

static const kernels NAME(all) = {NAME(rms_norm), NAME(rms_norm_backward), NAME(rope), NAME(swiglu), NAME(swiglu_backward), NAME(column_sum), NAME(rows_add),
	NAME(attention), NAME(attention_backward), NAME(cached_attention), NAME(head_stats), NAME(head_backward), NAME(sample), NAME(square_sum), NAME(adamw)};

#undef v16
#undef i16
#undef INLINE
#undef LOAD
#undef STORE
#undef PADDED
