// Threads that help the one that calls. Work comes in pieces that are taken one after the other by whoever is free, the caller
// included: where no processor is free for a helper, the caller does everything itself and waits for nobody. Threads
// that share a job out beforehand and meet at its end (OpenMP's, and so libtorch's) stand still for as long as one of them has no processor.
#ifndef RCGRPO_POOL_H
#define RCGRPO_POOL_H
#include <stdint.h>

// A piece of a job, done by thread 0 (the caller) to pool_room()-1. Pieces run in any order, at once.
typedef void (*pool_piece)(void *job, int64_t piece, int thread);

// Does pieces 0 to n-1 and returns when all are done. One thread at a time may call it; a piece that does is alone with its own, as thread 0.
void pool_share(int64_t n, pool_piece f, void *job);

// How many threads may work from now on, the caller among them; 1 at the start. Fewer where the system gives no more.
void pool_threads(int n);
int pool_size(void);
// How many numbers of threads there are: scratch memory is for so many. Never less than pool_size.
int pool_room(void);

#endif
