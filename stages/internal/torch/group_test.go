//go:build libtorch

package torch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/internal/must"
)

// inGroup is the environment variable of a rank's process: its work, rank, size, and a file to meet at.
const inGroup = "RCGRPO_TEST_GROUP"

// startRanks starts the processes of a group and returns what they print.
func startRanks(t *testing.T, work string, size int, place string) (outputs []string, errs []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var ranks []*exec.Cmd
	var texts []*strings.Builder
	for rank := range size {
		c, text := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestRankOfAGroup$"), &strings.Builder{}
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %s", inGroup, work, rank, size, place))
		c.Stdout, c.Stderr = text, text
		deviceOfRank(c, rank)
		must.OK(t, c.Start())
		ranks, texts = append(ranks, c), append(texts, text)
	}
	for rank, c := range ranks {
		errs, outputs = append(errs, c.Wait()), append(outputs, texts[rank].String())
	}
	return outputs, errs
}

// wantPassed checks that the processes of some ranks passed their test.
func wantPassed(t *testing.T, outputs []string, errs []error, ranks ...int) {
	t.Helper()
	for _, rank := range ranks {
		if errs[rank] != nil || !strings.Contains(outputs[rank], "PASS") {
			t.Errorf("rank %d: %v\n%s", rank, errs[rank], outputs[rank])
		}
	}
}

func TestRanksExchangeBroadcastAndGather(t *testing.T) {
	for name, tc := range map[string]struct {
		work string
		size int
	}{"2": {"all", 2}, "3": {"all", 3}, "4": {"all", 4}, "3, copied as from a GPU": {"staged", 3},
		"4, over NCCL's functions": {"nccl", 4}, "3, one without NCCL": {"missing", 3}} {
		t.Run(name, func(t *testing.T) {
			if tc.work == "nccl" || tc.work == "missing" {
				t.Setenv(ncclVariable, fakeNCCL(t))
			}
			outputs, errs := startRanks(t, tc.work, tc.size, filepath.Join(t.TempDir(), "store"))
			wantPassed(t, outputs, errs, []int{0, 1, 2, 3}[:tc.size]...)
		})
	}
}

func TestEndOfARankIsNoticed(t *testing.T) {
	start := time.Now()
	outputs, errs := startRanks(t, "end", 3, filepath.Join(t.TempDir(), "store"))
	wantPassed(t, outputs, errs, 0, 2)
	if errs[1] == nil || time.Since(start) > time.Minute {
		t.Errorf("after %v: rank 1 has ended with %v\n%s", time.Since(start), errs[1], outputs[1])
	}
}

func TestRanksThatDoNotArriveAreNamed(t *testing.T) {
	_, err := JoinFile(filepath.Join(t.TempDir(), "store"), 1, 4, Loopback, 300*time.Millisecond)
	must.Match(t, err, "join rank 1 of 4: of 4 ranks these did not arrive within 0.300 s: 0, 2, 3")
	_, err = JoinFile(filepath.Join(t.TempDir(), "missing", "store"), 0, 2, Loopback, 100*time.Millisecond)
	must.Match(t, err, "join rank 0 of 2: stat")
	_, err = JoinFile("store", 2, 2, Loopback, time.Second)
	must.Match(t, err, "rank 2 of 2 ranks: the first is 0")
}

// ncclVariable names the library that stands for NCCL.
const ncclVariable = "RCGRPO_TEST_NCCL"

