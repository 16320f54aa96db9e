// Included before gotch's torch_api.cpp (-include), so that gotch 0.9.1, written for libtorch 2.1,
// compiles with the headers of 2.11. Three operations have changed their signatures since; this
// project does not call them. A name declared in torch hides the one that torch imports from at,
// so gotch's wrappers call these templates, which throw. Our own C++ files define RCGRPO_PLAIN, because
// the headers below take most of their compilation.
#pragma once
#ifndef RCGRPO_PLAIN
#include <stdexcept>
#include <torch/torch.h>
#include <torch/version.h>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR != 11
#error "gotch is built here over libtorch 2.11; LIBTORCH names another version"
#endif

namespace torch {
template <class... Args> at::Tensor _cslt_sparse_mm(Args &&...) {
  throw std::runtime_error("_cslt_sparse_mm: not in this build");
}
template <class... Args> std::tuple<at::Tensor, at::Tensor> _scaled_mm(Args &&...) {
  throw std::runtime_error("_scaled_mm: not in this build");
}
template <class... Args> std::tuple<at::Tensor, at::Tensor> _scaled_mm_out(Args &&...) {
  throw std::runtime_error("_scaled_mm_out: not in this build");
}
} // namespace torch
#endif
