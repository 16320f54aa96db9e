//go:build libtorch

package torch

// #cgo CXXFLAGS: -I${SRCDIR} -DRCGRPO_PLAIN
// #include <stdlib.h>
// #include "c10d.h"
import "C"

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/sugarme/gotch/libtch"
)

// Group connects the ranks of a stage, one process each, over Gloo. Its operations are collective: every rank calls
// the same ones in the same order, one at a time, with the same sizes as described. Exchange and Broadcast run on a
// device's thread, Gather on any. Close frees it.
//
// Gloo exchanges memory of the host, so tensors of a GPU are copied there and back, unless UseNCCL has succeeded.
type Group struct {
	Rank, Size int
	c          *C.group
	comm       unsafe.Pointer // of NCCL, or nil

	staged bool // copies tensors of the CPU as if they were of a GPU, for tests
	waits  waits
}

// waits measures the time in collective operations, in which a rank mostly waits for others.
type waits struct {
	mu    sync.Mutex
	since time.Time // zero: in none
	total time.Duration
}

func (w *waits) begin() {
	steps.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Now()
}

func (w *waits) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total += time.Since(w.since)
	w.since = time.Time{}
}

// Waits reports whether this rank is in a collective operation, and the time that it has spent in all of them.
func (g *Group) Waits() (now bool, total time.Duration) {
	g.waits.mu.Lock()
	defer g.waits.mu.Unlock()
	if now = !g.waits.since.IsZero(); now {
		return now, g.waits.total + time.Since(g.waits.since)
	}
	return now, g.waits.total
}

// ErrPeer is wrapped by the error of a collective operation. Usually another rank has ended; its own error is the
// cause.
var ErrPeer error = peerError{}

type peerError struct{}

func (peerError) Error() string { return "the ranks lost contact" }

// Echo marks the failure for the engine as a consequence of another rank's.
func (peerError) Echo() bool { return true }

// Loopback is the address of groups whose ranks are on one host.
const Loopback = "127.0.0.1"

// JoinFile joins the group of the ranks that meet in a file, which does not exist before the first of them. The
// ranks listen on one address of this host only. If some do not arrive within the limit, the error names them.
func JoinFile(path string, rank, size int, address string, limit time.Duration) (*Group, error) {
	if _, err := os.Stat(filepath.Dir(path)); err != nil { // c10d would try for minutes
		return nil, fmt.Errorf("join rank %d of %d: %w", rank, size, err)
	}
	p, a := C.CString(path), C.CString(address)
	defer C.free(unsafe.Pointer(p))
	defer C.free(unsafe.Pointer(a))
	return join(rank, size, func(out **C.group) *C.char {
		return C.group_file(p, C.int(rank), C.int(size), a, C.int64_t(limit.Milliseconds()), out)
	})
}

// receiveSIGPIPE keeps a rank alive whose peer has closed a connection that a thread of Gloo writes to: Go ends the
// process on this signal in a thread that is not its own, unless it is received.
var receiveSIGPIPE = sync.OnceFunc(func() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) })

func join(rank, size int, call func(out **C.group) *C.char) (*Group, error) {
	if rank < 0 || rank >= size {
		return nil, fmt.Errorf("join rank %d of %d ranks: the first is 0", rank, size)
	}
	receiveSIGPIPE()
	g := &Group{Rank: rank, Size: size}
	out := new(*C.group)
	if text := locked(func() *C.char { return call(out) }); text != "" {
		return nil, fmt.Errorf("join rank %d of %d: %s", rank, size, text)
	}
	g.c = *out
	return g, nil
}

// locked returns the text of a call, which belongs to the thread of the call.
func locked(call func() *C.char) string {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return C.GoString(call())
}

// Version returns the version of libtorch and the instruction set of its kernels.
func Version() string { return C.GoString(C.libtorch_build()) }

// Close ends the connections. It may be called twice.
func (g *Group) Close() {
	if g != nil && g.c != nil {
		g.closeNCCL()
		C.group_close(g.c)
		g.c = nil
	}
}

