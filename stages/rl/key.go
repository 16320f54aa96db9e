package rl

// A Stream gives the random numbers of one episode by what they decide, not by when they are drawn: the number at a
// position is a function of the names the stream was made of. So the order in which episodes advance, how they are
// batched, and whether a run was interrupted change nothing.
type Stream uint64

// Purposes keep streams of the same names apart.
const (
	forSampling uint64 = 0x73616d706c65 // "sample"
	forTokens   uint64 = 0x746f6b656e   // "token"
	forSpoiling uint64 = 0x73706f696c   // "spoil"
	forDropout  uint64 = 0x64726f70     // "drop"
)

// Sampling is the stream of one member of a group: its number at position i decides the i-th token of the episode.
func Sampling(seed uint64, update int, task string, member int) Stream {
	return newStream(forSampling, seed, uint64(update), hash(task), uint64(member))
}

// Dropping is the stream of what dropout leaves out in an update. It is named further by what is left out.
func Dropping(seed uint64, update int) Stream { return newStream(forDropout, seed, uint64(update)) }

// Uniform is the uniform number in [0,1) that decides one sampled token. It names the token by seed, update, task, member of
// the group and position in the episode's ids.
func Uniform(seed uint64, update int, task string, member, position int) float64 {
	return Sampling(seed, update, task, member).At(position)
}

// At is the uniform number in [0,1) at a position: a multiple of 2^-53.
func (s Stream) At(position int) float64 {
	return float64(s.Bits(position)>>11) / (1 << 53)
}

// Bits are 64 random bits at a position.
func (s Stream) Bits(position int) uint64 { return mix(uint64(s) + golden*(uint64(position)+1)) }

// With is the stream named by one part more.
func (s Stream) With(part uint64) Stream { return Stream(mix(uint64(s) ^ mix(part+golden))) }

const golden = 0x9E3779B97F4A7C15

func newStream(parts ...uint64) Stream {
	s := Stream(golden)
	for _, p := range parts {
		s = s.With(p)
	}
	return s
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// hash is FNV-1a over the bytes of a name.
func hash(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}
