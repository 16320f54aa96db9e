// Included by kernel_bodies.h: the product of matrices, C = from + A*B. No include guard.
//
// Every element of C is a sum over p in ascending order, in blocks of BLOCK, each block added up on its own with one fused
// multiply-add after the other and then added to what was there. So its bits depend on its row of A and its column of B
// only: not on the number of rows, on the path below that was taken, or on the number of threads.

// Tiles of accumulators that fit into the registers: ROWS x PANEL, or NARROW x 8.
#define PANEL (2 * WIDTH)
#if WIDTH == 16
#define ROWS 14
#define NARROW 24
#else
#define ROWS 6
#define NARROW 12
#endif
#define STRIPE (8 * ROWS) // rows of a piece at most
#define BLOCK 256     // of the summed axis
#define STRIDE 272    // between packed rows of BLOCK: no power of two, for the cache's sake
#define COLUMNS 2048  // of B that are packed at once
#define COLUMNS_LAID 128 // of A, in one piece
#define FEW 128       // rows up to which A is the side that lies in vectors

// c[i][0..WIDTH*(1+wide)) = from[i][..] + sum over p < k of a[i*rs + p*cs] * b[p][..] for rows of a tile; next is what to fetch meanwhile.
INLINE void tile(const int rows, const int wide, int64_t k, const float *a, int64_t rs, int64_t cs, const float *next, int64_t ldn, const float *b,
	const float *from, int64_t ldf, float *c, int64_t ldc) {
	vec acc[ROWS][2];
#pragma GCC unroll 16
	for (int i = 0; i < rows; i++)
		acc[i][0] = acc[i][1] = (vec){0};
	for (int64_t p = 0; p < k; p++) {
		vec b0 = LOAD(b), b1 = b0;
		if (wide)
			b1 = LOAD(b + WIDTH);
		if (next && p % 16 == 0) {
#pragma GCC unroll 16
			for (int i = 0; i < rows; i++)
				__builtin_prefetch(next + i * ldn + p, 0, 2);
		}
#pragma GCC unroll 16
		for (int i = 0; i < rows; i++) {
			float x = a[i * rs];
			acc[i][0] += b0 * x;
			if (wide)
				acc[i][1] += b1 * x;
		}
		a += cs;
		b += wide ? PANEL : WIDTH;
	}
#pragma GCC unroll 16
	for (int i = 0; i < rows; i++) {
		if (from) {
			acc[i][0] = LOAD(from + i * ldf) + acc[i][0];
			if (wide)
				acc[i][1] = LOAD(from + i * ldf + WIDTH) + acc[i][1];
		}
		STORE(c + i * ldc, acc[i][0]);
		if (wide)
			STORE(c + i * ldc + WIDTH, acc[i][1]);
	}
}

INLINE void narrow_tile(const int rows, int64_t k, const float *a, int64_t rs, const float *next, int64_t ldn, const float *b, const float *from, float *c, int64_t ldc) {
	vec8 acc[NARROW];
#pragma GCC unroll 24
	for (int i = 0; i < rows; i++)
		acc[i] = (vec8){0};
	for (int64_t p = 0; p < k; p++) {
		vec8 b0 = *(const vec8_in_memory *)b;
		if (next && p % 16 == 0) {
#pragma GCC unroll 24
			for (int i = 0; i < rows; i++)
				__builtin_prefetch(next + i * ldn + p, 0, 2);
		}
#pragma GCC unroll 24
		for (int i = 0; i < rows; i++)
			acc[i] += b0 * a[i * rs + p];
		b += 8;
	}
#pragma GCC unroll 24
	for (int i = 0; i < rows; i++) {
		if (from)
			acc[i] = *(const vec8_in_memory *)(from + i * ldc) + acc[i];
		*(vec8_in_memory *)(c + i * ldc) = acc[i];
	}
}

