package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files of a model folder that hold the chat template.
const (
	TemplateFile = "chat_template.jinja"
	configFile   = "tokenizer_config.json"
)

// CheckTemplate reports an error unless the model folder's chat template is a published template of
// the layout. Layouts are constants, so an edited template would be ignored in training and used by
// whoever loads the exported folder.
func (l *Layout) CheckTemplate(dir string) error {
	source, err := readTemplate(dir)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(strings.TrimRight(source, "\n")))
	if slices.Contains(l.templates, hex.EncodeToString(sum[:])) {
		return nil
	}
	way := fmt.Sprintf("put the published %s into the folder", TemplateFile)
	if l.Template != "" {
		way = fmt.Sprintf("write layout = %q, which uses and exports the published template instead of the folder's",
			l.Name)
	}
	return fmt.Errorf("%s: its chat template is not the published one of the layout %q, and other templates are not "+
		"interpreted; %s", dir, l.Name, way)
}

// readTemplate returns chat_template.jinja or, without that file, the key chat_template of
// tokenizer_config.json: a text or a list of named templates, of which "default" is used.
func readTemplate(dir string) (string, error) {
	source, err := readSmall(filepath.Join(dir, TemplateFile))
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return string(source), err
	}
	raw, err := readSmall(filepath.Join(dir, configFile))
	if err != nil {
		return "", err
	}
	var config struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Join(dir, configFile), err)
	}
	var text string
	if config.Template != nil && json.Unmarshal(config.Template, &text) == nil {
		return text, nil
	}
	var named []struct{ Name, Template string }
	if config.Template != nil && json.Unmarshal(config.Template, &named) == nil {
		for _, n := range named {
			if n.Name == "default" {
				return n.Template, nil
			}
		}
	}
	return "", fmt.Errorf("%s has no chat template: neither %s nor a key chat_template in %s; put the model's "+
		"published template there", dir, TemplateFile, configFile)
}

// readSmall reads a plain file of at most 1 MiB: a model folder comes from outside, and a FIFO in
// it would block for ever.
func readSmall(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > 1<<20 {
		return nil, fmt.Errorf("%s must be a plain file of at most 1 MiB, got %v of %d bytes", path, info.Mode(),
			info.Size())
	}
	return os.ReadFile(path)
}
