package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
)

// Folder is a model folder or GGUF file that was checked without reading weights. The folder is a Hugging Face folder,
// or a checkpoint, which also has MetaFile. The fields of a refused part are zero.
type Folder struct {
	Meta      Meta // for a Hugging Face folder, its layout without reward tokens
	Config    lm.Config
	Weights   string // number of tensors by type in a GGUF file; "" for a folder
	Tokenizer *token.Tokenizer
	Template  *chat.Template // nil in the layout of the drills
	Codec     chat.Codec
	Refused   []Refusal // in the order of the parts
}

// Refusal is the reason why a part of a folder is not supported.
type Refusal struct {
	Part string // one of the Part constants
	Err  error
}

// Parts of a model folder.
const (
	PartFile      = "file" // the GGUF file cannot be read; there is no other refusal then
	PartDecoder   = "family"
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

// ReadFolder checks a checkpoint, or a Hugging Face folder or GGUF file by the rules of stage `model`. layout is the
// name of a chat layout to use in place of the template of the latter two, or "".
func ReadFolder(dir, layout string) *Folder {
	meta, err := ReadMeta(dir)
	if IsGGUF(dir) || errors.Is(err, fs.ErrNotExist) {
		f := ReadModel(dir, chat.Settings{Layout: layout})
		for i, r := range f.Refused {
			if r.Part == PartLayout && strings.Contains(r.Err.Error(), "layout = ") {
				f.Refused[i].Err = fmt.Errorf("%w (layout and template are settings of stage `model`; on the command line, "+
					"--layout NAME)", r.Err)
			}
		}
		return f
	}
	if layout != "" {
		return &Folder{Refused: []Refusal{{PartLayout, fmt.Errorf("%s is a checkpoint, which keeps its chat layout; leave "+
			"--layout out", dir)}}}
	}
	return readFolder(dir, folderSource(dir), meta, func(lm.Config) (*chat.Template, error) {
		if err != nil || meta.Layout == Drill {
			return nil, err
		}
		return chat.ReadTemplate(dir, meta.settings())
	})
}

// ReadModel checks a Hugging Face folder or GGUF file for stage `model`, with the settings of that stage for the
// template.
func ReadModel(path string, s chat.Settings) *Folder {
	if IsGGUF(path) {
		return readGGUF(path, s)
	}
	return readFolder(path, folderSource(path), metaOf(s), func(c lm.Config) (*chat.Template, error) {
		return ReadTemplate(path, c, s)
	})
}

// source reads the parts of a model.
type source struct {
	config    func() (lm.Config, error)
	weights   func() error // returns why the weights are not those of the decoder
	tokenizer func() (*token.Tokenizer, error)
}

func folderSource(dir string) source {
	return source{
		config: func() (lm.Config, error) { return lm.ReadConfig(dir) },
		weights: func() error {
			_, err := lm.CheckFolder(dir)
			return err
		},
		tokenizer: func() (*token.Tokenizer, error) { return token.Load(filepath.Join(dir, TokenizerFile)) },
	}
}

// readFolder checks the parts of a model. dir has the chat template, and errors name it.
func readFolder(dir string, from source, meta Meta, template func(lm.Config) (*chat.Template, error)) *Folder {
	f := &Folder{}
	refuse := func(part string, err error) bool {
		if err != nil {
			f.Refused = append(f.Refused, Refusal{part, err})
		}
		return err == nil
	}
	c, err := from.config()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; docs/models.md lists the families and keys that are supported", err)
	}
	shaped := refuse(PartDecoder, missing(err, dir, lm.ConfigFile))
	if shaped {
		f.Config = c
		refuse(PartWeights, from.weights())
		t, err := template(c)
		if refuse(PartLayout, missing(err, dir, "chat template")) {
			f.Meta, f.Template = meta, t
		}
	}
	t, err := from.tokenizer()
	if err == nil && shaped && t.Size() > c.Vocab {
		err = fmt.Errorf("%s: the tokenizer has %d entries and the model %d rows: the tokenizer belongs to another model; "+
			"put the model's own %s into the folder", dir, t.Size(), c.Vocab, TokenizerFile)
	}
	if !refuse(PartTokenizer, missing(err, dir, TokenizerFile)) {
		return f
	}
	f.Tokenizer = t
	if f.Meta.Layout != "" {
		var codec chat.Codec
		if f.Template == nil {
			codec, err = chat.NewDrill(t, f.Meta.Position)
		} else {
			codec, err = f.Template.New(t, nil, f.Meta.Position)
		}
		if refuse(PartLayout, err) {
			f.Codec = codec
		}
	}
	return f
}

// Write completes a checkpoint in dir, which has the other files of the model already. It writes the Meta, and the chat
// template if the settings, with which the folder was checked, name another one than the folder's.
func (f *Folder) Write(dir string, s chat.Settings) error {
	if s.Source != "" || s.Layout != "" && s.Layout != chat.Signatures {
		path := filepath.Join(dir, chat.TemplateFile)
		if err := os.WriteFile(path, []byte(f.Template.Source), 0o600); err != nil {
			return err
		}
	}
	return f.Meta.Write(dir)
}

// CopyFiles copies the files of a model folder into dir, but not its chat template, which is replaced. A file on the
// same file system gets a second name instead.
func CopyFiles(from, dir string) error {
	files, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.IsDir() || f.Name() == chat.TemplateFile {
			continue
		}
		in, err := token.Open(filepath.Join(from, f.Name()), math.MaxInt64)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, f.Name())
		if err = os.Link(in.Name(), to); err != nil {
			err = copyFile(in, to)
		}
		if err = errors.Join(err, in.Close()); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(in io.Reader, to string) error {
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// missing replaces the error of a missing file by the files that a model folder needs.
func missing(err error, dir, what string) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	others := ""
	for _, other := range [][2]string{{"*.gguf", "name that file instead of the folder"}, {"*.bin", "which is not read"},
		{"*.pt", "which is not read"}} {
		if found, _ := filepath.Glob(filepath.Join(dir, other[0])); len(found) > 0 {
			others = fmt.Sprintf(", but %s: %s", filepath.Base(found[0]), other[1])
			break
		}
	}
	return fmt.Errorf("%s has no %s%s; a model folder has %s, weights in *.safetensors, %s, and a chat template in %s or "+
		"tokenizer_config.json, as save_pretrained of transformers writes them", dir, what, others, lm.ConfigFile,
		TokenizerFile, chat.TemplateFile)
}

// ReadTemplate reads and probes the chat template of a model folder. It refuses a folder with a generation_config.json
// of another model.
func ReadTemplate(dir string, c lm.Config, s chat.Settings) (*chat.Template, error) {
	if err := lm.CheckGeneration(dir, c); err != nil {
		return nil, err
	}
	s.Decoder = c.Decoder
	return chat.ReadTemplate(dir, s)
}

// readPolicy returns Meta and tokenizer of a checkpoint, or of a Hugging Face folder, which it checks.
func readPolicy(dir string) (Meta, *token.Tokenizer, error) {
	meta, err := ReadMeta(dir)
	if errors.Is(err, fs.ErrNotExist) {
		f := ReadFolder(dir, "")
		return f.Meta, f.Tokenizer, f.Err()
	}
	if err != nil {
		return meta, nil, err
	}
	tokenizer, err := token.Load(filepath.Join(dir, TokenizerFile))
	return meta, tokenizer, err
}