// fakeNCCL builds a library with the functions of NCCL over the host's memory.
func fakeNCCL(t *testing.T) (path string) {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	path = filepath.Join(t.TempDir(), "libfake.so")
	out, err := exec.Command(compiler, "-O1", "-shared", "-fPIC", "-o", path, "testdata/nccl/fake.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// useNCCL lets the group use the library that stands for NCCL, which rank 1 lacks if missing.
func useNCCL(t *testing.T, g *Group, missing bool) {
	library, want := os.Getenv(ncclVariable), "nccl"
	if missing && g.Rank == 1 {
		library += ".missing"
	}
	err := g.UseNCCL(CPU, library)
	switch {
	case !missing:
		must.OK(t, err)
	case g.Rank == 1:
		must.Match(t, err, "libfake.so.missing: cannot open shared object file")
	default:
		must.Match(t, err, "rank 1 cannot use NCCL")
	}
	if missing {
		want = "gloo"
	}
	if got := g.Backend(); got != want {
		t.Errorf("got the backend %s, want %s", got, want)
	}
}

// TestRankOfAGroup is the process of one rank.
func TestRankOfAGroup(t *testing.T) {
	fields := strings.Fields(os.Getenv(inGroup))
	if len(fields) == 0 {
		t.Skip("it runs in a process of its own")
	}
	rank, size := must.Get(strconv.Atoi(fields[1]))(t), must.Get(strconv.Atoi(fields[2]))(t)
	g := must.Get(JoinFile(fields[3], rank, size, Loopback, time.Minute))(t)
	defer g.Close()
	switch work := fields[0]; work {
	case "staged":
		g.staged = true
	case "nccl", "missing":
		useNCCL(t, g, work == "missing")
	case "speed":
		measureExchange(t, g)
		return
	}
	if fields[0] == "end" {
		breakPipe(t)
		for range 3 {
			_, err := g.Gather([]byte{byte(rank)})
			switch {
			case rank == 1:
				os.Exit(3)
			case errors.Is(err, ErrPeer):
				return
			}
		}
		t.Error("the end of rank 1 was not noticed")
		return
	}
	checkExchange(t, g)
	checkBroadcast(t, g)
	for _, n := range []int{0, 1, 1000} {
		got := must.Get(g.Gather([]byte(strings.Repeat(string(rune('a'+rank)), n))))(t)
		for r, text := range got {
			if string(text) != strings.Repeat(string(rune('a'+r)), n) {
				t.Errorf("gather: got %q of rank %d", text, r)
			}
		}
	}
	checkListeners(t)
}

// breakPipe sends SIGPIPE to the threads of Gloo, as a write to the connection of a dead rank does.
func breakPipe(t *testing.T) {
	for sent, end := false, time.Now().Add(time.Minute); !sent; {
		for _, name := range must.Get(filepath.Glob("/proc/self/task/*/comm"))(t) {
			if text, _ := os.ReadFile(name); strings.HasPrefix(string(text), "pt_gloo") {
				thread := must.Get(strconv.Atoi(filepath.Base(filepath.Dir(name))))(t)
				must.OK(t, unix.Tgkill(os.Getpid(), thread, unix.SIGPIPE))
				sent = true
			}
		}
		if time.Now().After(end) {
			t.Fatal("Gloo has no thread of a known name")
		}
	}
}

// checkExchange sends (from + 2·to) mod 4 elements, each 100·from + 10·to + index, among them none.
func checkExchange(t *testing.T, g *Group) {
	count := func(from, to int) int64 { return int64((from + 2*to) % 4) }
	for _, kind := range []DType{Float32, BFloat16} {
		work(t, func(s *Scope) {
			var send, want []float32
			var sendN, recvN []int64
			for r := range g.Size {
				sendN, recvN = append(sendN, count(g.Rank, r)), append(recvN, count(r, g.Rank))
				for i := range count(g.Rank, r) {
					send = append(send, float32(100*g.Rank+10*r)+float32(i))
				}
				for i := range count(r, g.Rank) {
					want = append(want, float32(100*r+10*g.Rank)+float32(i))
				}
			}
			recv := s.Zeros(kind, int64(len(want)))
			s.Exchange(g, recv, s.As(s.FromFloat32(send, int64(len(send))), kind), recvN, sendN)
			// all values are small enough for bfloat16's 8 bits after rounding both sides alike
			expect := s.Float32s(s.As(s.As(s.FromFloat32(want, int64(len(want))), kind), Float32))
			if got := s.Float32s(s.As(recv, Float32)); s.Err() == nil && !reflect.DeepEqual(got, expect) {
				t.Errorf("exchange of %s: got %v, want %v", kind, got, expect)
			}
		})
	}
	err := Do(t.Context(), CPU, func(s *Scope) error {
		x := s.Zeros(Float32, 4)
		s.Exchange(g, x, x, make([]int64, g.Size), make([]int64, g.Size))
		return nil
	})
	must.Match(t, err, "elements for a tensor")
}

func checkBroadcast(t *testing.T, g *Group) {
	for root := range g.Size {
		work(t, func(s *Scope) {
			x := s.Full(Float32, float64(g.Rank), 7)
			s.Broadcast(g, s.Narrow(x, 0, 2, 3), root)
			own, theirs := float32(g.Rank), float32(root)
			want := []float32{own, own, theirs, theirs, theirs, own, own}
			if got := s.Float32s(x); s.Err() == nil && !reflect.DeepEqual(got, want) {
				t.Errorf("broadcast of rank %d: got %v, want %v", root, got, want)
			}
		})
	}
}

// checkListeners checks that the process listens on the loopback address only.
func checkListeners(t *testing.T) {
	own := map[string]bool{}
	for _, fd := range must.Get(os.ReadDir("/proc/self/fd"))(t) {
		if link, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil {
			if inode, ok := strings.CutPrefix(link, "socket:["); ok {
				own[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	listening := 0
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, _ := os.ReadFile(table) // there may be no IPv6
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" || !own[f[9]] {
				continue
			}
			listening++
			if !strings.HasPrefix(f[1], "0100007F:") {
				t.Errorf("%s: listens on %s, want 127.0.0.1", table, f[1])
			}
		}
	}
	if listening == 0 {
		t.Error("found no listening socket of this process")
	}
}
