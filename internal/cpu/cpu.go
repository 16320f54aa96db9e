// Package cpu chooses the instruction set of the CPU kernels (stages/internal/torch).
package cpu

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/cpu"
)

// Set is an instruction set for which the kernels are compiled. Results are identical with both.
type Set string

// AVX2 includes FMA and BMI2; AVX512 is AVX-512 F, BW, DQ and VL.
const (
	AVX2   Set = "avx2"
	AVX512 Set = "avx512"
)

// Variable limits the instruction set, for tests and measurements.
const Variable = "RCGRPO_CPU"

// Kernels returns the widest instruction set that this processor has and that Variable admits. The error is a
// sentence for users.
func Kernels() (Set, error) {
	x := cpu.X86
	avx2 := x.HasAVX2 && x.HasFMA && x.HasBMI2
	return choose(os.Getenv(Variable), avx2, avx2 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL)
}

func choose(limit string, avx2, avx512 bool) (Set, error) {
	switch {
	case !avx2:
		return "", errors.New("tensors need a processor with AVX2 and FMA (sold since 2013), which this machine does not " +
			"have; use another machine")
	case limit == "" && avx512 || Set(limit) == AVX512 && avx512:
		return AVX512, nil
	case limit == "" || Set(limit) == AVX2:
		return AVX2, nil
	case Set(limit) == AVX512:
		return "", fmt.Errorf("%s is avx512, but this processor has no AVX-512; unset it, or set it to avx2", Variable)
	}
	return "", fmt.Errorf("%s is %q; the values are avx2 and avx512, and without one the widest is used", Variable, limit)
}
