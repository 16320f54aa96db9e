//go:build libtorch

#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")
#define SET kernels_avx512
#include "kernel_bodies.h"
