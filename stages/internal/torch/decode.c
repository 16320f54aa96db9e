//go:build libtorch

#include "kernels.h"
#include "pool.h"
#include <string.h>

typedef struct {
	const k_decoder *m;
	const k_layer *layer;
	const int64_t *bounds, *ids;
	const int32_t *slot, *pos;
	int64_t n;
	const int64_t *ends;
	float *logits, *room;
} pass;

static int64_t qkv_width(const k_decoder *m) { return (m->heads + 2 * m->kv_heads) * m->d; }

// The room for products is that of the largest one of a decoder.
static int64_t product_room(const k_decoder *m) {
	int64_t wide[] = {qkv_width(m), m->hidden, 2 * m->mlp, m->hidden, m->vocab}, deep[] = {m->hidden, m->heads * m->d, m->hidden, m->mlp, m->hidden}, most = 0;
	for (int i = 0; i < 5; i++) {
		int64_t room = k_matmul_room(BLOCK_ROWS, wide[i], deep[i]);
		most = room > most ? room : most;
	}
	return most;
}

int64_t k_decode_room(const k_decoder *m) {
	int64_t row = 4 * m->hidden + 2 * qkv_width(m) + m->heads * m->d + 3 * m->mlp + m->heads;
	return BLOCK_ROWS * row + 4 * m->ld * pool_room() + product_room(m);
}

// carve takes n floats for each row of a block off a room.
static float *carve(float **room, int64_t n) {
	float *at = *room;
	*room += BLOCK_ROWS * n;
	return at;
}

// c = from + a*w transposed, for rows of a; ldf as in k_matmul.
static void linear(float *room, int64_t rows, const float *a, int64_t in, const float *w, int64_t out, const float *from, int64_t ldf, float *c) {
	k_matmul_in(room, rows, out, in, a, in, 1, w, 1, in, from, ldf, c, out);
}

// What a thread works with. The first buffers hold a row for each row of a block.
typedef struct {
	const pass *p;
	float *x, *h, *mid, *qkv, *a, *gate_up, *act, *rstd, *scratch, *room;
	int64_t ends, first; // that wait for the rest of the last layer, and the number of the first of them
	float *end_x, *end_qkv;
	int32_t end_slot[BLOCK_ROWS], end_pos[BLOCK_ROWS];
} desk;

static void set_up(desk *d, const pass *p, float *room) {
	const k_decoder *m = p->m;
	float **at = &room;
	*d = (desk){.p = p, .x = carve(at, m->hidden), .h = carve(at, m->hidden), .mid = carve(at, m->hidden), .qkv = carve(at, qkv_width(m)), .a = carve(at, m->heads * m->d),
		.gate_up = carve(at, 2 * m->mlp), .act = carve(at, m->mlp), .rstd = carve(at, m->heads), .end_x = carve(at, m->hidden), .end_qkv = carve(at, qkv_width(m))};
	d->scratch = room;
	d->room = room + 4 * m->ld * pool_room();
}

// x becomes its norm's product with qkv, turned by the positions, whose keys and values enter the caches.
static void enter(const desk *d, const k_layer *w, int64_t rows, const int32_t *slot, const int32_t *pos) {
	const k_decoder *m = d->p->m;
	k_rms_norm(rows, m->hidden, d->x, w->norm1, m->eps, d->h, d->rstd);
	linear(d->room, rows, d->h, m->hidden, w->qkv, qkv_width(m), w->qkv_bias, 0, d->qkv);
	for (int64_t i = 0; w->q_norm && i < rows; i++) {
		float *q = d->qkv + i * qkv_width(m), *k = q + m->heads * m->d;
		k_rms_norm(m->heads, m->d, q, w->q_norm, m->eps, q, d->rstd);
		k_rms_norm(m->kv_heads, m->d, k, w->k_norm, m->eps, k, d->rstd);
	}
	if (!w->unrotated)
		k_rope(rows, m->heads + m->kv_heads, m->d, qkv_width(m), d->qkv, pos, m->cos, m->sin, 1);
	k_cache_rows(rows, slot, pos, m->heads, m->kv_heads, m->d, d->qkv, w->keys, w->values, m->ld);
}