SEPARATE void full_tile(int wide, int64_t k, const float *a, int64_t rs, int64_t cs, const float *next, int64_t ldn, const float *b, const float *from, int64_t ldf, float *c, int64_t ldc) {
	if (wide && cs == 1)
		tile(ROWS, 1, k, a, rs, 1, next, ldn, b, from, ldf, c, ldc);
	else if (wide)
		tile(ROWS, 1, k, a, 1, cs, 0, 0, b, from, ldf, c, ldc);
	else
		tile(ROWS, 0, k, a, rs, cs, next, ldn, b, from, ldf, c, ldc);
}

// A tile of any number of rows up to ROWS.
SEPARATE void any_tile(int rows, int wide, int64_t k, const float *a, int64_t rs, int64_t cs, const float *next, int64_t ldn, const float *b, const float *from, int64_t ldf, float *c, int64_t ldc) {
	if (rows == ROWS) {
		full_tile(wide, k, a, rs, cs, next, ldn, b, from, ldf, c, ldc);
		return;
	}
	for (int done; rows > 0; rows -= done, a += done * rs, c += done * ldc, from = from ? from + done * ldf : 0) {
#define PART(r) \
	{ \
		done = r; \
		if (wide) \
			tile(r, 1, k, a, rs, cs, 0, 0, b, from, ldf, c, ldc); \
		else \
			tile(r, 0, k, a, rs, cs, 0, 0, b, from, ldf, c, ldc); \
	}
#if ROWS > 8
		if (rows >= 8)
			PART(8)
		else
#endif
		if (rows >= 4)
			PART(4)
		else
			PART(1)
#undef PART
	}
}

SEPARATE void any_narrow_tile(int rows, int64_t k, const float *a, int64_t rs, const float *next, int64_t ldn, const float *b, const float *from, float *c, int64_t ldc) {
	if (rows == NARROW) {
		narrow_tile(NARROW, k, a, rs, next, ldn, b, from, c, ldc);
		return;
	}
	for (int done; rows > 0; rows -= done, a += done * rs, c += done * ldc, from = from ? from + done * ldc : 0)
		if (rows >= 4)
			narrow_tile(done = 4, k, a, rs, 0, 0, b, from, c, ldc);
		else
			narrow_tile(done = 1, k, a, rs, 0, 0, b, from, c, ldc);
}

// Lays k rows of n <= width columns of b out one after another, width apart, zeros behind column n.
SEPARATE void lay_out(int64_t width, int64_t k, int64_t n, const float *b, int64_t rs, int64_t cs, float *out) {
	for (int64_t p = 0; n < width && p < k; p++)
		memset(out + p * width + n, 0, sizeof(float) * (width - n));
	if (rs == 1)
		transposed(n, k, b, cs, 0, out, width);
	else
		for (int64_t p = 0; p < k; p++)
			for (int64_t j = 0; j < n; j++)
				out[p * width + j] = b[p * rs + j * cs];
}

// Packs rows x k of a, as rows STRIDE apart or, where a's columns are contiguous, as k rows of them, STRIPE apart.
SEPARATE void pack(int64_t rows, int64_t k, const float *a, int64_t rs, int64_t cs, float *out) {
	if (rs == 1 && cs != 1)
		for (int64_t p = 0; p < k; p++)
			memcpy(out + p * STRIPE, a + p * cs, sizeof(float) * rows);
	else
		for (int64_t i = 0; i < rows; i++)
			if (cs == 1)
				memcpy(out + i * STRIDE, a + i * rs, sizeof(float) * k);
			else
				for (int64_t p = 0; p < k; p++)
					out[i * STRIDE + p] = a[i * rs + p * cs];
}

// How many pieces a number of tiles is done in: of at most 8, and as many for each thread.
INLINE int64_t pieces(int64_t tiles) {
	int64_t n = (tiles + 7) / 8, threads = pool_size();
	n = (n + threads - 1) / threads * threads;
	return n < tiles ? n : tiles;
}

