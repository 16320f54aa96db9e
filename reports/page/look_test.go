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
	for ground, colours := range map[string][]string{"#ffffff": lightColours, "#12161c": darkColours} {
		for i, colour := range colours {
			if got := contrast(t, colour, ground); got < 3 {
				t.Errorf("%s on %s: contrast %.2f, want at least 3", colour, ground, got)
			}
			if slices.Contains(colours[:i], colour) {
				t.Errorf("%s on %s occurs twice", colour, ground)
			}
		}
	}
}

func TestTheColoursOfAMapHaveContrastAndAreNotThoseOfArms(t *testing.T) {
	for _, colour := range divergingColours {
		if slices.Contains(slices.Concat(lightColours, LightSteps), colour) {
			t.Errorf("%s is also a colour of arms, which the dark page replaces", colour)
		}
		for name, ground := range map[string]string{"light": "#ffffff", "dark": "#12161c"} {
			if c := contrast(t, colour, ground); c < 3 {
				t.Errorf("%s has a contrast of %.1f on the %s background, want 3", colour, c, name)
			}
		}
	}
}
