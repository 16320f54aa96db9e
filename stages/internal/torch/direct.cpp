//go:build libtorch

#include "direct.h"
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <memory>
#include <string>

static thread_local std::string message;

static at::Tensor &tensor(void *t) { return *static_cast<at::Tensor *>(t); }

void *causal_attention(void *q, void *k, void *v) {
	try {
		return new at::Tensor(at::scaled_dot_product_attention(tensor(q), tensor(k), tensor(v), std::nullopt, 0.0, true));
	} catch (const std::exception &e) {
		message = e.what();
		return nullptr;
	}
}

int wide_mm(void *out, void *a, void *b) {
	try {
		at::mm_out(tensor(out), tensor(a), tensor(b), at::kFloat);
		return 1;
	} catch (const std::exception &e) {
		message = e.what();
		return 0;
	}
}

int flash_forward(void *q, void *k, void *v, void *bounds, void *starts, void *used, int64_t queries, int64_t keys,
                  void **made) {
	try {
		std::optional<at::Tensor> lengths;
		if (used != nullptr)
			lengths = tensor(used);
		auto r = at::_flash_attention_forward(tensor(q), tensor(k), tensor(v), tensor(bounds), tensor(starts), queries,
		                                      keys, 0.0, true, false, std::nullopt, std::nullopt, std::nullopt, lengths);
		auto out = std::make_unique<at::Tensor>(std::get<0>(r));
		made[1] = new at::Tensor(std::get<1>(r));
		made[0] = out.release();
		return 1;
	} catch (const std::exception &e) {
		message = e.what();
		return 0;
	}
}

// Deterministic algorithms, as an error where there is none, while it lives; afterwards as a warning, as on a GPU.
struct Deterministic {
	Deterministic() { at::globalContext().setDeterministicAlgorithms(true, false); }
	~Deterministic() { at::globalContext().setDeterministicAlgorithms(true, true); }
};

int flash_backward(void *dout, void *q, void *k, void *v, void *out, void *lse, void *bounds, void *starts,
                   int64_t queries, int64_t keys, void **made) {
	try {
		Deterministic only;
		// without dropout nothing reads the state of the random numbers
		at::Tensor state = at::empty({2}, tensor(q).options().dtype(at::kUInt64));
		auto r = at::_flash_attention_backward(tensor(dout), tensor(q), tensor(k), tensor(v), tensor(out), tensor(lse),
		                                       tensor(bounds), tensor(starts), queries, keys, 0.0, true, state, state);
		auto dq = std::make_unique<at::Tensor>(std::get<0>(r)), dk = std::make_unique<at::Tensor>(std::get<1>(r));
		made[2] = new at::Tensor(std::get<2>(r));
		made[1] = dk.release();
		made[0] = dq.release();
		return 1;
	} catch (const std::exception &e) {
		message = e.what();
		return 0;
	}
}

int fused_adamw(void *p, void *g, void *m, void *v, void *step, double lr, double beta1, double beta2, double decay,
                double eps, void *scale) {
	try {
		std::optional<at::Tensor> divisor;
		if (scale != nullptr)
			divisor = tensor(scale);
		at::_fused_adamw_({tensor(p)}, {tensor(g)}, {tensor(m)}, {tensor(v)}, {}, {tensor(step)}, lr, beta1, beta2, decay,
		                  eps, false, false, divisor);
		return 1;
	} catch (const std::exception &e) {
		message = e.what();
		return 0;
	}
}

void device_begin(void) {
	at::globalContext().setDeterministicAlgorithms(true, true);
	at::globalContext().setDeterministicFillUninitializedMemory(false);
}

int64_t device_peak(int index) {
	try {
		auto *allocator = c10::getDeviceAllocator(at::kCUDA);
		auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
		int64_t peak = allocator->getDeviceStats(index).allocated_bytes[all].peak;
		allocator->resetPeakStats(index);
		return peak;
	} catch (const std::exception &e) {
		message = e.what();
		return 0;
	}
}

int device_trim(void) {
	try {
		c10::getDeviceAllocator(at::kCUDA)->emptyCache();
		return 1;
	} catch (const std::exception &e) {
		message = e.what();
		return 0;
	}
}

const char *direct_error(void) { return message.c_str(); }