// Where A has few rows, and B is the transpose of w [n, k], A lies in vectors across its rows, and w is read where it is, once.
// These are the vectors' widths, and how many rows of w are a tile.
#define LANES(x) ((x)->m <= 8 ? 8 : PANEL)
#define LAST(x) ((x)->m > 8 && ((x)->m - 1) % PANEL < WIDTH ? WIDTH : LANES(x)) // of the last vectors
#define HIGH(x) ((x)->m <= 8 ? NARROW : ROWS)
#define LANE_PANELS(x) (((x)->m + LANES(x) - 1) / LANES(x))

// Lays some of A's columns out.
static void few_lanes(void *job, int64_t piece, int thread) {
	const product *x = job;
	int64_t panels = LANE_PANELS(x), q = piece % panels, p = piece / panels * COLUMNS_LAID, width = q + 1 < panels ? LANES(x) : LAST(x);
	int64_t rows = q + 1 < panels ? width : x->m - q * LANES(x), depth = x->k - p < COLUMNS_LAID ? x->k - p : COLUMNS_LAID;
	lay_out(width, depth, rows, x->a + q * LANES(x) * x->rsa + p, 1, x->rsa, x->room + q * x->k * LANES(x) + p * width);
}

// Multiplies some rows of w with all of A.
static void few_rows(void *job, int64_t piece, int thread) {
	const product *x = job;
	int64_t width = LANES(x), high = HIGH(x), panels = LANE_PANELS(x), apart = 8 * NARROW * PANEL, ldw = x->csb;
	int64_t tiles = (x->n + high - 1) / high, j0 = tiles * piece / x->pieces * high, j1 = tiles * (piece + 1) / x->pieces * high;
	float *buffer = x->room + x->k * panels * width + thread * panels * apart;
	if (j1 > x->n)
		j1 = x->n;
	for (int64_t q = 0; x->from && q < panels; q++)
		transposed(x->m - q * width < width ? x->m - q * width : width, j1 - j0, x->from + q * width * x->ldf + j0, x->ldf, 0, buffer + q * apart, PANEL);
	for (int64_t j = j0; j < j1; j += high)
		for (int64_t p = 0; p < x->k; p += BLOCK) {
			int64_t tall = j1 - j < high ? j1 - j : high, depth = x->k - p < BLOCK ? x->k - p : BLOCK, rs = ldw;
			const float *at = x->b + j * ldw + p, *next = j + 2 * high <= x->n ? at + high * ldw : 0;
			float copy[NARROW * STRIDE];
			if (ldw % 1024 == 0) { // their columns would fall into few lines of the cache
				for (int64_t i = 0; i < tall; i++)
					memcpy(copy + i * STRIDE, at + i * ldw, sizeof(float) * depth);
				at = copy, rs = STRIDE;
			}
			for (int64_t q = 0; q < panels; q++, next = 0) {
				int64_t wide = q + 1 < panels ? width : LAST(x);
				const float *lanes = x->room + q * x->k * width + p * wide;
				float *y = buffer + q * apart + (j - j0) * PANEL, *before = p > 0 || x->from ? y : 0;
				if (width == 8)
					any_narrow_tile(tall, depth, at, rs, next, ldw, lanes, before, y, PANEL);
				else
					any_tile(tall, wide == PANEL, depth, at, rs, 1, next, ldw, lanes, before, PANEL, y, PANEL);
			}
		}
	for (int64_t q = 0; q < panels; q++)
		transposed(j1 - j0, x->m - q * width < width ? x->m - q * width : width, buffer + q * apart, PANEL, 0, x->c + q * width * x->ldc + j0, x->ldc);
}

// In general, B is packed in panels, of which these are the columns at once, and A in stripes of rows.
#define AT_ONCE(x) ((x)->n - (x)->j0 < COLUMNS ? (x)->n - (x)->j0 : COLUMNS)
#define DEPTH(x) ((x)->k - (x)->p < BLOCK ? (x)->k - (x)->p : BLOCK)

