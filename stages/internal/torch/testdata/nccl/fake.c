// A library with the functions of NCCL that package torch calls, for the tests of index and lifetime on machines without
// a GPU: the ranks are processes that exchange memory of the host through a shared file. Sizes of a send and its receive
// must be equal.
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 8, ROOM = 4096, FAILED = 1, INVALID = 4 };
typedef struct {
	_Atomic size_t sent, received; // bytes so far
	_Atomic size_t announced;      // size of the current message, 0 between messages
	char data[ROOM];
} box;
typedef struct {
	int rank, size;
	box (*boxes)[MOST]; // [from][to]
} comm;
typedef struct {
	int send, peer;
	char *data;
	size_t size, at;
	comm *c;
} op;
typedef struct {
	char name[128];
} id;

static op ops[4 * MOST];
static int count, depth;

static comm *map(const char *name) {
	int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
	comm *c = calloc(1, sizeof *c);
	if (fd < 0 || ftruncate(fd, sizeof(box) * MOST * MOST) != 0)
		return NULL;
	c->boxes = mmap(NULL, sizeof(box) * MOST * MOST, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return c;
}

int ncclGetUniqueId(id *out) {
	memset(out, 0, sizeof *out);
	snprintf(out->name, sizeof out->name, "/rcgrpo-nccl-%d", (int)getpid());
	return 0;
}

int ncclCommInitRank(void **out, int size, id name, int rank) {
	comm *c = size < MOST ? map(name.name) : NULL;
	if (c == NULL)
		return FAILED;
	c->rank = rank, c->size = size;
	*out = c;
	if (atomic_fetch_add(&c->boxes[MOST - 1][MOST - 1].sent, 1) == (size_t)size - 1) // of a box without ranks
		shm_unlink(name.name);
	return 0;
}

int ncclCommAbort(void *c) {
	munmap(((comm *)c)->boxes, sizeof(box) * MOST * MOST);
	free(c);
	return 0;
}

// One step of an operation: whether it has ended, or a negative error.
static int step(op *o) {
	box *b = o->send ? &o->c->boxes[o->c->rank][o->peer] : &o->c->boxes[o->peer][o->c->rank];
	size_t sent = atomic_load(&b->sent), received = atomic_load(&b->received);
	if (o->send) {
		if (o->at == 0 && (atomic_load(&b->announced) != 0 || sent != received))
			return 0; // the message before is not read
		atomic_store(&b->announced, o->size);
		while (o->at < o->size && sent - received < ROOM)
			b->data[sent++ % ROOM] = o->data[o->at++];
		atomic_store(&b->sent, sent);
		return o->at == o->size;
	}
	size_t size = atomic_load(&b->announced);
	if (size == 0)
		return 0;
	if (size != o->size)
		return -INVALID;
	while (o->at < o->size && received < sent)
		o->data[o->at++] = b->data[received++ % ROOM];
	atomic_store(&b->received, received);
	if (o->at < o->size)
		return 0;
	atomic_store(&b->announced, 0);
	return 1;
}

static int run(void) {
	for (int left = count; left > 0; sched_yield())
		for (int i = left = 0; i < count; i++) {
			int ended = ops[i].data == NULL ? 1 : step(&ops[i]);
			if (ended < 0)
				return count = 0, -ended;
			if (ended)
				ops[i].data = NULL;
			else
				left++;
		}
	return count = 0;
}

static int add(int send, char *data, size_t size, int type, int peer, comm *c, void *stream) {
	if (type != 1 || size == 0 || stream != NULL || peer >= c->size || count == 4 * MOST)
		return INVALID;
	ops[count++] = (op){send, peer, data, size, 0, c};
	return depth > 0 ? 0 : run();
}

int ncclGroupStart(void) { return depth++, 0; }
int ncclGroupEnd(void) { return --depth > 0 ? 0 : run(); }
int ncclSend(const void *p, size_t n, int type, int to, void *c, void *s) { return add(1, (char *)p, n, type, to, c, s); }
int ncclRecv(void *p, size_t n, int type, int from, void *c, void *s) { return add(0, p, n, type, from, c, s); }

int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, void *c, void *s) {
	if (((comm *)c)->rank != root)
		return ncclRecv(to, n, type, root, c, s);
	int result = ncclGroupStart();
	for (int r = 0; r < ((comm *)c)->size && result == 0; r++)
		if (r != root)
			result = ncclSend(from, n, type, r, c, s);
	int end = ncclGroupEnd();
	return result != 0 ? result : end;
}

const char *ncclGetErrorString(int result) { return result == INVALID ? "invalid argument" : "failed"; }
