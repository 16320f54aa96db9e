// Package checkpoint is the folder that a checkpoint artifact holds: a folder in Hugging Face's form (config.json, weights,
// tokenizer.json and, of a model that came from elsewhere, its template and settings), which other programs load as it
// is, and rcgrpo.json, which says how the policy is to be used (Meta). Open gives all of it together as a Policy; it
// needs libtorch and stands behind its build tag, Meta does not.
package checkpoint

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/rl"
)

// MetaFile is the file of a checkpoint that holds its Meta.
const MetaFile = "rcgrpo.json"

// TokenizerFile is the file of a checkpoint that holds its tokenizer.
const TokenizerFile = "tokenizer.json"

// Drill is the chat layout of the generated tasks; those of instruct models have their names in package chat.
const Drill = "drill"

// Kept are the files of a model folder that are handed on as they are, where it has them.
var Kept = []string{"tokenizer_config.json", "special_tokens_map.json", lm.GenerationFile, "chat_template.jinja"}

// Meta is what a checkpoint says about its use beyond weights and tokenizer.
type Meta struct {
	Family    string `json:"family"`              // chat layout, see stages/internal/chat
	Position  string `json:"position,omitempty"`  // where reward tokens stand; "" while none was ever used
	Condition string `json:"condition,omitempty"` // reward token to condition on at inference; "" for none
	Trained   bool   `json:"trained"`             // the rows of the reward tokens have been trained
	Rows      string `json:"rows,omitempty"`      // how those rows were made before: "copy:<|assistant|>"
}

// ReadMeta reads the Meta of the checkpoint in dir.
func ReadMeta(dir string) (Meta, error) {
	var m Meta
	raw, err := os.ReadFile(filepath.Join(dir, MetaFile))
	if err != nil {
		return m, fmt.Errorf("no checkpoint of rcgrpo: %w", err)
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("%s: %w", filepath.Join(dir, MetaFile), err)
	}
	switch m.Condition {
	case rl.TokenNone, rl.TokenHigh, rl.TokenLow:
	default:
		return m, fmt.Errorf("%s: condition is %q, want high, low or nothing", filepath.Join(dir, MetaFile), m.Condition)
	}
	switch m.Position {
	case "", rl.FirstUser, rl.BeforeEachAction:
	default:
		return m, fmt.Errorf("%s: position is %q, want %s, %s or nothing", filepath.Join(dir, MetaFile), m.Position, rl.FirstUser, rl.BeforeEachAction)
	}
	if m.Condition != rl.TokenNone && m.Position == "" {
		return m, fmt.Errorf("%s: condition is %s, but no position says where the token stands", filepath.Join(dir, MetaFile), m.Condition)
	}
	return m, nil
}

// Write writes the Meta into dir.
func (m Meta) Write(dir string) error {
	text, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, MetaFile), append(text, '\n'), 0o600)
}

// Resolve turns a setting ("checkpoint", "none", "high", "low") into the token to condition on. A token that the
// policy has no position for is refused.
func (m Meta) Resolve(setting string) (string, error) {
	switch setting {
	case "checkpoint":
		return m.Condition, nil
	case "none":
		return rl.TokenNone, nil
	}
	if m.Position == "" {
		return "", fmt.Errorf("token = %q, but this policy has never used reward tokens; take token = \"none\", or a policy after rctp-ft or rc-grpo", setting)
	}
	return setting, nil
}
