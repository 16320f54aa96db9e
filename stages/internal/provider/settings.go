// Package provider lets models behind vendors' APIs play episodes, over net/http and without the vendors' packages.
//
//	Settings     what identifies a model and its requests; endpoint.json of an artifact of type endpoint
//	Model        an API model as rl.Policy; start with [Sampling.Run], which opens it
//	Client       sends requests with retries, a rate and a budget, and records each attempt
//	Row          a recorded attempt of a call, with its response
//	Sampling     runs the stages that sample from an endpoint
//	Result       the result of such a stage; Replay plays its episodes again from the recorded responses
//
// Requests equal those of the official handlers of BFCL (bench/api_requests.py records them). openai.go, anthropic.go
// and google.go write the requests of each API and read its replies. Neighbours: rl (Policy), bfcl (tool documents).
package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
)

// ArtifactType is the type of the port of the kind endpoint.
const ArtifactType = "endpoint"

// EndpointFile is the file of an endpoint artifact: Settings as JSON.
const EndpointFile = "endpoint.json"

// Modes of offering tools.
const (
	ModeFC     = "fc"     // as functions of the API
	ModePrompt = "prompt" // in the system message; the model writes calls as Python text
)

// APIs are the names of the supported APIs, in the order of the documentation.
var APIs = []string{"openai", "openai-chat", "anthropic", "google", "glm"}

// Settings identify a model behind an API and what its requests contain.
type Settings struct {
	API         string          `json:"api"` // one of APIs
	Model       string          `json:"model"`
	Mode        string          `json:"mode"` // ModeFC or ModePrompt
	Key         string          `json:"key"`  // variable with the API key
	BaseURL     string          `json:"base_url"`
	Temperature float64         `json:"temperature"` // not sent where the official handler does not
	MaxTokens   int             `json:"max_tokens,omitempty"`
	Thinking    string          `json:"thinking,omitempty"`
	Extra       json.RawMessage `json:"extra,omitempty"` // object whose fields are added to every request
}

// api describes an API.
type api struct {
	form
	documents string            // form of the tool documents, an argument of bfcl.Function
	key, base string            // default variable with the key, and default base URL
	path      string            // path below the base URL; MODEL stands for the name of the model
	headers   map[string]string // headers of every request; KEY stands for the API key
}

var bearer = map[string]string{"Authorization": "Bearer KEY"}

var apis = map[string]api{
	"openai": {responses{}, bfcl.OpenAIResponses, "OPENAI_API_KEY", "https://api.openai.com/v1",
		"/responses", bearer},
	"openai-chat": {chat{}, bfcl.OpenAIChat, "OPENAI_API_KEY", "https://api.openai.com/v1",
		"/chat/completions", bearer},
	"anthropic": {anthropic{}, bfcl.Anthropic, "ANTHROPIC_API_KEY", "https://api.anthropic.com",
		"/v1/messages", map[string]string{"X-Api-Key": "KEY", "Anthropic-Version": "2023-06-01"}},
	"google": {google{}, bfcl.Google, "GOOGLE_API_KEY", "https://generativelanguage.googleapis.com",
		"/v1beta/models/MODEL:generateContent", map[string]string{"X-Goog-Api-Key": "KEY"}},
	"glm": {chat{glm: true}, bfcl.OpenAIChat, "GLM_API_KEY", "https://open.bigmodel.cn/api/paas/v4",
		"/chat/completions", bearer},
}

// address returns the address of requests.
func (s *Settings) address() string {
	path := strings.ReplaceAll(apis[s.API].path, "MODEL", url.PathEscape(s.Model))
	return strings.TrimSuffix(s.BaseURL, "/") + path
}

// Defaults returns the variable with the key and the base URL of an API.
func Defaults(name string) (key, base string) { return apis[name].key, apis[name].base }

// CheckURL returns an error unless a key may be sent to the URL: over TLS, or to this machine.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	host := u.Hostname()
	switch ip := net.ParseIP(host); {
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("it contains a user, a query or a fragment")
	case u.Scheme == "https" && host != "":
		return nil
	case u.Scheme == "http" && (host == "localhost" || ip != nil && ip.IsLoopback()):
		return nil
	}
	return fmt.Errorf("a secret is only sent over https, or over http to this machine; got %q", text)
}

// local reports whether the server is on this machine.
func (s *Settings) local() bool { return strings.HasPrefix(s.BaseURL, "http://") }

// key reads the API key from the environment. A server on this machine may have none.
func (s *Settings) key() (string, error) {
	key := strings.TrimSpace(os.Getenv(s.Key))
	switch {
	case key == "" && s.local():
		return "", nil
	case key == "":
		return "", fmt.Errorf("the variable %s with the API key is not set", s.Key)
	case len(key) < minKey:
		return "", fmt.Errorf("the API key in %s has %d characters; a key of fewer than %d cannot be masked in logs",
			s.Key, len(key), minKey)
	}
	return key, nil
}

const minKey = 8

// ReadSettings reads the endpoint of an artifact.
func ReadSettings(a *artifact.Artifact) (*Settings, error) {
	text, err := a.Read(EndpointFile)
	if err != nil {
		return nil, err
	}
	return parseSettings(text)
}

// described is a stage that makes an endpoint.
type described interface{ Endpoint() *Settings }

// checkMaker returns an error unless the settings are those of the stage that makes the endpoint; nil outside a run. An
// endpoint may come from a shared store, whose writers choose neither the server nor the variable that it receives.
func (s *Settings) checkMaker(maker any) error {
	if maker == nil {
		return nil
	}
	if own, ok := maker.(described); ok {
		want, err := json.Marshal(own.Endpoint())
		got, gotErr := json.Marshal(s)
		if errors.Join(err, gotErr) == nil && bytes.Equal(got, want) {
			return nil
		}
	}
	return fmt.Errorf("%s is not that of the settings of its stage, which has not made it, and no request was sent; run "+
		"the stage again with --replace", EndpointFile)
}

// parseSettings reads the content of EndpointFile.
func parseSettings(text []byte) (*Settings, error) {
	s := &Settings{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return nil, fmt.Errorf("%s: %w", EndpointFile, err)
	}
	if !slices.Contains(APIs, s.API) {
		return nil, fmt.Errorf("%s: there is no API %q", EndpointFile, s.API)
	}
	return s, CheckURL(s.BaseURL)
}

// SendsTemperature reports whether requests contain the temperature.
func (s *Settings) SendsTemperature() bool {
	body := apis[s.API].body(s, &conversation{})
	config, _ := body["generationConfig"].(object)
	_, sent := body["temperature"]
	return sent || config["temperature"] != nil
}

// SendsThinking reports whether requests contain the setting thinking.
func (s *Settings) SendsThinking() bool { return s.API != "openai" || temperatureRefused(s.Model) }
