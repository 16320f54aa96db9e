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

	"rcgrpo/stages/internal/token"
)

// Files of a model folder that contain the chat template.
const (
	TemplateFile = "chat_template.jinja"
	configFile   = "tokenizer_config.json"
)

// CheckTemplate returns an error unless the folder's chat template is a published template of the layout. Layouts
// are constants, so training would ignore an edited template, but users of the exported folder would apply it.
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

// readTemplate returns chat_template.jinja or, without that file, the key chat_template of tokenizer_config.json.
func readTemplate(dir string) (string, error) {
	source, err := token.ReadSmall(filepath.Join(dir, TemplateFile))
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return string(source), err
	}
	path := filepath.Join(dir, configFile)
	raw, err := token.ReadSmall(path)
	if err != nil {
		return "", err
	}
	var config struct {
		Template string `json:"chat_template"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if config.Template == "" {
		return "", fmt.Errorf("%s has no chat template: neither %s nor a key chat_template in %s; put the model's "+
			"published template there", dir, TemplateFile, configFile)
	}
	return config.Template, nil
}
