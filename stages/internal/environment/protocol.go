package environment

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxLine is the length of the longest line of the protocol.
const maxLine = 16 << 20

// Messages of the protocol. docs/own_tasks.md describes them.
type (
	helloAnswer struct {
		Episodes int               `json:"episodes"` // at once in one process
		Tools    []json.RawMessage `json:"tools"`    // functions in OpenAI's form
	}
	tasksAnswer struct {
		Tasks []json.RawMessage `json:"tasks"` // taskSpec
	}
	taskSpec struct {
		ID       string   `json:"id"`
		Family   string   `json:"family"`
		Category string   `json:"category"`
		Expert   [][]call `json:"expert"`
	}
	call struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	resetAnswer struct {
		User   *string `json:"user"`
		System string  `json:"system"`
	}
	stepAnswer struct {
		Results []json.RawMessage `json:"results"`
		User    *string           `json:"user"`
		Done    bool              `json:"done"`
	}
)

type request struct {
	Version string `json:"jsonrpc"`
	ID      int64  `json:"id"`
	Method  string `json:"method"`
	Params  any    `json:"params"`
}

// answer is a line of a program.
type answer struct {
	ID     int64
	Result json.RawMessage // nil: an error
	Error  string
}

// parseAnswer reads a line. An answer has an id, and either a result, which is an object, or an error.
func parseAnswer(line []byte) (answer, error) {
	var a struct {
		Version string          `json:"jsonrpc"`
		ID      *int64          `json:"id"`
		Result  json.RawMessage `json:"result"`
		Error   *struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := decode(line, &a); err != nil {
		return answer{}, err
	}
	object := len(a.Result) > 0 && a.Result[0] == '{'
	switch {
	case a.Version != "2.0":
		return answer{}, errors.New(`it lacks "jsonrpc": "2.0"`)
	case a.ID == nil && a.Error != nil:
		return answer{}, fmt.Errorf("it is an error without an id: %.200s", a.Error.Message)
	case a.ID == nil:
		return answer{}, errors.New("it has no integer id")
	case a.Error == nil && !object:
		return answer{}, errors.New("it has neither an object as result nor an error")
	case a.Error != nil && len(a.Result) > 0 && string(a.Result) != "null":
		return answer{}, errors.New("it has both a result and an error")
	case a.Error != nil:
		return answer{ID: *a.ID, Error: fmt.Sprintf("%.1000s", a.Error.Message)}, nil
	}
	return answer{ID: *a.ID, Result: a.Result}, nil
}

// decode decodes a JSON text.
func decode(text []byte, v any) error {
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("it is no such JSON: %w", err)
	}
	return nil
}

// readLine returns the next line without its end. A line of more than limit bytes is an error. At the end of r it
// returns io.EOF, or io.ErrUnexpectedEOF within a line.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		piece, err := r.ReadSlice('\n')
		if len(line)+len(piece) > limit+1 {
			return nil, fmt.Errorf("a line has more than %d bytes", limit)
		}
		line = append(line, piece...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF && len(line) > 0:
			return line, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		default:
			return bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'}), nil
		}
	}
}

// result returns the text of a call's result, and whether it is an execution error: an object with a member error.
func result(raw json.RawMessage) (text string, failed bool) {
	if json.Unmarshal(raw, &text) == nil {
		return text, false
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) == nil {
		_, failed = object["error"]
	}
	return string(raw), failed
}

// Reward reads the reward of an answer. It needs no check for NaN or infinity: JSON has neither.
func Reward(raw []byte) (float64, error) {
	var a struct {
		Reward *float64 `json:"reward"`
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return 0, fmt.Errorf("bad answer %s: %w", quote(raw), err)
	}
	if a.Reward == nil {
		return 0, errors.New("its answer has no finite reward")
	}
	return *a.Reward, nil
}
