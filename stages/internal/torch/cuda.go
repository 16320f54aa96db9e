//go:build libtorch

package torch

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
// #include "direct.h"
// // cudaHostRegister and cudaHostUnregister of the CUDA runtime, which libtorch has loaded.
// static int host_register(void *p, size_t n) {
//   int (*f)(void *, size_t, unsigned) = (int (*)(void *, size_t, unsigned))dlsym(RTLD_DEFAULT, "cudaHostRegister");
//   return f != 0 && f(p, n, 0) == 0;
// }
// static void host_unregister(void *p) {
//   int (*f)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "cudaHostUnregister");
//   if (f != 0) f(p);
// }
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/sugarme/gotch/libtch"
)

// loadCUDA opens libtorch's CUDA half, on which the binary does not depend; its kernels register themselves.
func loadCUDA(d Device) error {
	// variables that the libraries read when they are opened: products with a fixed order of sums, an allocator that can
	// join freed memory, and connections of NCCL on this host only
	for name, value := range map[string]string{"CUBLAS_WORKSPACE_CONFIG": ":4096:8",
		"PYTORCH_ALLOC_CONF": "expandable_segments:True", "NCCL_SOCKET_IFNAME": "lo"} {
		if os.Getenv(name) == "" {
			os.Setenv(name, value)
		}
	}
	var tried []string
	for _, path := range cudaLibraries() {
		name := C.CString(path)
		loaded := C.dlopen(name, C.RTLD_NOW|C.RTLD_GLOBAL) != nil
		C.free(unsafe.Pointer(name))
		if !loaded {
			tried = append(tried, C.GoString(C.dlerror()))
			continue
		}
		if n := libtch.AtcCudaDeviceCount(); int(n) < d.cuda {
			return fmt.Errorf("device %s: %s is there, but it sees %d GPUs (CUDA_VISIBLE_DEVICES=%q); nvidia-smi says "+
				"whether the driver works", d, path, n, os.Getenv("CUDA_VISIBLE_DEVICES"))
		}
		C.device_begin()
		return nil
	}
	return fmt.Errorf("device %s: libtorch's CUDA half cannot be loaded (%s); set LIBTORCH=DIR to a libtorch 2.11.0 "+
		"with CUDA 13, such as the folder of the Python package torch==2.11.0, or leave `gpus` out of the stage's "+
		"resources", d, strings.Join(tried, "; "))
}

// cudaLibraries lists the possible paths of the CUDA half: in LIBTORCH, beside the CPU half, and in the linker's
// search path.
func cudaLibraries() (paths []string) {
	const name = "libtorch_cuda.so"
	if dir := os.Getenv("LIBTORCH"); dir != "" {
		paths = append(paths, filepath.Join(dir, "lib", name))
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err == nil {
		for line := range strings.Lines(string(maps)) {
			if at := strings.IndexByte(line, '/'); at >= 0 && strings.HasSuffix(line, "/libtorch_cpu.so\n") {
				paths = append(paths, filepath.Join(filepath.Dir(line[at:]), name))
				break
			}
		}
	}
	return append(paths, name)
}

// HostZeros returns float32 zeros [n] in the host's memory. For a GPU it is pinned, so that copies need no detour; if
// the system allows no more pinned memory, copies are slower. libtorch's own allocator of pinned memory rounds the
// size up to a power of two.
func (s *Scope) HostZeros(n int64) *Tensor {
	t := s.op("host zeros", operands{}, func(out *libtch.Ctensor) {
		libtch.AtgZeros(out, []int64{n}, 1, int32(Float32), CPU.index())
	})
	if s.Err() == nil && s.worker.device != CPU && n > 0 {
		t.pinned = C.host_register(libtch.AtDataPtr(t.c), C.size_t(4*n)) != 0
	}
	return t
}

// unpin undoes the registration of HostZeros.
func (t *Tensor) unpin() {
	if t.pinned {
		C.host_unregister(libtch.AtDataPtr(t.c))
	}
}

// Trim returns freed memory from libtorch's cache to the GPU, so that the next phase, whose tensors have other sizes,
// finds all of it in one piece. On the CPU it does nothing.
func (s *Scope) Trim() {
	if s.worker.device != CPU && s.Err() == nil && C.device_trim() == 0 {
		s.failDirect("trim", operands{})
	}
}

// DevicePeak returns the largest number of bytes that tensors of a GPU have had since its last call; 0 for the CPU.
func DevicePeak(d Device) int64 {
	if d == CPU {
		return 0
	}
	return int64(C.device_peak(C.int(d.cuda - 1)))
}
