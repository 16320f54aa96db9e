//go:build libtorch

#pragma GCC target("avx2,fma,bmi2")
#define SET kernels_avx2
#include "kernel_bodies.h"
