// Package openai_go_test calls a server with the official Go client of OpenAI. It is a module of its own, so that the
// client is no dependency of the product. A test of stages/internal/serve starts the server and runs it.
package openai_go_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

const question = "How is the weather?"

func client(t *testing.T, o ...option.RequestOption) openai.Client {
	t.Helper()
	url := os.Getenv("RCGRPO_URL")
	if url == "" {
		t.Skip("RCGRPO_URL names no server: go test ./stages/internal/serve -run TestTheGoClient")
	}
	return openai.NewClient(append([]option.RequestOption{option.WithBaseURL(url + "/v1"), option.WithMaxRetries(0),
		option.WithAPIKey(os.Getenv("RCGRPO_KEY"))}, o...)...)
}

func ask(messages ...openai.ChatCompletionMessageParamUnion) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "tiny", Seed: openai.Int(1),
		Messages: append([]openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)}, messages...)}
}

func withTool(q openai.ChatCompletionNewParams) openai.ChatCompletionNewParams {
	q.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
		Name: "weather",
		Parameters: openai.FunctionParameters{"type": "object",
			"properties": map[string]any{"town": map[string]any{"type": "string"}}},
	})}
	return q
}

func TestAToolIsCalledAndItsResultIsRead(t *testing.T) {
	c := client(t)
	first, err := c.Chat.Completions.New(t.Context(), withTool(ask()))
	if err != nil {
		t.Fatal(err)
	}
	m := first.Choices[0].Message
	if len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Name != "weather" ||
		m.ToolCalls[0].Function.Arguments != `{"town": "Köln"}` || first.Choices[0].FinishReason != "tool_calls" {
		t.Fatalf("got %+v, want the call of weather", first.Choices[0])
	}
	result := openai.ToolMessage("sun", m.ToolCalls[0].ID)
	second, err := c.Chat.Completions.New(t.Context(), withTool(ask(m.ToParam(), result)))
	if err != nil {
		t.Fatal(err)
	}
	if got := second.Choices[0]; got.Message.Content != "It is fine." || got.FinishReason != "stop" ||
		second.Usage.PromptTokensDetails.CachedTokens == 0 {
		t.Errorf("got %+v with the usage %+v, want the text and cached tokens", got, second.Usage)
	}
}

func TestAStreamIsTheWholeReply(t *testing.T) {
	c := client(t)
	for name, q := range map[string]openai.ChatCompletionNewParams{"text": ask(), "tools": withTool(ask())} {
		whole, err := c.Chat.Completions.New(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		q.StreamOptions.IncludeUsage = openai.Bool(true)
		stream := c.Chat.Completions.NewStreaming(t.Context(), q)
		var got openai.ChatCompletionAccumulator
		for stream.Next() {
			if !got.AddChunk(stream.Current()) {
				t.Errorf("%s: a chunk does not continue the reply: %s", name, stream.Current().RawJSON())
			}
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		a, b := got.Choices[0], whole.Choices[0]
		same := a.Message.Content == b.Message.Content && a.FinishReason == b.FinishReason &&
			len(a.Message.ToolCalls) == len(b.Message.ToolCalls) && got.Usage.TotalTokens == whole.Usage.TotalTokens
		for i := range min(len(a.Message.ToolCalls), len(b.Message.ToolCalls)) {
			same = same && a.Message.ToolCalls[i].Function.Arguments == b.Message.ToolCalls[i].Function.Arguments
		}
		if !same {
			t.Errorf("%s: got %+v and %+v, want %+v and %+v", name, a, got.Usage, b, whole.Usage)
		}
	}
}

func TestTokensHaveLogprobs(t *testing.T) {
	c := client(t)
	q := ask()
	q.Logprobs, q.TopLogprobs, q.N = openai.Bool(true), openai.Int(2), openai.Int(2)
	got, err := c.Chat.Completions.New(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, token := range got.Choices[1].Logprobs.Content {
		if text += token.Token; len(token.TopLogprobs) != 2 {
			t.Errorf("got %+v, want two alternatives", token)
		}
	}
	if len(got.Choices) != 2 || text != "It is fine." {
		t.Errorf("got %d choices and the tokens %q", len(got.Choices), text)
	}
}

func TestErrorsHaveTypeAndCode(t *testing.T) {
	c := client(t)
	for want, call := range map[string]func() error{
		"model_not_found": func() error {
			q := ask()
			q.Model = "gpt-5"
			_, err := c.Chat.Completions.New(t.Context(), q)
			return err
		},
		"unsupported_value": func() error {
			q := ask()
			q.N = openai.Int(99)
			_, err := c.Chat.Completions.New(t.Context(), q)
			return err
		},
		"context_length_exceeded": func() error {
			_, err := c.Completions.New(t.Context(), openai.CompletionNewParams{Model: "tiny",
				Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String(strings.Repeat("town ", 3000))}})
			return err
		},
		"invalid_api_key": func() error {
			stranger := client(t, option.WithAPIKey("wrong"))
			_, err := stranger.Chat.Completions.New(t.Context(), ask())
			return err
		},
	} {
		var e *openai.Error
		if err := call(); !errors.As(err, &e) || e.Code != want || e.Message == "" {
			t.Errorf("got %v, want an error with the code %s", err, want)
		}
	}
}

func TestModelsAndCompletions(t *testing.T) {
	c := client(t)
	models, err := c.Models.List(t.Context())
	if err != nil || len(models.Data) != 1 || models.Data[0].ID != "tiny" {
		t.Errorf("got %+v, %v, want the one model", models, err)
	}
	if one, err := c.Models.Get(t.Context(), "tiny"); err != nil || one.OwnedBy != "rcgrpo" {
		t.Errorf("got %+v, %v", one, err)
	}
	text, err := c.Completions.New(t.Context(), openai.CompletionNewParams{Model: "tiny", MaxTokens: openai.Int(40),
		Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("town")}})
	if err != nil || text.Choices[0].Text != "It is fine." {
		t.Errorf("got %+v, %v", text, err)
	}
}
