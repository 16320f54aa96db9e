//go:build libtorch

#include "direct.h"
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/CachingDeviceAllocator.h>
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
