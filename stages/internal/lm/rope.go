//go:build libtorch

package lm

import "math"

// frequencies returns the rotary angles per position, one per pair of a head's halves, rounded to float32 like
// the reference: the rounding has an effect at far positions.
func (c Config) frequencies() []float32 {
	f := make([]float32, c.HeadDim/2)
	for i := range f {
		f[i] = c.RopeScaling.scale(1 / float32(math.Pow(c.RopeBase, float64(2*i)/float64(c.HeadDim))))
	}
	return f
}

func (r RopeScaling) scale(f float32) float32 {
	if r.Factor == 0 {
		return f
	}
	original, wavelength := float32(r.Original), 2*math.Pi/f
	switch {
	case wavelength < original/float32(r.High):
		return f
	case wavelength > original/float32(r.Low):
		return f / float32(r.Factor)
	}
	smooth := (original/wavelength - float32(r.Low)) / float32(r.High-r.Low)
	return (1-smooth)*f/float32(r.Factor) + smooth*f
}