static void pack_panel(void *job, int64_t piece, int thread) {
	const product *x = job;
	int64_t j = piece * PANEL, n = AT_ONCE(x) - j < PANEL ? AT_ONCE(x) - j : PANEL;
	lay_out(PANEL, DEPTH(x), n, x->b + x->p * x->rsb + (x->j0 + j) * x->csb, x->rsb, x->csb, x->room + BLOCK * j);
}

static void multiply_stripe(void *job, int64_t piece, int thread) {
	const product *x = job;
	int64_t tiles = (x->m + ROWS - 1) / ROWS, i0 = tiles * piece / x->pieces * ROWS, i1 = tiles * (piece + 1) / x->pieces * ROWS;
	int64_t columns = AT_ONCE(x), depth = DEPTH(x), rows = (i1 < x->m ? i1 : x->m) - i0;
	float *packed = x->room + BLOCK * (columns + PANEL) + thread * STRIPE * STRIDE;
	int turned = x->rsa == 1 && x->csa != 1; // the rows of A are the contiguous side
	pack(rows, depth, x->a + i0 * x->rsa + x->p * x->csa, x->rsa, x->csa, packed);
	for (int64_t j = 0; j < columns; j += PANEL)
		for (int64_t i = 0; i < rows; i += ROWS) {
			int tall = rows - i < ROWS ? rows - i : ROWS;
			const float *a = packed + (turned ? i : i * STRIDE), *b = x->room + BLOCK * j;
			int64_t rs = turned ? 1 : STRIDE, cs = turned ? STRIPE : 1, wide = columns - j < PANEL ? columns - j : PANEL;
			float *y = x->c + (i0 + i) * x->ldc + x->j0 + j, edge[ROWS * PANEL];
			const float *before = x->p > 0 ? y : x->from ? x->from + (i0 + i) * x->ldf + x->j0 + j : 0;
			int64_t ldb = x->p > 0 ? x->ldc : x->ldf;
			if (wide == PANEL) {
				any_tile(tall, 1, depth, a, rs, cs, 0, 0, b, before, ldb, y, x->ldc);
				continue;
			}
			any_tile(tall, 1, depth, a, rs, cs, 0, 0, b, 0, 0, edge, PANEL);
			for (int r = 0; r < tall; r++)
				for (int64_t l = 0; l < wide; l++)
					y[r * x->ldc + l] = before ? before[r * ldb + l] + edge[r * PANEL + l] : edge[r * PANEL + l];
		}
}

static int64_t matmul_room(int64_t m, int64_t n, int64_t k) {
	int64_t lanes = (m + PANEL - 1) / PANEL * PANEL, columns = n < COLUMNS ? n : COLUMNS, threads = pool_room();
	int64_t few = k * lanes + threads * 8 * NARROW * lanes, many = BLOCK * (columns + PANEL) + threads * STRIPE * STRIDE;
	return m <= FEW && few > many ? few : many;
}

static void matmul(product *x) {
	int64_t work = x->m * x->n * x->k, high = HIGH(x);
	if (x->m <= FEW && x->csa == 1 && x->rsb == 1 && x->k > 0) {
		x->pieces = pieces((x->n + high - 1) / high);
		in_pieces(work, (x->k + COLUMNS_LAID - 1) / COLUMNS_LAID * LANE_PANELS(x), few_lanes, x);
		in_pieces(work, x->pieces, few_rows, x);
		return;
	}
	x->pieces = pieces((x->m + ROWS - 1) / ROWS);
	for (x->j0 = 0; x->j0 < x->n; x->j0 += COLUMNS)
		for (x->p = 0; x->p < x->k; x->p += BLOCK) {
			in_pieces(work, (AT_ONCE(x) + PANEL - 1) / PANEL, pack_panel, x);
			in_pieces(work, x->pieces, multiply_stripe, x);
		}
}
