//go:build libtorch

#define USE_DISTRIBUTED
#define USE_C10D_GLOO
#include "c10d.h"
#include <ATen/Version.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <chrono>
#include <functional>
#include <thread>
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
		g->backend->alltoall_base(to, from, in, out)->wait();
	});
}

const char *group_broadcast(group *g, void *t, int root) {
	return caught([&] {
		std::vector<at::Tensor> all{bytes(t)};
		c10d::BroadcastOptions options;
		options.rootRank = root;
		g->backend->broadcast(all, options)->wait();
	});
}

const char *group_gather(group *g, uint8_t *all, const uint8_t *own, int64_t n) {
	return caught([&] {
		auto to = at::from_blob(all, {g->size * n}, at::kByte);
		auto from = at::from_blob(const_cast<uint8_t *>(own), {n}, at::kByte);
		g->backend->_allgather_base(to, from)->wait();
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
