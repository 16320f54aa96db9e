package checkpoint

import (
	"fmt"
	"strings"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/rl/blocks"
)

// ConcurrentEpisodes is the number of episodes that every stage samples at once on the CPU, at most. It is one constant
// because the number of rows changes the rounding of products in bfloat16. In float32 the results do not depend on it.
// A GPU samples as many episodes as its memory has room for, at most lm.MaxSlots.
const ConcurrentEpisodes = 64

// cpu is the device of a job without a GPU.
const cpu = "cpu"

// SamplerUse returns the memory use of a stage that only samples.
func SamplerUse(policy artifact.Ref, limits *blocks.Limits, a blocks.Arithmetic) (artifact.Ref,
	func(lm.Config) lm.Use) {
	return policy, func(c lm.Config) lm.Use {
		return lm.Use{Slots: lm.MaxSlots, Context: min(limits.Context, c.MaxPosition),
			Precision: lm.Precision(a.Precision)}
	}
}

// MemoryUser is a stage whose memory follows from the shape of its policy's model.
type MemoryUser interface {
	MemoryUse() (policy artifact.Ref, use func(lm.Config) lm.Use)
}

// planMemory logs the memory that a stage will use with the policy in dir, part by part, and fails if the device has
// less. It reads no weights.
func planMemory(job *engine.Job, dir string, use func(lm.Config) lm.Use) (lm.Use, error) {
	c, err := lm.ReadConfig(dir)
	if err != nil {
		return lm.Use{}, err
	}
	have := memoryOf(job)
	u := have.Place(c, use(c), job.Device != cpu, job.Ranks, job.Threads)
	if err := RefuseMemory(c, u, have); err != nil {
		return lm.Use{}, err
	}
	of := ""
	if have.Device > 0 {
		of = " of " + lm.BytesText(have.Device)
	}
	parts := c.Memory(u)
	job.Logf("memory on %s%s: %s", job.Device, of, lm.MemoryText(parts))
	if u.Train && u.Context > u.Pass {
		if err := PlanPass(job, c, u, u.Context); err != nil {
			job.Logf("memory: an episode of the maximal length would fail the stage: %v", err)
		}
	}
	return u, nil
}

// PlanPass fails if a trajectory that is longer than a pass does not fit in a pass of its own.
func PlanPass(job *engine.Job, c lm.Config, u lm.Use, tokens int) error {
	if tokens <= u.Pass {
		return nil
	}
	u.Pass, u.Alone = tokens, true
	if err := RefuseMemory(c, u, memoryOf(job)); err != nil {
		return fmt.Errorf("a trajectory of %d tokens needs a pass of its own, independent of micro_batch: %w", tokens, err)
	}
	return nil
}

// Memory is the memory that a stage may use, in bytes: on each of its devices, and of the host beside GPUs. 0 is
// unknown.
type Memory struct{ Device, Host int64 }

func memoryOf(job *engine.Job) Memory {
	device, host := job.Memory()
	return Memory{device, host}
}

// Place completes a use for one of several ranks: its device, its threads, and the episodes sampled at once.
func (m Memory) Place(c lm.Config, u lm.Use, gpu bool, ranks, threads int) lm.Use {
	u.GPU, u.Ranks, u.Threads = gpu, ranks, threads
	if gpu && m.Device > 0 && u.Slots > 0 {
		u = c.FitSlots(u, m.Device)
	} else {
		u.Slots = min(u.Slots, ConcurrentEpisodes)
	}
	return u
}

// fits reports whether the use needs at most this memory. All ranks of a stage share the memory of the host.
func (m Memory) fits(c lm.Config, u lm.Use) bool {
	parts := c.Memory(u)
	return (m.Device <= 0 || lm.TotalMemory(parts) <= m.Device) &&
		(m.Host <= 0 || lm.HostMemory(parts)*int64(max(u.Ranks, 1)) <= m.Host)
}

