package rl

import (
	"hash/fnv"
	"io"
)

// A Stream is a sequence of random numbers addressed by name and position: each number is a function of the names
// of the stream and of the position, independent of when it is drawn. So the order of episodes, their batching
// and interruptions have no effect on the numbers.
//
// The random numbers of an episode are functions of the seed of the stage, the update (from 1; 0 outside of updates),
// the id of the task, such as multi_turn_base_7, and the member of the group (from 0). In update 12, member 3 of the
// group of task T has
//
//	Sampling(seed, 12, T, 3).At(i)                  the token at position i of its sequence, prompt included
//	Requested(seed, rollout, prompt, n).At(i)       with an agent, in place of Sampling: the tokens of each reply
//	DrawTokens(allocation, p, G, seed, 12, T)[3]    its reward token (reward_tokens.go), in rc-grpo; one
//	                                                stream for the group
//	EnvironmentSeed(seed, 12, T)                    the seed of a user's program, equal in the group
//
// The environments of the benchmark and the drills ignore their seed. Number k of the tasks of a training, counted from
// 0, is at place k mod N of pass P = k / N; the order of these N tasks is by Job.Rand("order of tasks, pass P")
// (course.at, stages/grpo/course.go; Job.Rand, engine/job.go). Update 12 with batch B has k from 11 B to 12 B - 1, or
// later tasks where groups were replaced before. If a task has a second group in an update, its
// members count from G and its reward tokens are those of "T, group 2": groupSource.rollouts (stages/grpo/groups.go).
type Stream uint64

// The first part of a stream's name is its purpose, so that streams for different purposes differ although their
// other parts are equal.
const (
	forSampling uint64 = 0x73616d706c65 // "sample"
	forTokens   uint64 = 0x746f6b656e   // "token"
	forSpoiling uint64 = 0x73706f696c   // "spoil"
	forServing  uint64 = 0x7365727665   // "serve"
	forEnv      uint64 = 0x656e76       // "env"
	forAgent    uint64 = 0x6167656e74   // "agent"
)

// Sampling returns the stream of one member of a group. Its number at position i decides the token at position i of
// the sequence, whose first are the prompt's.
func Sampling(seed uint64, update int, task string, member int) Stream {
	return newStream(forSampling, seed, uint64(update), hash(task), uint64(member))
}

// EnvironmentSeed returns the seed of an episode's environment, equal for all members of a group. It has 31 bits, which
// every language reads as an integer.
func EnvironmentSeed(seed uint64, update int, task string) uint64 {
	return newStream(forEnv, seed, uint64(update), hash(task)).Bits(0) >> 33
}

// Requested returns the stream of a reply to an agent, the n-th of its episode to a prompt. Its number at position i
// decides the i-th token of prompt and reply.
func Requested(seed uint64, ask Rollout, prompt []int32, n int) Stream {
	s := newStream(forAgent, seed, uint64(ask.Update), hash(ask.Task.ID), uint64(ask.Member), uint64(n))
	for _, id := range prompt {
		s = s.With(uint64(uint32(id)))
	}
	return s
}

// Serving returns the stream of one choice of a request. Its number at position i decides the i-th token of prompt and
// reply.
func Serving(seed uint64, choice int) Stream { return newStream(forServing, seed, uint64(choice)) }

// At returns the number in [0,1) at a position, a multiple of 2^-53.
func (s Stream) At(position int) float64 {
	return float64(s.Bits(position)>>11) / (1 << 53)
}

// Bits returns 64 random bits at a position.
func (s Stream) Bits(position int) uint64 { return mix(uint64(s) + golden*(uint64(position)+1)) }

// With returns the stream whose name is extended by part.
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

func hash(name string) uint64 {
	h := fnv.New64a()
	io.WriteString(h, name)
	return h.Sum64()
}
