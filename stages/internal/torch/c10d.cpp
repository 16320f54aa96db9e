//go:build libtorch

#define USE_DISTRIBUTED
#define USE_C10D_GLOO
#include "c10d.h"
#include <ATen/Version.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <chrono>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <mutex>
#include <thread>
#include <type_traits>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

using std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

struct group {
	c10::intrusive_ptr<c10d::Backend> backend;
	int size;
};

// The limit of a single operation. The supervisor of the ranks ends a stage that makes no progress much earlier.
static const milliseconds longest = std::chrono::minutes(60);

static const char *caught(const std::function<void()> &work) {
	static thread_local std::string message;
	try {
		work();
		return nullptr;
	} catch (const c10::Error &e) {
		message = e.what_without_backtrace();
	} catch (const std::exception &e) {
		message = e.what();
	} catch (...) {
		message = "an exception of unknown type";
	}
	return message.c_str();
}

// Starts an operation of a group. libtorch records the start of every operation in one map of the process without a
// lock (FlightRecorder), so groups of several threads start theirs one after the other.
template <typename F> static c10::intrusive_ptr<c10d::Work> started(F start) {
	static std::mutex one;
	std::lock_guard<std::mutex> lock(one);
	return start();
}

static at::Tensor &tensor(void *t) { return *static_cast<at::Tensor *>(t); }

// The memory of a contiguous tensor as bytes. Gloo's operations support few types.
static at::Tensor bytes(void *t) { return tensor(t).view(-1).view(at::kByte); }

static void meet(c10d::Store &store, int rank, int size, milliseconds limit) {
	auto deadline = std::chrono::steady_clock::now() + limit;
	store.set("arrived/" + std::to_string(rank), std::string("1"));
	for (;;) {
		std::string missing;
		for (int r = 0; r < size; r++)
			if (!store.check({"arrived/" + std::to_string(r)}))
				missing += (missing.empty() ? "" : ", ") + std::to_string(r);
		if (missing.empty())
			return;
		if (std::chrono::steady_clock::now() > deadline)
			throw std::runtime_error("of " + std::to_string(size) + " ranks these did not arrive within " +
			                         std::to_string(limit.count() / 1000.0).substr(0, 5) + " s: " + missing);
		std::this_thread::sleep_for(milliseconds(10));
	}
}

static group *join(const StorePtr &store, int rank, int size, const char *address, milliseconds limit) {
	store->setTimeout(limit);
	meet(*store, rank, size, limit);
	auto options = c10d::ProcessGroupGloo::Options::create(limit);
	options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname(address)};
	c10::intrusive_ptr<c10d::Backend> backend =
	    c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
	backend->setTimeout(longest);
	return new group{backend, size};
}

const char *group_file(const char *path, int rank, int size, const char *address, int64_t ms, group **out) {
	return caught([&] {
		*out = join(c10::make_intrusive<c10d::FileStore>(path, size), rank, size, address, milliseconds(ms));
	});
}

const char *group_exchange(group *g, void *recv, void *send, const int64_t *recv_n, const int64_t *send_n) {
	return caught([&] {
		auto to = bytes(recv), from = bytes(send);
		// alltoall_base changes its counts
		std::vector<int64_t> in(recv_n, recv_n + g->size), out(send_n, send_n + g->size);
		for (auto &n : in)
			n *= tensor(recv).element_size();
		for (auto &n : out)
			n *= tensor(send).element_size();
		started([&] { return g->backend->alltoall_base(to, from, in, out); })->wait();
	});
}

const char *group_broadcast(group *g, void *t, int root) {
	return caught([&] {
		std::vector<at::Tensor> all{bytes(t)};
		c10d::BroadcastOptions options;
		options.rootRank = root;
		started([&] { return g->backend->broadcast(all, options); })->wait();
	});
}

const char *group_gather(group *g, uint8_t *all, const uint8_t *own, int64_t n) {
	return caught([&] {
		auto to = at::from_blob(all, {g->size * n}, at::kByte);
		auto from = at::from_blob(const_cast<uint8_t *>(own), {n}, at::kByte);
		started([&] { return g->backend->_allgather_base(to, from); })->wait();
	});
}

const char *libtorch_build(void) {
	static const std::string text = [] {
		auto config = at::show_config();
		auto at = config.find("TORCH_VERSION=");
		auto version = at == std::string::npos ? "unknown" : config.substr(at + 14, config.find(',', at) - at - 14);
		return version + " " + at::get_cpu_capability();
	}();
	return text.c_str();
}