// Gather returns the bytes of every rank, in the order of ranks. All ranks pass the same number of bytes.
func (g *Group) Gather(own []byte) ([][]byte, error) {
	if len(own) == 0 {
		return make([][]byte, g.Size), nil
	}
	g.waits.begin()
	defer g.waits.end()
	all := make([]byte, g.Size*len(own))
	text := locked(func() *C.char {
		return C.group_gather(g.c, (*C.uint8_t)(&all[0]), (*C.uint8_t)(&own[0]), C.int64_t(len(own)))
	})
	if text != "" {
		return nil, fmt.Errorf("gather %d bytes: %w: %s", len(own), ErrPeer, text)
	}
	return slices.Collect(slices.Chunk(all, len(own))), nil
}

// Exchange sends sendN[r] elements of send to each rank r and receives recvN[r] from it. The tensors are contiguous
// and contain the elements in the order of ranks.
func (s *Scope) Exchange(g *Group, recv, send *Tensor, recvN, sendN []int64) {
	const name = "exchange"
	if !s.ready(name, operands{recv, send}) {
		return
	}
	for _, side := range []struct {
		t *Tensor
		n []int64
	}{{recv, recvN}, {send, sendN}} {
		total := int64(0)
		for _, n := range side.n {
			total += n
		}
		if len(side.n) != g.Size || total != int64(side.t.Len()) || slices.Min(side.n) < 0 {
			s.Fail(fmt.Errorf("torch %s: %v elements for a tensor %v and %d ranks", name, side.n, side.t.Shape(), g.Size))
			return
		}
	}
	if g.comm != nil {
		s.collective(g, name, operands{recv, send}, func() *C.char {
			return C.nccl_exchange(g.comm, C.int(g.Size), unsafe.Pointer(recv.c), unsafe.Pointer(send.c),
				(*C.int64_t)(&recvN[0]), (*C.int64_t)(&sendN[0]))
		})
		return
	}
	to, from := s.inHost(g, recv, false), s.inHost(g, send, true)
	s.collective(g, name, operands{to, from}, func() *C.char {
		return C.group_exchange(g.c, unsafe.Pointer(to.c), unsafe.Pointer(from.c), (*C.int64_t)(&recvN[0]),
			(*C.int64_t)(&sendN[0]))
	})
	if to != recv {
		s.Copy_(recv, to)
	}
}

// Broadcast overwrites a contiguous tensor with that of the rank root.
func (s *Scope) Broadcast(g *Group, t *Tensor, root int) {
	if !s.ready("broadcast", operands{t}) {
		return
	}
	if g.comm != nil {
		s.collective(g, "broadcast", operands{t}, func() *C.char {
			return C.nccl_broadcast(g.comm, unsafe.Pointer(t.c), C.int(root))
		})
		return
	}
	host := s.inHost(g, t, g.Rank == root)
	s.collective(g, "broadcast", operands{host}, func() *C.char {
		return C.group_broadcast(g.c, unsafe.Pointer(host.c), C.int(root))
	})
	if host != t && g.Rank != root {
		s.Copy_(t, host)
	}
}

// inHost returns t, or a tensor of its shape in the host's memory, with its numbers if filled.
func (s *Scope) inHost(g *Group, t *Tensor, filled bool) *Tensor {
	if t.device() == CPU.index() && !g.staged {
		return t
	}
	host := s.op("host buffer", operands{t}, func(out *libtch.Ctensor) {
		libtch.AtgEmpty(out, t.Shape(), len(t.Shape()), int32(t.DType()), CPU.index())
	})
	if filled {
		s.Copy_(host, t)
	}
	return host
}

func (s *Scope) collective(g *Group, name string, operands operands, call func() *C.char) {
	if !s.ready(name, operands) {
		return
	}
	g.waits.begin()
	defer g.waits.end()
	if text := C.GoString(call()); text != "" {
		s.Fail(fmt.Errorf("torch %s of %v: %w: %s", name, shapesOf(operands), ErrPeer, text))
	}
}
