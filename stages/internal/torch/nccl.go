//go:build libtorch

package torch

// #include <stdlib.h>
// #include "c10d.h"
import "C"

import (
	"context"
	"fmt"
	"unsafe"
)

// ncclName is the length of NCCL's name of a communicator.
const ncclName = 128

// UseNCCL makes Exchange and Broadcast use NCCL between the GPUs of the ranks, each of which has its own, instead of
// the host's memory. All ranks call it. library is the path of NCCL, or "" for the one that libtorch has loaded. If a
// rank cannot use NCCL, none does, and the error is the reason in this rank or the number of the first such rank. The
// tensors of later operations are on the device.
func (g *Group) UseNCCL(device Device, library string) error {
	name := make([]byte, ncclName)
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	onGPU := C.int(0)
	if device != CPU {
		onGPU = 1
	}
	err := g.agree(Do(context.Background(), device, func(*Scope) error { // loads libtorch's CUDA half
		text := C.GoString(C.nccl_load(path, onGPU))
		if text == "" && g.Rank == 0 {
			text = C.GoString(C.nccl_name((*C.uint8_t)(&name[0])))
		}
		return ncclError(text)
	}))
	if err != nil {
		return err
	}
	names, err := g.Gather(name)
	if err != nil {
		return err
	}
	err = g.agree(Do(context.Background(), device, func(*Scope) error {
		out := new(unsafe.Pointer)
		text := C.GoString(C.nccl_join((*C.uint8_t)(&names[0][0]), C.int(g.Rank), C.int(g.Size), out))
		if text == "" {
			g.comm = *out
		}
		return ncclError(text)
	}))
	if err != nil {
		g.closeNCCL()
	}
	return err
}

// Backend returns the name of the library that moves tensors between the ranks.
func (g *Group) Backend() string {
	if g.comm != nil {
		return "nccl"
	}
	return "gloo"
}

func (g *Group) closeNCCL() {
	if g.comm != nil {
		C.nccl_close(g.comm)
		g.comm = nil
	}
}

func ncclError(text string) error {
	if text == "" {
		return nil
	}
	return fmt.Errorf("load or join NCCL: %s", text)
}

// agree returns an error in all ranks if one has an error.
func (g *Group) agree(err error) error {
	failed := []byte{0}
	if err != nil {
		failed[0] = 1
	}
	all, gatherErr := g.Gather(failed)
	if gatherErr != nil {
		return gatherErr
	}
	for rank, f := range all {
		if err == nil && f[0] != 0 {
			err = fmt.Errorf("rank %d cannot use NCCL", rank)
		}
	}
	return err
}
