//go:build libtorch

package torch

// #include <stdint.h>
// #include <malloc.h>
// #include "kernels.h"
// #include "pool.h"
// // It lives in gotch's torch_api.cpp, which package libtch links in; libtch has no Go name for it.
// extern void at_set_num_threads(int) __attribute__((weak));
// // keep_freed_memory stops glibc from handing large freed blocks back to the system, where every new tensor of that
// // size would fault its pages in again.
// static void keep_freed_memory(void) {
//   mallopt(M_MMAP_THRESHOLD, 1 << 30);
//   mallopt(M_TRIM_THRESHOLD, 1 << 30);
//   mallopt(M_TOP_PAD, 64 << 20);
// }
import "C"

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sugarme/gotch/libtch"

	"rcgrpo/internal/cpu"
)

// Device is the CPU or a GPU. The zero value is the CPU.
type Device struct {
	cuda int // 0 is the CPU, n+1 the GPU with index n
}

// CPU is the processor of the program.
var CPU = Device{}

// ParseDevice reads "cpu", "cuda" (the first GPU) or "cuda:N".
func ParseDevice(name string) (Device, error) {
	switch {
	case name == "cpu":
		return CPU, nil
	case name == "cuda":
		return Device{cuda: 1}, nil
	case strings.HasPrefix(name, "cuda:"):
		n, err := strconv.Atoi(name[len("cuda:"):])
		if err == nil && n >= 0 && n < 1024 {
			return Device{cuda: n + 1}, nil
		}
	}
	return Device{}, fmt.Errorf(`device %q is not known; write "cpu", "cuda" or "cuda:N"`, name)
}

func (d Device) String() string {
	if d.cuda == 0 {
		return "cpu"
	}
	return fmt.Sprintf("cuda:%d", d.cuda-1)
}

// index returns gotch's number of the device.
func (d Device) index() int32 { return int32(d.cuda - 1) }

// worker is the goroutine locked to the thread of a device.
type worker struct {
	device Device
	jobs   chan func()
	// out receives handles from libtch. It is a separate allocation without Go pointers, as cgo requires.
	out *[1]libtch.Ctensor
	// recording reports whether operations are recorded for Backward.
	recording bool
}

var (
	workersLock sync.Mutex
	workers     = map[Device]*worker{}
)

// live counts the handles of all devices that are not freed.
var live atomic.Int64

// Live returns the number of live tensor handles of the process, for tests of leaks.
func Live() int64 { return live.Load() }

// workerOf starts the device's thread at first use. The thread lives as long as the process.
func workerOf(d Device) (*worker, error) {
	workersLock.Lock()
	defer workersLock.Unlock()
	if w := workers[d]; w != nil {
		return w, nil
	}
	if d.cuda > 0 {
		if err := loadCUDA(d); err != nil {
			return nil, err
		}
	}
	if len(workers) == 0 {
		if err := useKernels(); err != nil {
			return nil, err
		}
		C.keep_freed_memory()
	}
	w := &worker{device: d, jobs: make(chan func()), out: new([1]libtch.Ctensor)}
	go func() {
		runtime.LockOSThread()
		libtch.AtGradSetEnabled(0)
		C.at_set_num_threads(1)
		if d == CPU {
			C.pool_threads(C.int(givenThreads()))
		}
		for job := range w.jobs {
			job()
		}
	}()
	workers[d] = w
	return w, nil
}

// useKernels chooses the CPU kernels. Stages on a GPU need some of them too.
func useKernels() error {
	set, err := cpu.Kernels()
	avx512 := C.int(0)
	if set == cpu.AVX512 {
		avx512 = 1
	}
	C.k_use(avx512)
	return err
}

// Do runs f on the thread of the device and waits for it. Tensors made through the scope are freed before Do
// returns, unless kept. The error is that of f or the first one of an operation. Work on one device is serial; f
// must not call Do for the same device, which would deadlock. A done context prevents the start of f; f checks it
// by itself while it runs.
func Do(ctx context.Context, d Device, f func(*Scope) error) error {
	w, err := workerOf(d)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	job := func() { done <- w.run(ctx, f) }
	select {
	case w.jobs <- job:
	case <-ctx.Done():
		return ctx.Err()
	}
	return <-done
}

func (w *worker) run(ctx context.Context, f func(*Scope) error) error {
	s := &Scope{worker: w, sticky: new(error)}
	defer s.close()
	defer s.EndPass()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := f(s); err != nil {
		return err
	}
	return *s.sticky
}

// givenThreads is the number of threads of the stage, which the engine passes in OMP_NUM_THREADS; one by default,
// because stages run concurrently.
func givenThreads() int {
	if n, err := strconv.Atoi(os.Getenv("OMP_NUM_THREADS")); err == nil && n >= 1 {
		return n
	}
	return 1
}

// SetThreads sets the number of threads, at least 1, of products of float32 matrices on the CPU and of the
// operations of fused.go, and returns the previous number, initially $OMP_NUM_THREADS or 1. Results are identical
// with any number. libtorch's operations use one thread, because its pool would compete for the same processors.
func SetThreads(n int) (before int, err error) {
	err = Do(context.Background(), CPU, func(*Scope) error {
		before = int(C.pool_size())
		C.pool_threads(C.int(n))
		return nil
	})
	return before, err
}
