// Package endpoint contains the stage kind `endpoint`: a model behind a vendor's API, or behind a compatible server, as
// a policy of eval and rollout. It makes no call. Its artifact is endpoint.json, provider.Settings.
package endpoint

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/internal/provider"
	"rcgrpo/stages/rl/blocks"
)

// Kind returns the stage kind.
func Kind() *lang.Kind {
	return &lang.Kind{
		Name:    "endpoint",
		Summary: "A model behind an API, as a policy of eval and rollout.",
		Version: 1,
		New:     func() lang.Stage { return &settings{Mode: provider.ModeFC, Temperature: 0.001} },
		Outputs: func(lang.Stage) map[string]string { return map[string]string{"policy": provider.ArtifactType} },
		Light:   true,
	}
}

type settings struct {
	// form of the requests: openai is Responses, openai-chat is Chat Completions, which other servers imitate
	API string `hcl:"api" choices:"openai|openai-chat|anthropic|google|glm"`
	// name of the model in requests
	Model string `hcl:"model"`
	// fc offers the tools as functions; prompt describes them in the system message and reads calls as Python text
	Mode string `hcl:"mode,optional" choices:"fc|prompt"`
	// environment variable with the API key; empty: OPENAI_API_KEY, ANTHROPIC_API_KEY, GOOGLE_API_KEY or GLM_API_KEY
	Key string `hcl:"key,optional"`
	// address of the server, https, or http on this machine; empty: the vendor's
	BaseURL string `hcl:"base_url,optional"`
	// sampling temperature (the benchmark: 0.001); not sent to models that refuse one
	Temperature float64 `hcl:"temperature,optional"`
	// longest reply; 0: not sent, or 64000 for anthropic, which requires it
	MaxTokens int `hcl:"max_tokens,optional" unit:"tokens"`
	// effort of OpenAI's reasoning models, level of Gemini, tokens of Claude, enabled or disabled of GLM; empty: not
	// sent
	Thinking string `hcl:"thinking,optional"`
	// object with further fields of every request
	Extra json.RawMessage `hcl:"extra,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

func (s *settings) Check() (diags hcl.Diagnostics) {
	bad := blocks.Mistakes(&diags)
	bad(s.Model == "", "No model", s.At["model"], "model is the name of the model in requests; got an empty text.")
	diags = append(diags, blocks.CheckTemperature(s.Temperature, true, s.At["temperature"])...)
	bad(s.MaxTokens < 0, "Negative length", s.At["max_tokens"],
		"A reply has at least 1 token, or no limit with 0; got %d.", s.MaxTokens)
	if s.BaseURL != "" {
		if err := provider.CheckURL(s.BaseURL); err != nil {
			bad(true, "Address not allowed", s.At["base_url"], "base_url cannot be used: %v.", err)
		}
	}
	budget, err := strconv.Atoi(s.Thinking)
	bad(s.API == "anthropic" && s.Thinking != "" && (err != nil || budget < 1024), "Thinking out of range",
		s.At["thinking"], "Claude thinks with a number of tokens of at least 1024, such as \"8000\"; got %q.", s.Thinking)
	bad(s.API == "glm" && s.Thinking != "" && s.Thinking != "enabled" && s.Thinking != "disabled", "Unknown thinking",
		s.At["thinking"], "GLM's thinking is \"enabled\" or \"disabled\"; got %q.", s.Thinking)
	bad(s.Extra != nil && s.Extra[0] != '{', "Wrong type", s.At["extra"],
		"extra is an object with fields of the request, such as { top_k = 5 }.")
	bad(strings.ContainsAny(s.Key, "= "), "Wrong variable", s.At["key"],
		"key is the name of an environment variable, not the key itself; got %d characters.", len(s.Key))
	return diags
}

// WithoutEffect returns the settings that the requests of this model do not contain.
func (s *settings) WithoutEffect() map[string]string {
	e, given := blocks.Effects{}, s.Endpoint()
	e.Add(!given.SendsTemperature(), "requests to this model contain no temperature", "temperature")
	e.Add(!given.SendsThinking(), "this model has no setting for it", "thinking")
	return e
}

// Endpoint returns the content of the artifact. Extra is checked to be an object.
func (s *settings) Endpoint() *provider.Settings {
	key, base := provider.Defaults(s.API)
	return &provider.Settings{API: s.API, Model: s.Model, Mode: s.Mode, Key: cmp.Or(s.Key, key),
		BaseURL: cmp.Or(s.BaseURL, base), Temperature: s.Temperature, MaxTokens: s.MaxTokens, Thinking: s.Thinking,
		Extra: s.Extra}
}

// Reach implements lang.Reacher. The stages that read the endpoint make the calls.
func (s *settings) Reach() lang.Reach {
	e := s.Endpoint()
	return lang.Reach{Addresses: []string{e.BaseURL}, Secrets: []string{e.Key}}
}

// Endpoint returns the model that the stage describes, before it runs.
func Endpoint(s lang.Stage) (*provider.Settings, bool) {
	own, ok := s.(*settings)
	if !ok {
		return nil, false
	}
	return own.Endpoint(), true
}

// Run writes the description of the model.
func (s *settings) Run(_ context.Context, job *engine.Job) error {
	dir, err := job.Create("policy")
	if err != nil {
		return err
	}
	return artifact.WriteJSON(dir, provider.EndpointFile, s.Endpoint())
}
