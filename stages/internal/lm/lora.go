//go:build libtorch

package lm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rcgrpo/stages/internal/torch"
)

// LoRA is the shape of a low-rank adapter: W + (Alpha/Rank)·B·A for the target projections of every layer
// (Hu et al. 2021, eq. 3), A of shape [Rank, in] and B of shape [out, Rank].
type LoRA struct {
	Rank    int
	Alpha   float64
	Targets []string // names of projections; Projections for all
}

// Projections are the matrices that an adapter may change, by the names of the files.
var Projections = []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}

// Check reports the first value that no adapter can have.
func (c LoRA) Check() error {
	switch {
	case c.Rank < 1:
		return fmt.Errorf("lora: rank must be at least 1, got %d", c.Rank)
	case !(c.Alpha > 0):
		return fmt.Errorf("lora: alpha must be above 0, got %v", c.Alpha)
	case len(c.Targets) == 0:
		return errors.New("lora: it needs at least one target")
	}
	for _, name := range c.Targets {
		if !slices.Contains(Projections, name) {
			return fmt.Errorf("lora: there is no projection %q; there are %s", name, strings.Join(Projections, ", "))
		}
	}
	return nil
}

func (c LoRA) scale() float64 { return c.Alpha / float64(c.Rank) }

// Adapter is a low-rank change of a model. Model is the model with the change in its weights: forward passes, sampling and
// export need nothing else. The base stays as it is and is needed as long as the adapter lives.
type Adapter struct {
	c     LoRA
	base  *Model
	model *Model
	flat  *torch.Tensor // all A and B, in the order of parts
	parts []adapterPart
}

// adapterPart is the change of one projection of one layer.
type adapterPart struct {
	name         string // of the projection's weight
	layer        int
	out, in      int
	offset       int           // of A in the flat buffer; B follows
	base, merged *torch.Tensor // [out, in] views
	a, b         *torch.Tensor // [rank, in], [out, rank] views
}

// NewAdapter makes an adapter that changes nothing yet: A as peft draws it, uniform in ±1/√in, and B zero.
func NewAdapter(base *Model, c LoRA, rng *rand.Rand) (*Adapter, error) {
	a, total, err := adapterOf(base, c)
	if err != nil {
		return nil, err
	}
	flat := make([]float32, total)
	for _, p := range a.parts {
		bound := 1 / sqrt(p.in)
		for i := range c.Rank * p.in {
			flat[p.offset+i] = float32(bound * (2*rng.Float64() - 1))
		}
	}
	return a, a.place(flat)
}

// adapterOf lays an adapter out; it has no weights yet.
func adapterOf(base *Model, c LoRA) (a *Adapter, total int, err error) {
	if err := c.Check(); err != nil {
		return nil, 0, err
	}
	a = &Adapter{c: c, base: base}
	weights, _ := layout(base.cfg)
	for l := range base.cfg.Layers {
		for _, w := range weights {
			module, ok := strings.CutSuffix(w.name, ".weight")
			if !ok || !strings.HasPrefix(w.name, layerName(l, "")) || !slices.Contains(c.Targets, module[strings.LastIndexByte(module, '.')+1:]) {
				continue
			}
			p := adapterPart{name: w.name, layer: l, out: w.shape[0], in: w.shape[1], offset: total}
			total += c.Rank * (p.in + p.out)
			a.parts = append(a.parts, p)
		}
	}
	return a, total, nil
}

// place puts the adapter's weights beside the model's and merges them.
func (a *Adapter) place(flat []float32) error {
	var err error
	if a.model, err = a.base.Clone(); err != nil {
		return err
	}
	err = torch.Do(context.Background(), a.base.device, func(s *torch.Scope) error {
		a.flat = s.FromFloat32(flat, int64(len(flat)))
		weights, _ := layout(a.base.cfg)
		kept := []*torch.Tensor{a.flat}
		for i := range a.parts {
			p := &a.parts[i]
			at := slices.IndexFunc(weights, func(w weight) bool { return w.name == p.name })
			p.base = cut(s, a.base.flat, weights[at].offset, p.out, p.in)
			p.merged = cut(s, a.model.flat, weights[at].offset, p.out, p.in)
			p.a, p.b = p.of(s, a.flat, a.c.Rank)
			kept = append(kept, p.base, p.merged, p.a, p.b)
		}
		a.merge(s)
		if s.Err() == nil {
			s.Keep(kept...)
		}
		return s.Err()
	})
	if err != nil {
		return errors.Join(fmt.Errorf("place an adapter: %w", err), a.model.Close())
	}
	return nil
}

