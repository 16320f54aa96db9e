// Package checkpoint reads and writes the folder of a checkpoint artifact: a folder in Hugging Face's format
// (config.json, weights, tokenizer.json and, for an imported model, its template and settings), which other
// programs load, and rcgrpo.json, the Meta.
//
//	Meta         chat layout, and position and condition of the reward tokens
//	Policy       an opened checkpoint: model, tokenizer, Meta; start with Open; needs libtorch
//	Folder       a checkpoint or Hugging Face folder that was checked without reading weights; start with ReadFolder
//	LoRA         the block of settings for adapters
//	MemoryUser   stages whose memory is planned from the shape of their model
//	Join, Sync   connect the ranks of a stage, and let them meet
//	OpenCodec    the codec of a checkpoint, without its weights
//
// Neighbours: lm (models), chat (codecs), sampling (episodes of a Policy), train (trainings of a Policy).
package checkpoint

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// MetaFile is the file of a checkpoint that holds its Meta.
const MetaFile = "rcgrpo.json"

// TokenizerFile is the file of a checkpoint that holds its tokenizer.
const TokenizerFile = "tokenizer.json"

// Chat layouts in a Meta, beside chat.Signatures. Every other name, such as those of older checkpoints, means
// FolderTemplate.
const (
	Drill          = "drill"    // the layout of the generated tasks, which needs no chat template
	FolderTemplate = "template" // the chat template in the folder
)

// Kept are the files of a model folder that every checkpoint copies unchanged.
var Kept = []string{"tokenizer_config.json", "special_tokens_map.json", lm.GenerationFile, "chat_template.jinja"}

// Meta describes the use of a checkpoint beyond weights and tokenizer.
type Meta struct {
	Layout    string `json:"family"`              // Drill, FolderTemplate or chat.Signatures
	Position  string `json:"position,omitempty"`  // position of the reward tokens; "" if they were never used
	Condition string `json:"condition,omitempty"` // reward token to condition on at inference; "" for none
	Trained   bool   `json:"trained"`             // the rows of the reward tokens have been trained
	Rows      string `json:"rows,omitempty"`      // initialization of those rows: "copy:<|assistant|>"

	Variables map[string]string `json:"variables,omitempty"` // further variables of the chat template
}

// ReadMeta reads the Meta of the checkpoint in dir.
func ReadMeta(dir string) (Meta, error) {
	var m Meta
	path := filepath.Join(dir, MetaFile)
	raw, err := token.ReadSmall(path)
	if err != nil {
		return m, fmt.Errorf("not a checkpoint of rcgrpo: %w", err)
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("%s: %w", path, err)
	}
	if !slices.Contains([]string{rl.TokenNone, rl.TokenHigh, rl.TokenLow}, m.Condition) ||
		!slices.Contains([]string{"", rl.FirstUser, rl.BeforeEachAction}, m.Position) ||
		m.Condition != rl.TokenNone && m.Position == "" {
		return m, fmt.Errorf("%s: condition is %q and position %q; want high, low or none at %s or %s", path, m.Condition,
			m.Position, rl.FirstUser, rl.BeforeEachAction)
	}
	return m, nil
}

// Write writes the Meta into dir.
func (m Meta) Write(dir string) error {
	return artifact.WriteJSON(dir, MetaFile, m)
}

// Resolve returns the reward token of a setting ("checkpoint", "none", "high", "low"). It fails if the policy has
// no position for the token.
func (m Meta) Resolve(setting string) (string, error) {
	switch setting {
	case "checkpoint":
		return m.Condition, nil
	case "none":
		return rl.TokenNone, nil
	}
	if m.Position == "" {
		return "", fmt.Errorf("token = %q, but this policy has never used reward tokens; set token = \"none\", or use a "+
			"policy trained by rctp-ft or rc-grpo", setting)
	}
	return setting, nil
}
