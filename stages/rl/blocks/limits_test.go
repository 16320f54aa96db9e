package blocks

import (
	"math"
	"testing"

	"github.com/hashicorp/hcl/v2"
)

// Below a thousandth, log-probabilities are not numbers, or 1e23.
func TestTemperaturesBelowAThousandthAreRefused(t *testing.T) {
	for temperature, accepted := range map[float64]bool{0.001: true, 1: true, 0.00099: false, 1e-9: false, 1e-30: false,
		-1: false, math.Inf(1): false, math.NaN(): false} {
		for _, greedy := range []bool{false, true} {
			if got := CheckTemperature(temperature, greedy, hcl.Range{}); got.HasErrors() == accepted {
				t.Errorf("%v: got %v", temperature, got)
			}
		}
	}
	if !CheckTemperature(0, false, hcl.Range{}).HasErrors() || CheckTemperature(0, true, hcl.Range{}).HasErrors() {
		t.Error("0 is for greedy decoding only")
	}
}
