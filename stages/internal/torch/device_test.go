//go:build libtorch

package torch

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"rcgrpo/internal/must"
)

// onTestDevice returns the device that RCGRPO_DEVICE names.
func onTestDevice(t *testing.T) Device {
	t.Helper()
	return must.Get(ParseDevice(cmp.Or(os.Getenv("RCGRPO_DEVICE"), "cpu")))(t)
}

// groupPacking is a group of so many sequences that share a prompt; every row asks.
func groupPacking(members, prompt, own int32) (p *Packing, rows int32) {
	p = &Packing{Bounds: []int32{0}, QueryBounds: []int32{0}}
	for i := range members {
		for place := range prompt + own {
			switch {
			case i > 0 && place < prompt:
				p.Path = append(p.Path, place)
				continue
			default:
				p.Path, p.Places = append(p.Path, rows), append(p.Places, place)
				rows++
			}
		}
		p.Bounds, p.QueryBounds = append(p.Bounds, int32(len(p.Path))), append(p.QueryBounds, int32(len(p.Places)))
	}
	return p, rows
}

// Attention of a long sequence and of a group with a shared prompt: of variable lengths and by segments. On the CPU
// tiny, in float32 and without the kernel.
func TestAttentionOnADevice(t *testing.T) {
	device := onTestDevice(t)
	heads, kvHeads, d, kind, most := int64(28), int64(4), int64(128), BFloat16, 0.05
	shapes := [][3]int32{{1, 0, 16384}, {5, 5000, 7000}} // members, prompt, own rows
	if device == CPU {
		heads, kvHeads, d, kind, most, shapes = 4, 2, 8, Float32, 1e-5, [][3]int32{{1, 0, 20}, {5, 6, 7}}
		Compose(true)
		EmulateFlash(true)
		defer Compose(false)
		defer EmulateFlash(false)
	}
	t.Log("| attention | forward and backward, ms | the same bytes again | largest difference from segments |")
	for _, shape := range shapes {
		p, rows := groupPacking(shape[0], shape[1], shape[2])
		var want []float32
		for _, way := range []string{"by segments", "variable lengths"} {
			var results [2][]float32
			var took time.Duration
			for turn := range results { // the first finds its kernels
				work(t, func(s *Scope) {
					r := rand.New(rand.NewPCG(9, 9))
					q, up := s.As(random(s, r, int64(rows), heads*d), kind), s.As(random(s, r, int64(rows), heads*d), kind)
					k, v := s.As(random(s, r, int64(rows), kvHeads*d), kind), s.As(random(s, r, int64(rows), kvHeads*d), kind)
					dq := s.Zeros(kind, int64(rows), heads*d)
					dk, dv := s.Zeros(Float32, int64(rows), kvHeads*d), s.Zeros(Float32, int64(rows), kvHeads*d)
					s.Float32s(s.Narrow(dk, 0, 0, 1)) // waits for the device
					start := time.Now()
					if way == "variable lengths" {
						out, lse := s.flashAttention(q, k, v, p, heads, kvHeads)
						s.flashAttentionBackward(q, k, v, out, lse, up, p, heads, kvHeads, dq, dk, dv)
					} else {
						parts := s.segments(p, kind)
						s.attendSegments(q, k, v, parts, heads, kvHeads)
						s.attendSegmentsBackward(q, k, v, up, parts, heads, kvHeads, dq, dk, dv)
					}
					s.Float32s(s.Narrow(dk, 0, 0, 1))
					took = time.Since(start)
					for _, x := range []*Tensor{dq, dk, dv} {
						results[turn] = append(results[turn], s.Float32s(s.As(x, Float32))...)
					}
				})
			}
			if want == nil {
				want = results[0]
			}
			same, off := slices.Equal(results[0], results[1]), 0.0
			for i, x := range results[0] { // relative to values above 1
				w := float64(want[i])
				off = max(off, math.Abs(float64(x)-w)/(1+math.Abs(w)))
			}
			t.Logf("| %d × (%d + %d) rows, %s | %.3g | %v | %.2g |", shape[0], shape[1], shape[2], way,
				took.Seconds()*1e3, same, off)
			if !same || !(off < most) {
				t.Errorf("%s: the same bytes again: %v; off by %v, want at most %v", way, same, off, most)
			}
		}
	}
}

// Exchanges over NCCL and over the host's memory: the same bytes, and the speed of each, for 1 to RCGRPO_DEVICES ranks
// with a GPU each. On the CPU tiny, with a library that stands for NCCL.
func TestExchangeOnDevices(t *testing.T) {
	most := 2
	if onTestDevice(t) == CPU {
		t.Setenv(ncclVariable, fakeNCCL(t))
	} else {
		most = must.Get(strconv.Atoi(os.Getenv("RCGRPO_DEVICES")))(t)
	}
	t.Log("| ranks | exchanged by each, MiB | gloo, GB/s | nccl, GB/s |")
	for size := 1; size <= most; size *= 2 {
		outputs, errs := startRanks(t, "speed", size, filepath.Join(t.TempDir(), "store"))
		for rank := range errs {
			wantPassed(t, outputs, errs, rank)
		}
		for line := range strings.Lines(outputs[0]) {
			if strings.HasPrefix(line, "| ") {
				t.Log(strings.TrimSpace(line))
			}
		}
	}
}

// measureExchange is the work of a rank of TestExchangeOnDevices.
func measureExchange(t *testing.T, g *Group) {
	device, n := onTestDevice(t), int64(1<<12)
	if device != CPU {
		n = 1 << 26
	}
	each := make([]int64, g.Size)
	for r := range each {
		each[r] = n / int64(g.Size)
	}
	n = each[0] * int64(g.Size)
	var received [2][]float32
	var speed [2]float64 // GB/s
	for way, use := range []func() error{func() error { return nil },
		func() error { return g.UseNCCL(device, os.Getenv(ncclVariable)) }} {
		must.OK(t, use())
		work(t, func(s *Scope) {
			send := s.As(random(s, rand.New(rand.NewPCG(6, uint64(g.Rank))), n), Float32)
			recv := s.Zeros(Float32, n)
			for turn := range 4 { // the first finds its connections
				start := time.Now()
				s.Exchange(g, recv, send, each, each)
				received[way] = append([]float32{}, s.Float32s(s.Narrow(recv, 0, n-each[0], each[0]))...)
				if turn > 0 {
					speed[way] = max(speed[way], 4*float64(n)/time.Since(start).Seconds()/1e9)
				}
			}
		})
	}
	if g.Backend() != "nccl" || !slices.Equal(received[0], received[1]) {
		t.Errorf("over %s other numbers than over gloo", g.Backend())
	}
	fmt.Printf("| %d | %.3g | %.3g | %.3g |\n", g.Size, 4*float64(n)/(1<<20), speed[0], speed[1])
}

// deviceOfRank is the environment of a rank's process whose GPU has its number.
func deviceOfRank(c *exec.Cmd, rank int) {
	if os.Getenv("RCGRPO_DEVICES") != "" {
		c.Env = append(c.Env, fmt.Sprint("CUDA_VISIBLE_DEVICES=", rank))
	}
}
