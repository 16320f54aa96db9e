//go:build libtorch

package torch

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
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
