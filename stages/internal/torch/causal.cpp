//go:build libtorch

#include "causal.h"
#include <ATen/core/Tensor.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <string>

static thread_local std::string message;

void *causal_attention(void *q, void *k, void *v) {
	auto at = [](void *t) -> const at::Tensor & { return *static_cast<at::Tensor *>(t); };
	try {
		return new at::Tensor(at::scaled_dot_product_attention(at(q), at(k), at(v), std::nullopt, 0.0, true));
	} catch (const std::exception &e) {
		message = e.what();
		return nullptr;
	}
}

const char *causal_error(void) { return message.c_str(); }