// cut is a matrix that lies in a flat buffer.
func cut(s *torch.Scope, flat *torch.Tensor, offset, rows, columns int) *torch.Tensor {
	return s.View(s.Narrow(flat, 0, int64(offset), int64(rows*columns)), int64(rows), int64(columns))
}

// of are A and B of a part in a buffer laid out like the adapter's: its weights or their gradient.
func (p *adapterPart) of(s *torch.Scope, flat *torch.Tensor, rank int) (a, b *torch.Tensor) {
	return cut(s, flat, p.offset, rank, p.in), cut(s, flat, p.offset+rank*p.in, p.out, rank)
}

// merge writes W + scale·B·A into the model. It starts from the base each time, so that rounding does not add up.
func (a *Adapter) merge(s *torch.Scope) {
	for _, p := range a.parts {
		s.Copy_(p.merged, p.base)
		s.Addmm_(p.merged, s.MulScalar(p.b, a.c.scale()), p.a)
	}
}

// Model is the base with the adapter merged into it. It belongs to the adapter.
func (a *Adapter) Model() *Model { return a.model }

// Close frees the adapter and its model; the base stays. It may be called twice.
func (a *Adapter) Close() error {
	err := torch.Do(context.Background(), a.base.device, func(s *torch.Scope) error {
		for _, p := range a.parts {
			s.Free(p.base, p.merged, p.a, p.b)
		}
		s.Free(a.flat)
		return nil
	})
	return errors.Join(err, a.model.Close())
}

// Trainer makes a trainer of the adapter alone; the base is frozen.
func (a *Adapter) Trainer(o OptimizerConfig) (*Trainer, error) {
	t := &Trainer{m: a.model, p: a.flat, adapter: a, o: o.withDefaults()}
	return t, t.start(func(s *torch.Scope) views { return a.gradientViews(s, t) })
}

// gradientViews are the places where a backward pass leaves the gradients of weights: one layer's, which is turned into that
// of the adapter as soon as the layer is done, so that the gradient of the whole base never exists.
func (a *Adapter) gradientViews(s *torch.Scope, t *Trainer) views {
	one := a.base.cfg
	one.Layers, one.Vocab, one.TiedEmbeddings = 1, 1, true
	weights, total := layout(one)
	scratch := s.Zeros(torch.Float32, int64(total))
	v := viewsOf(s, one, scratch)
	v.all = append(v.all, scratch)
	v.embed, v.head = nil, nil
	for len(v.layers) < a.base.cfg.Layers {
		v.layers = append(v.layers, v.layers[0])
	}
	v.done = func(s *torch.Scope, l int) {
		s.MulScalar_(scratch, a.c.scale())
		for i := range a.parts {
			p := &a.parts[i]
			if p.layer != l {
				continue
			}
			name := layerName(0, strings.TrimPrefix(p.name, layerName(l, "")))
			at := slices.IndexFunc(weights, func(w weight) bool { return w.name == name })
			dw := cut(s, scratch, weights[at].offset, p.out, p.in)
			da, db := p.of(s, t.grad, a.c.Rank)
			s.Addmm_(db, dw, s.T(p.a))
			s.Addmm_(da, s.T(p.b), dw)
		}
		s.Zero_(scratch)
	}
	return v
}

// Files of an adapter, as peft names them.
const (
	adapterConfigFile = "adapter_config.json"
	adapterFile       = "adapter_model.safetensors"
	adapterPrefix     = "base_model.model."
)

