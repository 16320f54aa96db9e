package py

import "math/bits"

// Random is CPython's random.Random: MT19937 and its methods for integers and floats. Blocks of 624
// outputs are immutable, so clones share the current block.
type Random struct {
	state *[624]uint32
	next  int
}

// NewRandom seeds like random.Random(seed), which uses the absolute value.
func NewRandom(seed int64) *Random {
	key := uint64(max(seed, -seed))
	words := []uint32{uint32(key)}
	if key>>32 != 0 {
		words = append(words, uint32(key>>32))
	}
	return &Random{state: twist(initByArray(words))}
}

func initByArray(key []uint32) *[624]uint32 {
	var mt [624]uint32
	mt[0] = 19650218
	for i := uint32(1); i < 624; i++ {
		mt[i] = 1812433253*(mt[i-1]^mt[i-1]>>30) + i
	}
	i, j := 1, 0
	for range 624 {
		mt[i] = (mt[i] ^ (mt[i-1]^mt[i-1]>>30)*1664525) + key[j] + uint32(j)
		i++
		j++
		if i >= 624 {
			mt[0] = mt[623]
			i = 1
		}
		if j >= len(key) {
			j = 0
		}
	}
	for range 623 {
		mt[i] = (mt[i] ^ (mt[i-1]^mt[i-1]>>30)*1566083941) - uint32(i)
		i++
		if i >= 624 {
			mt[0] = mt[623]
			i = 1
		}
	}
	mt[0] = 0x80000000
	return &mt
}

// twist returns the block after old.
func twist(old *[624]uint32) *[624]uint32 {
	mt := *old
	for i := range 624 {
		y := mt[i]&0x80000000 | mt[(i+1)%624]&0x7fffffff
		v := mt[(i+397)%624] ^ y>>1
		if y&1 != 0 {
			v ^= 0x9908b0df
		}
		mt[i] = v
	}
	return &mt
}

// Clone returns a generator that continues with the same numbers.
func (r *Random) Clone() *Random {
	c := *r
	return &c
}

func (r *Random) uint32() uint32 {
	if r.next == 624 {
		r.state = twist(r.state)
		r.next = 0
	}
	y := r.state[r.next]
	r.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// GetRandBits returns k random bits, 0 <= k <= 64; draws of more than 32 bits use two words, least
// significant first.
func (r *Random) GetRandBits(k int) uint64 {
	switch {
	case k <= 0:
		return 0
	case k <= 32:
		return uint64(r.uint32() >> (32 - k))
	}
	low := uint64(r.uint32())
	return low | uint64(r.uint32()>>(64-k))<<32
}

// below returns an integer in [0, n) by rejection; n must be positive.
func (r *Random) below(n uint64) uint64 {
	k := bits.Len64(n)
	for {
		if v := r.GetRandBits(k); v < n {
			return v
		}
	}
}

// RandInt is random.randint(a, b); it returns a if the range is empty.
func (r *Random) RandInt(a, b int64) int64 {
	if b < a {
		return a
	}
	return a + int64(r.below(uint64(b-a)+1))
}

// Random returns a float in [0, 1) with 53 bits.
func (r *Random) Random() float64 {
	a, b := r.uint32()>>5, r.uint32()>>6
	return (float64(a)*67108864 + float64(b)) / 9007199254740992
}

func (r *Random) Uniform(a, b float64) float64 { return a + float64((b-a)*r.Random()) }

// Shuffle permutes n elements like random.shuffle.
func (r *Random) Shuffle(n int, swap func(i, j int)) {
	for i := n - 1; i > 0; i-- {
		swap(i, int(r.below(uint64(i)+1)))
	}
}