// The rest of a layer, from x and qkv to d->x.
static void leave(const desk *d, const k_layer *w, int64_t rows, const int32_t *slot, const int32_t *pos, const float *x, const float *qkv) {
	const k_decoder *m = d->p->m;
	k_cached_attention(rows, slot, pos, m->heads, m->kv_heads, m->d, qkv, w->keys, w->values, m->ld, d->a, d->scratch);
	linear(d->room, rows, d->a, m->heads * m->d, w->o, m->hidden, x, m->hidden, d->mid);
	k_rms_norm(rows, m->hidden, d->mid, w->norm2, m->eps, d->h, d->rstd);
	linear(d->room, rows, d->h, m->hidden, w->gate_up, 2 * m->mlp, 0, 0, d->gate_up);
	k_swiglu(rows, m->mlp, d->gate_up, d->act);
	linear(d->room, rows, d->act, m->mlp, w->down, m->hidden, d->mid, m->hidden, d->x);
}

// Writes the logits of the ends that wait.
static void finish(desk *d) {
	const k_decoder *m = d->p->m;
	if (d->ends > 0) {
		leave(d, d->p->layer + m->layers - 1, d->ends, d->end_slot, d->end_pos, d->end_x, d->end_qkv);
		k_rms_norm(d->ends, m->hidden, d->x, m->norm, m->eps, d->h, d->rstd);
		linear(d->room, d->ends, d->h, m->hidden, m->head, m->vocab, 0, 0, d->p->logits + d->first * m->vocab);
	}
	d->first += d->ends, d->ends = 0;
}

// A block of rows goes up to the last layer's caches; its ends wait there.
static void block(desk *d, int64_t at, int64_t rows) {
	const pass *p = d->p;
	const k_decoder *m = p->m;
	const int32_t *slot = p->slot + at, *pos = p->pos + at;
	for (int64_t i = 0; i < rows; i++)
		memcpy(d->x + i * m->hidden, m->embed + p->ids[at + i] * m->hidden, sizeof(float) * m->hidden);
	for (int64_t l = 0; l < m->layers; l++) {
		enter(d, p->layer + l, rows, slot, pos);
		if (l < m->layers - 1)
			leave(d, p->layer + l, rows, slot, pos, d->x, d->qkv);
	}
	for (int64_t e = d->first + d->ends; e < p->n && p->ends[e] < at + rows; e++, d->ends++) {
		int64_t i = p->ends[e] - at;
		memcpy(d->end_x + d->ends * m->hidden, d->x + i * m->hidden, sizeof(float) * m->hidden);
		memcpy(d->end_qkv + d->ends * qkv_width(m), d->qkv + i * qkv_width(m), sizeof(float) * qkv_width(m));
		d->end_slot[d->ends] = slot[i], d->end_pos[d->ends] = pos[i];
	}
}

static void part(void *job, int64_t piece, int thread) {
	const pass *p = job;
	desk d;
	set_up(&d, p, p->room + thread * k_decode_room(p->m));
	while (d.first < p->n && p->ends[d.first] < p->bounds[piece])
		d.first++;
	for (int64_t at = p->bounds[piece], end = p->bounds[piece + 1]; at < end; at += BLOCK_ROWS) {
		int64_t rows = end - at < BLOCK_ROWS ? end - at : BLOCK_ROWS;
		int64_t next = d.first + d.ends, more = 0;
		while (next + more < p->n && p->ends[next + more] < at + rows)
			more++;
		if (d.ends + more > BLOCK_ROWS)
			finish(&d);
		block(&d, at, rows);
	}
	finish(&d);
}

void k_decode(const k_decoder *m, const k_layer *layer, int64_t parts, const int64_t *bounds, const int64_t *ids, const int32_t *slot, const int32_t *pos, int64_t n, const int64_t *ends,
	float *logits, float *room) {
	pass p = {m, layer, bounds, ids, slot, pos, n, ends, logits, room};
	pool_share(parts, part, &p);
}
