package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
)

// Template is a model folder's own chat template. Goroutines may render it at once.
type Template struct {
	template *exec.Template
	special  map[string]string // bos_token, eos_token, ...
}

// Prompt is what a template is rendered from.
type Prompt struct {
	Messages  json.RawMessage            // array of messages, as chat APIs know them
	Tools     json.RawMessage            // array of functions in OpenAI's form; nil for none
	Generate  bool                       // open a reply of the assistant at the end (add_generation_prompt)
	Variables map[string]json.RawMessage // more variables for the template, such as date_string
	Date      time.Time                  // what strftime_now tells; a template that asks is refused without
}

// Files of a model folder that hold the template and the texts of special tokens.
const (
	TemplateFile = "chat_template.jinja"
	configFile   = "tokenizer_config.json"
)

// LoadTemplate reads the template of a model folder: chat_template.jinja or, without one, the key chat_template of
// tokenizer_config.json, which also gives the special tokens. Of several named templates the one called "default" is
// taken.
func LoadTemplate(dir string) (*Template, error) {
	raw, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return nil, err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	special := map[string]string{}
	for key, value := range keys {
		if !strings.HasSuffix(key, "_token") {
			continue
		}
		var text string
		var long struct{ Content *string }
		if json.Unmarshal(value, &text) == nil && string(value) != "null" {
			special[key] = text
		} else if json.Unmarshal(value, &long) == nil && long.Content != nil {
			special[key] = *long.Content
		}
	}
	source, err := os.ReadFile(filepath.Join(dir, TemplateFile))
	if errors.Is(err, os.ErrNotExist) {
		var text string
		text, err = templateOf(keys["chat_template"])
		source = []byte(text)
	}
	if err != nil {
		return nil, err
	}
	return NewTemplate(string(source), special)
}

func templateOf(value json.RawMessage) (string, error) {
	var text string
	if value != nil && json.Unmarshal(value, &text) == nil {
		return text, nil
	}
	var named []struct{ Name, Template string }
	if value != nil && json.Unmarshal(value, &named) == nil {
		for _, n := range named {
			if n.Name == "default" {
				return n.Template, nil
			}
		}
	}
	return "", fmt.Errorf("the folder has no chat template: neither %s nor a key chat_template in %s; put the model's own template there", TemplateFile, configFile)
}

// NewTemplate compiles a template. special are the special tokens by the names of tokenizer_config.json.
func NewTemplate(source string, special map[string]string) (t *Template, err error) {
	defer wreck(&err)
	if err := checkSource(source); err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	c := config.New()
	c.TrimBlocks = true // as Hugging Face compiles them, with lstrip_blocks below
	compiled, err := exec.NewTemplate(TemplateFile, c, onlySource(stripBlocks(source)), &exec.Environment{
		Context: exec.NewContext(globals()), Filters: exec.NewFilterSet(filters()), Tests: exec.NewTestSet(tests()),
		ControlStructures: exec.NewControlStructureSet(statements()), Methods: methods(),
	})
	if err != nil {
		// The library's message holds the whole source between its words; what matters is the cause.
		for cause := errors.Unwrap(err); cause != nil; cause = errors.Unwrap(err) {
			err = cause
		}
		return nil, fmt.Errorf("chat template: %w", err)
	}
	if err := rewriteNodes(compiled.Root().Nodes); err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	return &Template{compiled, special}, nil
}

// indented is a tag or comment that is the first on its line, unless it asks with a plus to keep what is before it.
var indented = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^[ \t]+(\{[%#](?:[^+]|$))`) })

// stripBlocks is lstrip_blocks. The library's own also takes the spaces between a value and a tag of the same line.
func stripBlocks(source string) string { return indented().ReplaceAllString(source, "$1") }

// Render gives the text of a conversation. It fails where the template raises an exception, and where Python would.
func (t *Template) Render(p Prompt) (text string, err error) {
	given := map[string]any{}
	for name, raw := range p.Variables {
		if given[name], err = parseJSON(raw); err != nil {
			return "", fmt.Errorf("chat template: %s: %w", name, err)
		}
	}
	for name, raw := range map[string]json.RawMessage{"messages": p.Messages, "tools": p.Tools} {
		if raw == nil {
			continue
		}
		if given[name], err = parseJSON(raw); err != nil {
			return "", fmt.Errorf("chat template: %s: %w", name, err)
		}
	}
	given["add_generation_prompt"] = p.Generate
	return t.execute(given, p.Date)
}

// execute renders with variables beside those that every template has.
func (t *Template) execute(given map[string]any, date time.Time) (text string, err error) {
	defer wreck(&err)
	cause := rendering{begun: time.Now()}
	variables := map[string]any{
		renderingName: &cause, "range": cause.numbers, "documents": nil, "tools": nil, "messages": list{}, "add_generation_prompt": false,
		"raise_exception": func(message string) (string, error) {
			cause.set(errors.New(message))
			return "", cause.err
		},
		"strftime_now": func(format string) (string, error) {
			if date.IsZero() {
				cause.set(errors.New("the template writes today's date, so that every day has other prompts; give a fixed date"))
				return "", cause.err
			}
			return strftime(date, format)
		},
	}
	for name, text := range t.special {
		variables[name] = text
	}
	maps.Copy(variables, given)
	var b bytes.Buffer
	err = t.template.Execute(&b, exec.NewContext(variables))
	switch {
	case cause.err != nil:
		return "", fmt.Errorf("chat template: %w", cause.err)
	case err != nil:
		return "", fmt.Errorf("chat template: %w", err)
	}
	return b.String(), nil
}

// wreck turns a panic of the library, which reflects over whatever a template does, into an error: templates are input.
func wreck(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("chat template: the Jinja library broke down: %v", r)
	}
}

// onlySource is a loader that knows the template itself and nothing else: templates include no files.
type onlySource string

// Read implements loaders.Loader.
func (s onlySource) Read(path string) (io.Reader, error) {
	if path != TemplateFile {
		return nil, fmt.Errorf("a chat template cannot read %s", path)
	}
	return strings.NewReader(string(s)), nil
}

// Resolve implements loaders.Loader.
func (s onlySource) Resolve(path string) (string, error) { return path, nil }

// Inherit implements loaders.Loader.
func (s onlySource) Inherit(string) (loaders.Loader, error) { return s, nil }

// strftime writes a date by Python's directives.
func strftime(t time.Time, format string) (string, error) {
	layouts := map[byte]string{
		'Y': "2006", 'y': "06", 'm': "01", 'B': "January", 'b': "Jan", 'd': "02", 'j': "002",
		'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'A': "Monday", 'a': "Mon", 'Z': "MST", 'z': "-0700",
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		if i < len(format) && format[i] == '%' {
			b.WriteByte('%')
			continue
		}
		layout := ""
		if i < len(format) {
			layout = layouts[format[i]]
		}
		if layout == "" {
			return "", fmt.Errorf("strftime_now(%q): the directive at %d is not known", format, i)
		}
		b.WriteString(t.Format(layout))
	}
	return b.String(), nil
}
