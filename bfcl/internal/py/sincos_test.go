package py

import (
	"math"
	"testing"
)

// The wanted values are those of glibc's sin and cos, which agree with 100-digit arithmetic rounded once.
func TestSinCosNearMultiplesOfAQuarterTurn(t *testing.T) {
	for _, tc := range []struct{ x, sin, cos float64 }{
		{math.Pi / 2, 1, 6.123233995736766e-17},
		{math.Pi, 1.2246467991473532e-16, -1},
		{-math.Pi / 2, -1, 6.123233995736766e-17},
		{3 * math.Pi / 2, -1, -1.8369701987210297e-16},
		{1, 0.8414709848078965, 0.5403023058681398},
		{1e-200, 1e-200, 1},
		{1e300, -0.8178819121159085, -0.5753861119575491},
		{0, 0, 1},
	} {
		if sin, cos := sinCos(tc.x); sin != tc.sin || cos != tc.cos {
			t.Errorf("sinCos(%v): got %v, %v, want %v, %v", tc.x, sin, cos, tc.sin, tc.cos)
		}
	}
}
