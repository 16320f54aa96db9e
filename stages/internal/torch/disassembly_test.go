//go:build libtorch

package torch

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

// GCC compiles vectors that are wider than the registers of the instruction set, and loops that need more of them than
// there are, without a warning; such a loop takes up to twenty times as long.
func TestInnerLoopsOfAVX2KernelsKeepVectorsInRegisters(t *testing.T) {
	if _, err := exec.LookPath("objdump"); err != nil {
		t.Skip("objdump is not installed")
	}
	output := func(name string, args ...string) string {
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	object := filepath.Join(t.TempDir(), "kernels.o")
	flags := strings.Fields(output("go", "list", "-tags", "libtorch", "-f", `{{join .CgoCFLAGS " "}}`, "."))
	compiler := strings.Fields(output("go", "env", "CC"))
	output(compiler[0], slices.Concat(compiler[1:], flags, []string{"-fPIC", "-c", "kernels_avx2.c", "-o", object})...)
	loops, faults := vectorLoops(t, output("objdump", "-d", "--no-show-raw-insn", object))
	if loops < 50 {
		t.Errorf("found %d inner loops with vectors, want at least 50", loops)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

var (
	function    = regexp.MustCompile(`^[0-9a-f]+ <(.+)>:$`)
	instruction = regexp.MustCompile(`^\s+([0-9a-f]+):\s+(.+)$`)
	jump        = regexp.MustCompile(`^j\w+\s+([0-9a-f]+) <`)
	// A vector, or a part of one, that is stored on the stack or moves between a general register and a vector. A loop may
	// read constants from the stack, and broadcast a number of a general register with vmovd.
	spill = regexp.MustCompile(`^(vmov\w+\s+%ymm\d+,[-0-9a-fx]*\(%r[sb]p|vpinsr|vpextr|` +
		`vmov[dq]\s+%xmm\d+,%[re]|vmovq\s+%r\w+,%xmm)`)
)

// vectorLoops counts the innermost loops of a disassembly that contain vectors of AVX2, and describes the faulty ones.
func vectorLoops(t *testing.T, disassembly string) (loops int, faults []string) {
	var name string
	var text []string
	at, from := map[int64]int{}, 0 // instructions by address; the first one that can be in the next innermost loop
	for line := range strings.Lines(disassembly) {
		line = strings.TrimSpace(line)
		if m := function.FindStringSubmatch(line); m != nil {
			name, text, from = m[1], nil, 0
			clear(at)
		}
		m := instruction.FindStringSubmatch(" " + line)
		if m == nil {
			continue
		}
		at[must.Get(strconv.ParseInt(m[1], 16, 64))(t)] = len(text)
		text = append(text, m[2])
		back := jump.FindStringSubmatch(m[2])
		if back == nil {
			continue
		}
		start, known := at[must.Get(strconv.ParseInt(back[1], 16, 64))(t)]
		if !known || start < from {
			continue // forward, or around another loop
		}
		loop := text[start:]
		from = len(text)
		if !slices.ContainsFunc(loop, func(s string) bool { return strings.Contains(s, "%ymm") }) {
			continue
		}
		loops++
		if i := slices.IndexFunc(loop, spill.MatchString); i >= 0 {
			faults = append(faults, fmt.Sprintf("%s: a loop of %d instructions contains %q", name, len(loop), loop[i]))
		}
	}
	return loops, faults
}
