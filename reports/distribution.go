package reports

import "math"

// NormalQuantile is the z with P(Z <= z) = p for a standard normal Z; ±Inf at p = 1 and 0.
func NormalQuantile(p float64) float64 {
	switch {
	case p > 0.5:
		return -NormalQuantile(1 - p)
	case p == 0.5:
		return 0
	case p <= 0:
		return math.Inf(-1)
	}
	z := -math.Sqrt2 * math.Erfinv(1-2*p)
	if math.IsInf(z, 0) { // 1-2p rounds to 1: start from the tail's leading term
		z = -math.Sqrt(-2 * math.Log(p))
	}
	for range 4 { // Newton steps on the lower tail, where Erfc keeps its relative precision
		density := math.Exp(-z*z/2) / math.Sqrt(2*math.Pi)
		z -= (math.Erfc(-z/math.Sqrt2)/2 - p) / density
	}
	return z
}

// TQuantile is the t with P(T <= t) = p for Student's distribution with df > 0 degrees of freedom (df need not be
// whole).
func TQuantile(p, df float64) float64 {
	switch {
	case p == 0.5:
		return 0
	case p < 0.5:
		return -TQuantile(1-p, df)
	case p >= 1:
		return math.Inf(1)
	}
	// With x = df/(df+t²) the upper tail is I_x(df/2, 1/2)/2, so t follows from the x of that tail. Where x is close
	// to 1, t² = df(1-x)/x loses digits: solve for y = 1-x through the mirrored function there.
	tail := 2 * (1 - p)
	if y := betaQuantile(1-tail, 0.5, df/2); y < 0.5 {
		return math.Sqrt(df * y / (1 - y))
	}
	x := betaQuantile(tail, df/2, 0.5)
	return math.Sqrt(df * (1 - x) / x)
}

// twoSidedT is P(|T| >= |t|) for Student's distribution with df degrees of freedom.
func twoSidedT(t, df float64) float64 {
	if math.IsInf(t, 0) {
		return 0
	}
	return betaCDF(df/(df+t*t), df/2, 0.5)
}

// betaCDF is the regularised incomplete beta function I_x(a, b), by Lentz's evaluation of its continued fraction
// (DLMF 8.17.22) on the side where that converges fast.
func betaCDF(x, a, b float64) float64 {
	switch {
	case math.IsNaN(x):
		return x
	case x <= 0:
		return 0
	case x >= 1:
		return 1
	case x > (a+1)/(a+b+2):
		return 1 - betaCDF(1-x, b, a)
	}
	const tiny = 1e-300
	c, d := 1.0, 1-(a+b)*x/(a+1)
	if d == 0 {
		d = tiny
	}
	d = 1 / d
	f := d
	for m := 1.0; m < 10_000; m++ {
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		odd := -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		var step float64
		for _, term := range [2]float64{even, odd} {
			if d = 1 + term*d; d == 0 {
				d = tiny
			}
			if c = 1 + term/c; c == 0 {
				c = tiny
			}
			d = 1 / d
			step = c * d
			f *= step
		}
		if math.Abs(step-1) < 1e-16 {
			break
		}
	}
	return betaWeight(x, a, b) / a * f
}

// betaWeight is x^a (1-x)^b / B(a, b). Written with the deviations of x from a/(a+b), so that large a and b do not
// cost digits (Loader 2000, for the binomial).
func betaWeight(x, a, b float64) float64 {
	n := a + b
	log := a*math.Log(x*n/a) + b*math.Log((1-x)*n/b) + stirlingRest(n) - stirlingRest(a) - stirlingRest(b)
	return math.Exp(log) * math.Sqrt(a*b/(2*math.Pi*n))
}

// stirlingRest is what Stirling's formula lacks: ln Γ(z) = (z-½) ln z - z + ½ ln 2π + stirlingRest(z).
func stirlingRest(z float64) float64 {
	shift := 0.0
	for z < 16 {
		shift += (z+0.5)*math.Log1p(1/z) - 1
		z++
	}
	w := 1 / (z * z)
	return shift + (1.0/12-w*(1.0/360-w*(1.0/1260-w*(1.0/1680-w*(1.0/1188-w*691.0/360360)))))/z
}

// betaQuantile is the x with I_x(a, b) = p, by bisection down to neighbouring numbers.
func betaQuantile(p, a, b float64) float64 {
	if p <= 0 {
		return 0
	}
	if p >= 1 {
		return 1
	}
	low, high := 0.0, 1.0
	for range 1100 { // x may be as small as the smallest number
		mid := low + (high-low)/2
		if mid <= low || mid >= high {
			break
		}
		if betaCDF(mid, a, b) < p {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}
