// Process groups of libtorch's c10d. Each function returns null, or an error text that is valid until the thread's next
// call; no exception leaves. Tensors are handles of libtch. Counts are elements of the tensor.
#ifndef RCGRPO_C10D_H
#define RCGRPO_C10D_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef struct group group;
// The ranks meet in a file that all of them can write. Connections listen on address only. The ranks that do not arrive
// within ms milliseconds are named in the error.
const char *group_file(const char *path, int rank, int size, const char *address, int64_t ms, group **out);
// Sends send_n[r] elements of send to rank r and receives recv_n[r] from it, each tensor in the order of ranks.
const char *group_exchange(group *g, void *recv, void *send, const int64_t *recv_n, const int64_t *send_n);
// Overwrites t with that of the rank root.
const char *group_broadcast(group *g, void *t, int root);
// Writes n bytes of every rank to all, in the order of ranks.
const char *group_gather(group *g, uint8_t *all, const uint8_t *own, int64_t n);
void group_close(group *g);
// NCCL, without its header: nccl_load finds its functions in the library at path, or for "" in the loaded ones or
// libnccl.so.2; without a GPU nothing waits for one, in tests. nccl_name writes the 128 bytes that name a new communicator, which each rank joins with nccl_join on the
// thread of its device. The operations are those of a group, on the memory of that device, and return when it is done.
const char *nccl_load(const char *path, int on_gpu);
const char *nccl_name(uint8_t *name);
const char *nccl_join(const uint8_t *name, int rank, int size, void **comm);
const char *nccl_exchange(void *comm, int size, void *recv, void *send, const int64_t *recv_n, const int64_t *send_n);
const char *nccl_broadcast(void *comm, void *t, int root);
void nccl_close(void *comm);
// The version of libtorch and the instruction set of its kernels.
const char *libtorch_build(void);
#ifdef __cplusplus
}
#endif
#endif