// RefuseMemory returns the error of a stage that needs more memory; it names the settings with which the stage would
// fit. An adapter (lora) is not suggested, because it is another method with another learning rate.
func RefuseMemory(c lm.Config, u lm.Use, have Memory) error {
	if have.fits(c, u) {
		return nil
	}
	parts := c.Memory(u)
	var ways []string
	for _, w := range waysToFit(c, u, have) {
		ways = append(ways, fmt.Sprintf("%s (%s)", w.text, lm.BytesText(lm.TotalMemory(c.Memory(w.use)))))
	}
	if need := lm.TotalMemory(parts); need > have.Device {
		whole := need
		if !u.GPU {
			whole *= int64(max(u.Ranks, 1)) // each process has its share
		}
		ways = append(ways, fmt.Sprintf("%s of memory, set by `resources { memory }`, or on a GPU by `gpu_memory`",
			lm.BytesText(whole)))
	} else {
		ways = append(ways, fmt.Sprintf("%s of the host's memory, set by `resources { memory }`",
			lm.BytesText(lm.HostMemory(parts)*int64(max(u.Ranks, 1)))))
	}
	has := lm.BytesText(have.Device)
	if u.Ranks > 1 {
		has += fmt.Sprintf(" on each of %d ranks", u.Ranks)
	}
	if have.Host > 0 && lm.HostMemory(parts) > 0 {
		has += " and " + lm.BytesText(have.Host) + " of the host"
	}
	return fmt.Errorf("the stage does not fit: it has %s and needs %s. It would fit with %s", has,
		lm.MemoryText(parts), strings.Join(ways, ", or with "))
}

// way is a change of settings with which a stage fits.
type way struct {
	text string
	use  lm.Use
}

// waysToFit returns the single changes that suffice, otherwise the first combination of consecutive changes that
// does.
func waysToFit(c lm.Config, u lm.Use, have Memory) (ways []way) {
	fits := func(u lm.Use) bool { return have.fits(c, u) }
	shrink := func(u *lm.Use, size *int, least int) { // halve until it fits
		for !fits(*u) && *size/2 >= least {
			*size /= 2
		}
	}
	changes := []struct {
		applies bool
		make    func(u *lm.Use) (text string)
	}{
		{u.Pass > 0 && !u.Recompute, func(u *lm.Use) string {
			u.Recompute = true
			return "recompute = true"
		}},
		{u.Pass > 0 && !u.Alone, func(u *lm.Use) string {
			shrink(u, &u.Pass, 16)
			return fmt.Sprintf("micro_batch = %d", u.Pass)
		}},
		{u.Pass > 0 && u.Alone && u.Slots == 0, func(u *lm.Use) string {
			shrink(u, &u.Pass, 256)
			return fmt.Sprintf("context = %d", u.Pass)
		}},
		{u.Slots > 0, func(u *lm.Use) string {
			shrink(u, &u.Context, 256)
			return fmt.Sprintf("limits { context = %d }", u.Context)
		}},
		{u.Precision != lm.BF16, func(u *lm.Use) string {
			u.Precision = lm.BF16
			return `precision = "bf16"`
		}},
		{u.GPU && u.Train && u.Host != lm.HostMoments && u.Host != lm.HostAll, func(u *lm.Use) string {
			u.Host = lm.HostMoments
			return `optimizer { host = "moments" }`
		}},
		{u.GPU && u.Train && u.Adapter == 0 && u.Precision == lm.BF16 && u.Host != lm.HostAll, func(u *lm.Use) string {
			u.Host = lm.HostAll
			return `optimizer { host = "all" }`
		}},
	}
	together := way{use: u}
	for _, change := range changes {
		if !change.applies {
			continue
		}
		alone := u
		if text := change.make(&alone); fits(alone) {
			ways = append(ways, way{text, alone})
		}
		if !fits(together.use) {
			text := change.make(&together.use)
			together.text = strings.TrimPrefix(together.text+" and "+text, " and ")
		}
	}
	if len(ways) == 0 && fits(together.use) {
		ways = append(ways, together)
	}
	return ways
}
