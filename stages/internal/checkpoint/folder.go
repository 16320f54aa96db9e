package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
)

// Folder is a model folder that was checked without reading weights: a Hugging Face folder, or a checkpoint, which
// also has MetaFile. The fields of a refused part are zero.
type Folder struct {
	Meta      Meta // of a Hugging Face folder: its layout without reward tokens
	Config    lm.Config
	Tokenizer *token.Tokenizer
	Talk      chat.Talk
	Refused   []Refusal // in the order of the parts
}

// Refusal is the reason why a part of a folder is not supported.
type Refusal struct {
	Part string // one of the Part constants
	Err  error
}

// Parts of a model folder.
const (
	PartFamily    = "family"
	PartWeights   = "weights"
	PartTokenizer = "tokenizer"
	PartLayout    = "chat layout"
)

// Err returns the first refusal, or nil.
func (f *Folder) Err() error {
	if len(f.Refused) == 0 {
		return nil
	}
	return f.Refused[0].Err
}

// ReadFolder checks a checkpoint, or a Hugging Face folder by the rules of stage `model`. An importer of another
// format starts here.
func ReadFolder(dir string) *Folder {
	meta, err := ReadMeta(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return readFolder(dir, func(lm.Config) (Meta, error) {
			if err != nil {
				return meta, err
			}
			return meta, checkTemplate(meta, dir)
		})
	}
	return readFolder(dir, func(c lm.Config) (Meta, error) {
		layout, err := ChatLayout(dir, c, "")
		if err == nil {
			return Meta{Family: layout.Name}, nil
		}
		if layout != nil && layout.Template != "" {
			err = fmt.Errorf("%w (layout is a setting of stage `model`, whose checkpoint can be served)", err)
		}
		return Meta{}, err
	})
}

// ReadModel checks a Hugging Face folder for stage `model`; layout is the name of the chat layout to use instead of
// the folder's template, or "".
func ReadModel(dir, layout string) *Folder {
	return readFolder(dir, func(c lm.Config) (Meta, error) {
		l, err := ChatLayout(dir, c, layout)
		if err != nil {
			return Meta{}, err
		}
		return Meta{Family: l.Name}, nil
	})
}

func readFolder(dir string, meta func(lm.Config) (Meta, error)) *Folder {
	f := &Folder{}
	refuse := func(part string, err error) bool {
		if err != nil {
			f.Refused = append(f.Refused, Refusal{part, err})
		}
		return err == nil
	}
	c, err := lm.ReadConfig(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; docs/models.md lists the families and keys that are supported", err)
	}
	shaped := refuse(PartFamily, missing(err, dir, lm.ConfigFile))
	if shaped {
		f.Config = c
		_, err = lm.CheckFolder(dir)
		refuse(PartWeights, err)
		m, err := meta(c)
		if refuse(PartLayout, missing(err, dir, "chat template")) {
			f.Meta = m
		}
	}
	t, err := token.Load(filepath.Join(dir, TokenizerFile))
	if err == nil && shaped && t.Size() > c.Vocab {
		err = fmt.Errorf("%s: the tokenizer has %d entries and the model %d rows: the tokenizer belongs to another model; "+
			"put the model's own %s into the folder", dir, t.Size(), c.Vocab, TokenizerFile)
	}
	if !refuse(PartTokenizer, missing(err, dir, TokenizerFile)) {
		return f
	}
	f.Tokenizer = t
	if f.Meta.Family != "" {
		talk, err := newTalk(f.Meta, t, nil)
		if refuse(PartLayout, err) {
			f.Talk = talk
		}
	}
	return f
}

// missing replaces the error of a missing file by the files that a model folder needs.
func missing(err error, dir, what string) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	others := ""
	for _, pattern := range []string{"*.gguf", "*.bin", "*.pt"} { // formats that are not read
		if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) > 0 {
			others = fmt.Sprintf(", but %s, which is not read", filepath.Base(found[0]))
			break
		}
	}
	return fmt.Errorf("%s has no %s%s; a model folder has %s, weights in *.safetensors, %s, and a chat template in %s or "+
		"tokenizer_config.json, as save_pretrained of transformers writes them", dir, what, others, lm.ConfigFile,
		TokenizerFile, chat.TemplateFile)
}

// ChatLayout returns the layout with a name, or that of the decoder family if the name is empty. In the latter case
// the folder must contain the published template, otherwise the result is the layout and an error. It refuses a folder
// with another generation of the family.
func ChatLayout(dir string, c lm.Config, name string) (*chat.Layout, error) {
	if err := lm.CheckGeneration(dir, c); err != nil {
		return nil, err
	}
	layout, err := chat.LayoutOf(c.Family)
	if err != nil {
		return nil, err
	}
	switch name {
	case layout.Name:
		return layout, nil
	case "":
		return layout, layout.CheckTemplate(dir)
	}
	return nil, fmt.Errorf("layout %q belongs to another family than the decoder %q, whose layout is %q", name, c.Family,
		layout.Name)
}

// readPolicy returns Meta and tokenizer of a checkpoint, or of a Hugging Face folder, which it checks.
func readPolicy(dir string) (Meta, *token.Tokenizer, error) {
	meta, err := ReadMeta(dir)
	if errors.Is(err, fs.ErrNotExist) {
		f := ReadFolder(dir)
		return f.Meta, f.Tokenizer, f.Err()
	}
	if err != nil {
		return meta, nil, err
	}
	tokenizer, err := token.Load(filepath.Join(dir, TokenizerFile))
	return meta, tokenizer, err
}