// adapterConfig is what peft needs of adapter_config.json.
type adapterConfig struct {
	Type    string             `json:"peft_type"`
	Task    string             `json:"task_type"`
	Base    string             `json:"base_model_name_or_path"`
	Rank    int                `json:"r"`
	Alpha   float64            `json:"lora_alpha"`
	Targets []string           `json:"target_modules"`
	Dropout float64            `json:"lora_dropout"`
	Bias    string             `json:"bias"`
	DoRA    bool               `json:"use_dora"`
	RSLoRA  bool               `json:"use_rslora"`
	Ranks   map[string]int     `json:"rank_pattern,omitempty"`
	Alphas  map[string]float64 `json:"alpha_pattern,omitempty"`
	Saved   []string           `json:"modules_to_save,omitempty"`
}

// Save writes the adapter into dir in the form that peft loads. base names the model it belongs to.
func (a *Adapter) Save(dir, base string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save adapter: %w", err)
	}
	var flat []float32
	err := torch.Do(context.Background(), a.base.device, func(s *torch.Scope) error {
		flat = append(flat, s.Float32s(a.flat)...)
		return s.Err()
	})
	if err != nil {
		return fmt.Errorf("save adapter: %w", err)
	}
	tensors := map[string]hostTensor{}
	for _, p := range a.parts {
		nameA, nameB := p.fileNames()
		middle := p.offset + a.c.Rank*p.in
		tensors[nameA] = hostTensor{[]int{a.c.Rank, p.in}, flat[p.offset:middle]}
		tensors[nameB] = hostTensor{[]int{p.out, a.c.Rank}, flat[middle : middle+p.out*a.c.Rank]}
	}
	targets := slices.Sorted(slices.Values(a.c.Targets))
	text, err := json.MarshalIndent(adapterConfig{Type: "LORA", Task: "CAUSAL_LM", Base: base, Rank: a.c.Rank, Alpha: a.c.Alpha, Targets: targets, Bias: "none"}, "", "  ")
	if err != nil {
		return fmt.Errorf("save adapter: %w", err)
	}
	return errors.Join(writeSafetensors(filepath.Join(dir, adapterFile), tensors, map[string]string{"format": "pt"}),
		writeWhole(filepath.Join(dir, adapterConfigFile), append(text, '\n')))
}

// fileNames are the names of A and B in peft's files.
func (p *adapterPart) fileNames() (a, b string) {
	module := adapterPrefix + strings.TrimSuffix(p.name, ".weight")
	return module + ".lora_A.weight", module + ".lora_B.weight"
}

// LoadAdapter reads an adapter of base that peft or Save wrote. What it does beyond plain LoRA on projections is refused.
func LoadAdapter(dir string, base *Model) (*Adapter, error) {
	path := filepath.Join(dir, adapterConfigFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load adapter: %w", err)
	}
	var c adapterConfig
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("load adapter: %s: %w", path, err)
	}
	if c.Type != "LORA" || c.DoRA || c.RSLoRA || c.Bias != "none" || len(c.Ranks) > 0 || len(c.Alphas) > 0 || len(c.Saved) > 0 {
		return nil, fmt.Errorf("load adapter: %s asks for more than plain LoRA (peft_type LORA, bias none, no use_dora, use_rslora, patterns or modules_to_save)", path)
	}
	a, total, err := adapterOf(base, LoRA{Rank: c.Rank, Alpha: c.Alpha, Targets: c.Targets})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r, err := openWeights(filepath.Join(dir, adapterFile))
	if err != nil {
		return nil, fmt.Errorf("load adapter: %w", err)
	}
	defer r.close()
	flat := make([]float32, total)
	for _, p := range a.parts {
		nameA, nameB := p.fileNames()
		middle := p.offset + c.Rank*p.in
		if err := errors.Join(r.read(nameA, []int{c.Rank, p.in}, flat[p.offset:middle]),
			r.read(nameB, []int{p.out, c.Rank}, flat[middle:middle+p.out*c.Rank])); err != nil {
			return nil, fmt.Errorf("load adapter: %s: %w", r.path, err)
		}
	}
	if len(r.tensors) != 2*len(a.parts) {
		return nil, fmt.Errorf("load adapter: %s holds %d tensors, want %d: it belongs to another model", r.path, len(r.tensors), 2*len(a.parts))
	}
	return a, a.place(flat)
}
