package cpu

import (
	"testing"

	"rcgrpo/internal/must"
)

func TestTheWidestAdmittedInstructionSetIsChosen(t *testing.T) {
	for _, c := range []struct {
		limit        string
		avx2, avx512 bool
		want         Set
		refused      string
	}{
		{"", true, true, AVX512, ""},
		{"", true, false, AVX2, ""},
		{"avx2", true, true, AVX2, ""},
		{"avx512", true, true, AVX512, ""},
		{"avx512", true, false, "", "this processor has no AVX-512"},
		{"sse", true, true, "", `RCGRPO_CPU is "sse"; the values are avx2 and avx512`},
		{"", false, false, "", "need a processor with AVX2 and FMA"},
		{"avx2", false, false, "", "need a processor with AVX2 and FMA"},
	} {
		got, err := choose(c.limit, c.avx2, c.avx512)
		if got != c.want {
			t.Errorf("%+v: got %q (%v)", c, got, err)
		}
		if c.refused != "" {
			must.Match(t, err, c.refused)
		}
	}
}
