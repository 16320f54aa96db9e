package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/gguf"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
)

// IsGGUF reports whether a path names a GGUF file and not a model folder.
func IsGGUF(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && filepath.Ext(path) == ".gguf"
}

// ReadShape returns the shape of the decoder of a model folder or GGUF file.
func ReadShape(path string) (lm.Config, error) {
	if !IsGGUF(path) {
		return lm.ReadConfig(path)
	}
	f, err := gguf.Open(path)
	if err != nil {
		return lm.Config{}, err
	}
	defer f.Close()
	return f.Config()
}

// readGGUF checks a file as readFolder checks the folder that ImportGGUF makes of it.
func readGGUF(path string, s chat.Settings) *Folder {
	refused := func(err error) *Folder { return &Folder{Refused: []Refusal{{PartFile, err}}} }
	f, err := gguf.Open(path)
	if err != nil {
		return refused(err)
	}
	defer f.Close()
	dir, err := os.MkdirTemp("", "rcgrpo-gguf-")
	if err != nil {
		return refused(err)
	}
	defer os.RemoveAll(dir)
	folder := readFolder(dir, source{config: f.Config, weights: f.Check,
		tokenizer: func() (*token.Tokenizer, error) {
			text, err := f.Tokenizer()
			if err != nil {
				return nil, err
			}
			return token.Parse(text)
		}}, metaOf(s), func(c lm.Config) (*chat.Template, error) {
		if err := f.WriteTemplate(dir); err != nil {
			return nil, err
		}
		t, err := ReadTemplate(dir, c, s)
		if text, _ := f.Template(); err != nil && text == "" {
			err = fmt.Errorf("%s has no chat template (key tokenizer.chat_template): take the file of an instruct model", path)
		}
		return t, err
	})
	for i, r := range folder.Refused {
		if text := r.Err.Error(); strings.Contains(text, dir) { // the reader knows the file only
			folder.Refused[i].Err = errors.New(strings.ReplaceAll(text, dir, path))
		}
	}
	folder.Weights = f.Types()
	return folder
}

// ImportGGUF writes a GGUF file as a Hugging Face folder in float32 into dir, in bounded memory. It logs which weights
// quantisation has rounded. progress, which may be nil, is called with the number of written weights and of all.
func ImportGGUF(ctx context.Context, path, dir string, logf func(string, ...any), progress func(done, all int)) error {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if kinds := f.Rounded(); kinds != "" {
		logf("weights of type %s were rounded by quantisation; the model starts from the rounded values", kinds)
	}
	return f.WriteFolder(ctx, dir, progress)
}