void group_close(group *g) { delete g; }

// The functions of NCCL 2 that are used. A result is an int, 0 for success; a communicator and a stream are pointers, and
// the stream of libtorch's operations is null.
struct nccl_id {
	char bytes[128];
};
static struct {
	int (*ncclGetUniqueId)(nccl_id *);
	int (*ncclCommInitRank)(void **, int, nccl_id, int);
	int (*ncclCommAbort)(void *);
	int (*ncclGroupStart)();
	int (*ncclGroupEnd)();
	int (*ncclSend)(const void *, size_t, int, int, void *, void *);
	int (*ncclRecv)(void *, size_t, int, int, void *, void *);
	int (*ncclBroadcast)(const void *, void *, size_t, int, int, void *, void *);
	const char *(*ncclGetErrorString)(int);
	int (*cudaStreamSynchronize)(void *); // null without a GPU
} nccl;
static const int nccl_uint8 = 1; // of ncclDataType_t

const char *nccl_load(const char *path, int on_gpu) {
	return caught([&] {
		void *library = RTLD_DEFAULT; // which is null
		if (*path != 0 || dlsym(library, "ncclSend") == nullptr) {
			library = dlopen(*path != 0 ? path : "libnccl.so.2", RTLD_NOW);
			if (library == nullptr)
				throw std::runtime_error(dlerror());
		}
		auto find = [](void *in, auto &f, const char *name) {
			f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(dlsym(in, name));
			if (f == nullptr)
				throw std::runtime_error(std::string("there is no function ") + name);
		};
#define FIND(in, name) find(in, nccl.name, #name)
		FIND(library, ncclGetUniqueId), FIND(library, ncclCommInitRank), FIND(library, ncclCommAbort);
		FIND(library, ncclGroupStart), FIND(library, ncclGroupEnd), FIND(library, ncclGetErrorString);
		FIND(library, ncclSend), FIND(library, ncclRecv), FIND(library, ncclBroadcast);
		if (on_gpu)
			FIND(RTLD_DEFAULT, cudaStreamSynchronize);
#undef FIND
	});
}

static void done(int result) {
	if (result != 0)
		throw std::runtime_error(std::string("NCCL: ") + nccl.ncclGetErrorString(result));
}

// Waits for the operations on the device, so that the time in a collective operation is measured as with Gloo.
static void finish() {
	if (nccl.cudaStreamSynchronize == nullptr)
		return;
	if (int result = nccl.cudaStreamSynchronize(nullptr))
		throw std::runtime_error("CUDA error " + std::to_string(result) + " in a collective operation");
}

const char *nccl_name(uint8_t *name) {
	return caught([&] { done(nccl.ncclGetUniqueId(reinterpret_cast<nccl_id *>(name))); });
}

const char *nccl_join(const uint8_t *name, int rank, int size, void **comm) {
	return caught([&] {
		nccl_id id;
		std::memcpy(id.bytes, name, sizeof id.bytes);
		done(nccl.ncclCommInitRank(comm, size, id, rank));
	});
}

const char *nccl_exchange(void *comm, int size, void *recv, void *send, const int64_t *recv_n, const int64_t *send_n) {
	return caught([&] {
		auto to = static_cast<char *>(tensor(recv).data_ptr()), from = static_cast<char *>(tensor(send).data_ptr());
		auto wide = tensor(recv).element_size();
		done(nccl.ncclGroupStart());
		int result = 0;
		for (int r = 0; r < size; from += wide * send_n[r], to += wide * recv_n[r], r++) {
			if (result == 0 && send_n[r] > 0)
				result = nccl.ncclSend(from, wide * send_n[r], nccl_uint8, r, comm, nullptr);
			if (result == 0 && recv_n[r] > 0)
				result = nccl.ncclRecv(to, wide * recv_n[r], nccl_uint8, r, comm, nullptr);
		}
		int end = nccl.ncclGroupEnd();
		done(result != 0 ? result : end);
		finish();
	});
}

const char *nccl_broadcast(void *comm, void *t, int root) {
	return caught([&] {
		auto data = tensor(t).data_ptr();
		done(nccl.ncclBroadcast(data, data, tensor(t).nbytes(), nccl_uint8, root, comm, nullptr));
		finish();
	});
}

// A communicator whose peers may have ended is aborted: no operation of it is in progress.
void nccl_close(void *comm) { nccl.ncclCommAbort(comm); }
