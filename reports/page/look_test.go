package page

import (
	"math"
	"slices"
	"strconv"
	"testing"

	"rcgrpo/internal/must"
)

// contrast is the WCAG 2 contrast ratio of two colours "#rrggbb".
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	luminance := func(colour string) float64 {
		sum := 0.0
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			v := must.Get(strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8))(t)
			c := float64(v) / 255
			if c <= 0.03928 {
				c /= 12.92
			} else {
				c = math.Pow((c+0.055)/1.055, 2.4)
			}
			sum += weight * c
		}
		return sum
	}
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func TestColoursDifferAndHaveContrast(t *testing.T) {
	if len(lightColours) != len(darkColours) || len(LightSteps) != len(darkSteps) {
		t.Fatal("a palette has another length on dark ground")
	}
	for ground, own := range map[string][]string{"#ffffff": lightColours, "#12161c": darkColours} {
		colours := slices.Concat(own, divergingColours) // the dark page replaces no colour of maps
		for i, colour := range colours {
			if got := contrast(t, colour, ground); got < 3 {
				t.Errorf("%s on %s: contrast %.2f, want at least 3", colour, ground, got)
			}
			if slices.Contains(colours[:i], colour) || slices.Contains(LightSteps, colour) {
				t.Errorf("%s on %s occurs twice", colour, ground)
			}
		}
	}
}
