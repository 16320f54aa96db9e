package stages

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
)

// FolderReport describes the support for a model folder.
type FolderReport struct {
	Parts  []FolderPart
	Memory []FolderMemory // empty if the shape of the model is unknown
}

// FolderPart is a part of a model folder; Refused is the reason why it is not supported, with a way out, or nil.
type FolderPart struct {
	Name, Found string
	Refused     error
}

// FolderMemory is the memory that a use of a model needs on a device by the precision of products, such as "1.5 GiB".
type FolderMemory struct{ Use, Device, Float32, BF16 string }

// Sizes of the uses in a FolderReport beside lm.DefaultMicroTokens.
const (
	reportedSlots   = checkpoint.ConcurrentEpisodes
	reportedContext = 8192
	reportedRank    = 16
)

// LayoutNames returns the names of the chat layouts that replace the template of a model.
func LayoutNames() []string { return chat.LayoutNames() }

// CheckFolder reports the support for a Hugging Face folder, a GGUF file or a checkpoint. It reads no weights. layout
// is the name of a chat layout to use in place of the template of the first two, or "".
func CheckFolder(dir, layout string) FolderReport {
	f := checkpoint.ReadFolder(dir, layout)
	report := FolderReport{}
	add := func(name, refusal, found string) {
		p := FolderPart{Name: name, Found: found}
		for _, r := range f.Refused {
			if r.Part == refusal && p.Refused == nil {
				p.Found, p.Refused = "", r.Err
			}
		}
		report.Parts = append(report.Parts, p)
	}
	c := f.Config
	if len(f.Refused) > 0 && f.Refused[0].Part == checkpoint.PartFile {
		add("file", checkpoint.PartFile, "")
		return report
	}
	add("family", checkpoint.PartDecoder, fmt.Sprintf("%s, %d layers of width %d, context %d", c.Decoder, c.Layers,
		c.Hidden, c.MaxPosition))
	if c.Layers > 0 {
		add("parameters", "", parametersText(c.Parameters()))
		add("weights", checkpoint.PartWeights, cmp.Or(f.Weights, "safetensors of the expected shapes"))
	}
	tokenizer := ""
	if f.Tokenizer != nil {
		tokenizer = fmt.Sprintf("byte-level BPE of %d tokens", f.Tokenizer.Size())
	}
	add("tokenizer", checkpoint.PartTokenizer, tokenizer)
	written := cmp.Or(f.Meta.Layout, "unknown, because the family is not supported")
	if f.Template != nil {
		written = "chat template, " + f.Template.Format() + " calls"
	}
	add("chat layout", checkpoint.PartLayout, written)
	if f.Codec != nil {
		call := f.Codec.Reply([]string{"weather(city='Bern')"})
		add("call format", "", f.Codec.Text(call))
	}
	if c.Layers > 0 {
		report.Memory = folderMemory(c)
	}
	return report
}

func parametersText(n int) string {
	if n < 1e9 {
		return fmt.Sprintf("%.2f million", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f billion", float64(n)/1e9)
}

func folderMemory(c lm.Config) (rows []FolderMemory) {
	context := min(reportedContext, c.MaxPosition)
	pass := lm.DefaultMicroTokens
	adapter := (&checkpoint.LoRA{Rank: reportedRank}).Shape().Parameters(c)
	for _, gpu := range []bool{false, true} {
		device := map[bool]string{false: "CPU", true: "GPU"}[gpu]
		for _, u := range []struct {
			name string
			use  lm.Use
		}{
			{fmt.Sprintf("sample %d replies of %d tokens", reportedSlots, context),
				lm.Use{Slots: reportedSlots, Context: context}},
			{fmt.Sprintf("train all weights, %d tokens a pass", pass), lm.Use{Train: true, Pass: pass}},
			{fmt.Sprintf("train an adapter of rank %d, %d tokens a pass", reportedRank, pass),
				lm.Use{Train: true, Pass: pass, Adapter: adapter}},
		} {
			row := FolderMemory{Use: u.name, Device: device}
			u.use.GPU = gpu
			for precision, text := range map[lm.Precision]*string{lm.Float32: &row.Float32, lm.BF16: &row.BF16} {
				u.use.Precision = precision
				*text = lm.BytesText(lm.TotalMemory(c.Memory(u.use)))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// SignaturesLayout is the layout in which tools are signatures and calls Python text.
const SignaturesLayout = chat.Signatures

// ModelStart is how a first experiment with a model starts.
type ModelStart struct {
	Summary string
	Layout  string // chat layout that the experiment needs, "" for the model's own template
	Why     error  // the reason why the template of the model is not used: its refusal, or nil if its context is too short
	Context int    // tokens that the model can read
	Adapter bool   // the machine of most people cannot train all weights

	// Memory at most, such as "1.5 GiB", to train in passes of Pass tokens in float32 on a CPU.
	TrainAll, TrainAdapter string
	Pass, Rank             int
}

const (
	startPass   = 2048    // tokens
	startMemory = 8 << 30 // bytes; above, a start trains an adapter
)

// DocumentsEpisode is the limit in tokens of an episode whose prompt has the JSON documents of the tools of one class,
// up to 3,300 tokens. A model that reads fewer starts with signatures.
const DocumentsEpisode = 8192

// StartModel reads a Hugging Face folder or GGUF file and no weights. It chooses the model's own chat template, or
// signatures where that is refused or the context is short, or else the first accepted layout. An unsupported model is
// an error with the reason.
func StartModel(path string) (ModelStart, error) {
	if _, err := os.Stat(path); err != nil {
		return ModelStart{}, err
	}
	read := func(layout string) *checkpoint.Folder {
		return checkpoint.ReadModel(path, chat.Settings{Layout: layout})
	}
	f := read("")
	for _, r := range f.Refused {
		if r.Part != checkpoint.PartLayout { // no layout would help
			return ModelStart{}, r.Err
		}
	}
	s := ModelStart{Why: f.Err(), Context: f.Config.MaxPosition, Pass: startPass, Rank: reportedRank}
	if s.Why != nil || s.Context < DocumentsEpisode {
		for _, layout := range slices.Concat([]string{SignaturesLayout}, chat.LayoutNames()) {
			if other := read(layout); other.Err() == nil {
				f, s.Layout = other, layout
				break
			}
		}
	}
	if err := f.Err(); err != nil {
		return s, err
	}
	c := f.Config
	s.Summary = fmt.Sprintf("%s, %d layers of width %d, %s parameters, context %d", c.Decoder, c.Layers, c.Hidden,
		parametersText(c.Parameters()), c.MaxPosition)
	u := lm.Use{Train: true, Pass: startPass}
	all := lm.TotalMemory(c.Memory(u))
	s.TrainAll, s.Adapter = lm.BytesText(all), all > startMemory
	u.Adapter = (&checkpoint.LoRA{Rank: reportedRank}).Shape().Parameters(c)
	s.TrainAdapter = lm.BytesText(lm.TotalMemory(c.Memory(u)))
	return s, nil
}

// IsModelFile reports whether a path names a GGUF file.
func IsModelFile(path string) bool { return checkpoint.IsGGUF(path) }
