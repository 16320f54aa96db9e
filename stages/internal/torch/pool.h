// A pool of threads. A job is divided into pieces; the caller and the idle threads take one piece after another. If no
// processor is free for a thread, the caller computes everything itself without waiting. Pools that assign the pieces
// beforehand (OpenMP's, and so libtorch's) wait at the end of a job for every thread that has no processor.
#ifndef RCGRPO_POOL_H
#define RCGRPO_POOL_H
#include <stdint.h>

// A piece of a job, computed by thread 0 (the caller) to pool_room()-1. Pieces run concurrently in any order.
typedef void (*pool_piece)(void *job, int64_t piece, int thread);

// Computes pieces 0 to n-1 and returns when all are done. One thread at a time may call it. A nested call from a piece
// computes its pieces serially, as thread 0.
void pool_share(int64_t n, pool_piece f, void *job);

// Sets the number of threads including the caller, initially 1; fewer if the system refuses to start more.
void pool_threads(int n);
int pool_size(void);
// Number of thread indices, at least pool_size(): scratch memory has a part for each.
int pool_room(void);

#endif
