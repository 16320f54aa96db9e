//go:build libtorch

#include "pool.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

// left is the number of pieces that no thread has taken yet. It synchronizes the job: writes before it became positive
// are visible after a piece was taken, and the job's variables change only after all taken pieces are done.
static _Atomic int64_t left;
static _Atomic int64_t done;
static pool_piece work;
static void *job;
static int64_t pieces;

static _Atomic int size = 1;
static int room = 1;
static _Atomic int asleep;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;

static void rest(void) {
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static _Thread_local int inside; // of a piece

static void take(int thread) {
	inside = 1;
	for (int64_t n = atomic_load(&left); n > 0;)
		if (atomic_compare_exchange_weak(&left, &n, n - 1)) {
			work(job, pieces - n, thread);
			atomic_fetch_add(&done, 1);
			n = atomic_load(&left);
		}
	inside = 0;
}

// Two jobs of a pass are a few microseconds apart: a helper spins that long before it sleeps.
enum { patience = 8000 };

static void *help(void *number) {
	int thread = (int)(intptr_t)number;
	for (;;) {
		for (int i = 0; i < patience; i++) {
			if (thread < atomic_load_explicit(&size, memory_order_relaxed) && atomic_load_explicit(&left, memory_order_relaxed) > 0) {
				take(thread);
				i = 0;
			}
			rest();
		}
		pthread_mutex_lock(&lock);
		atomic_fetch_add(&asleep, 1);
		while (thread >= atomic_load(&size) || atomic_load(&left) == 0)
			pthread_cond_wait(&wake, &lock);
		atomic_fetch_sub(&asleep, 1);
		pthread_mutex_unlock(&lock);
	}
	return 0;
}

void pool_share(int64_t n, pool_piece f, void *j) {
	if (n < 2 || size < 2 || inside) {
		for (int64_t i = 0; i < n; i++)
			f(j, i, 0);
		return;
	}
	work = f, job = j, pieces = n;
	atomic_store(&done, 0);
	atomic_store(&left, n);
	if (atomic_load(&asleep) > 0) {
		pthread_mutex_lock(&lock);
		pthread_cond_broadcast(&wake);
		pthread_mutex_unlock(&lock);
	}
	take(0);
	for (int i = 0; atomic_load(&done) < n; i++)
		if (i < patience)
			rest();
		else
			sched_yield(); // a helper may wait for this processor
}

void pool_threads(int n) {
	sigset_t all, before;
	pthread_attr_t detached;
	pthread_t t;
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); // signals are Go's
	while (room < n && pthread_create(&t, &detached, help, (void *)(intptr_t)room) == 0)
		room++;
	pthread_sigmask(SIG_SETMASK, &before, 0);
	pthread_attr_destroy(&detached);
	atomic_store(&size, n < room ? n : room);
}

int pool_size(void) { return size; }
int pool_room(void) { return room; }
