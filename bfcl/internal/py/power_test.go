package py

import (
	"math"
	"testing"
)

// The expected values are CPython's on glibc 2.36; a comment gives its value where it differs.
func TestPowIsCorrectlyRounded(t *testing.T) {
	for _, tc := range []struct{ x, y, want float64 }{
		{47.985, 2, 2302.5602249999997}, // x*x rounded once; C's pow gives 2302.560225
		{-70.865, 2, 5021.848225},       // C: 5021.848224999999
		{1.5, -600, 2.214341332527788e-106},
		{1.5, 1750, 1.4444527745742028e+308},
		{5e-324, 0.62875, 5.262802871949065e-204}, // math.Pow is off by a factor of 50,000
		{1e-300, 1.05, 1e-315},                    // subnormal
		{1e-300, 1.07, 1e-321},
		{1.8683756752980500, -832.3307484913478, 1.127185727646957e-226},
		{1.0000001, 1e9, 2.6881038582144647e+43},
		{3, 0.1, 1.1161231740339044},
		{-2.5, 3, -15.625},
		{-2.5, -1023, math.Copysign(0, -1)},
		{10, 400, math.Inf(1)},
		{7, 1e-300, 1},
		{0.5, 1e300, 0},
		{1, math.Inf(1), 1},
		{math.Inf(-1), 3, math.Inf(-1)},
	} {
		got := pow(tc.x, tc.y)
		if got != tc.want || math.Signbit(got) != math.Signbit(tc.want) {
			t.Errorf("pow(%v, %v): got %v, want %v", tc.x, tc.y, got, tc.want)
		}
	}
	if got := pow(math.NaN(), 2); !math.IsNaN(got) {
		t.Errorf("pow(nan, 2): got %v", got)
	}
}

func FuzzPowIsNearItsDefinition(f *testing.F) {
	f.Add(2.0, 0.5)
	f.Add(3.0, 1e20)
	f.Fuzz(func(t *testing.T, x, y float64) {
		got, want := pow(x, y), math.Exp(y*math.Log(x))
		if !(x >= 0x1p-1022) || // Go's own functions are far off below
			math.IsInf(x, 0) || math.IsInf(y, 0) || math.IsNaN(y) || math.Abs(y*math.Log(x)) > 700 {
			return
		}
		if diff := math.Abs(got - want); !(diff <= 1e-9*want) {
			t.Errorf("pow(%v, %v): got %v, the exponential of the logarithm is %v", x, y, got, want)
		}
	})
}
