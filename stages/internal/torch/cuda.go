//go:build libtorch

package torch

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/sugarme/gotch/libtch"
)

// loadCUDA opens libtorch's CUDA half, which is no dependency of the binary: its kernels register themselves. The
// library is looked for where the linker looks, that is beside the CPU half first.
func loadCUDA(d Device) error {
	name := C.CString("libtorch_cuda.so")
	defer C.free(unsafe.Pointer(name))
	if C.dlopen(name, C.RTLD_NOW|C.RTLD_GLOBAL) == nil {
		return fmt.Errorf("device %s: %s; name a libtorch 2.11.0 with CUDA with LIBTORCH=DIR when building", d, C.GoString(C.dlerror()))
	}
	if n := libtch.AtcCudaDeviceCount(); int(n) < d.cuda {
		return fmt.Errorf("device %s: this machine shows %d GPUs to CUDA", d, n)
	}
	return nil
}
