package lsp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxMessage is the size of the largest message in bytes. An HCL file has at most 1 MiB.
const maxMessage = 16 << 20

// message is a request (with ID and Method), a notification (Method) or a response (ID).
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Error codes of JSON-RPC and of the Language Server Protocol.
const (
	parseError     = -32700
	invalidRequest = -32600
	methodNotFound = -32601
	invalidParams  = -32602
	notInitialized = -32002
)

// readMessage reads a header and a body. io.EOF means the end of the stream between two messages.
func readMessage(r *bufio.Reader) ([]byte, error) {
	size := -1
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && first && len(line) == 0:
			return nil, io.EOF
		case err != nil:
			return nil, fmt.Errorf("read header: %w", err)
		}
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		if name == "" {
			break
		}
		if strings.EqualFold(name, "Content-Length") {
			if size, err = strconv.Atoi(strings.TrimSpace(value)); err != nil || size < 0 || size > maxMessage {
				return nil, fmt.Errorf("header has Content-Length %q, want at most %d", strings.TrimSpace(value), maxMessage)
			}
		}
	}
	if size < 0 {
		return nil, errors.New("header has no Content-Length")
	}
	var body bytes.Buffer // grows with the received bytes, whatever the header promises
	if _, err := io.CopyN(&body, r, int64(size)); err != nil {
		return nil, fmt.Errorf("read message of %d bytes: %w", size, err)
	}
	return body.Bytes(), nil
}

// decode decodes a message and its parameters. The ID of a message that is no JSON-RPC is null.
func decode(body []byte) (m message, p params, wrong *rpcError) {
	err := json.Unmarshal(body, &m)
	switch {
	case err != nil && !json.Valid(body):
		wrong = &rpcError{parseError, err.Error()}
	case err != nil || m.Method == "" && m.Result == nil && m.Error == nil:
		wrong = &rpcError{invalidRequest, "want a JSON-RPC message"}
	case m.Params != nil:
		if err := json.Unmarshal(m.Params, &p); err != nil {
			return m, p, &rpcError{invalidParams, err.Error()}
		}
		return m, p, nil
	case m.Method == "": // a response, although the server sends no requests
		m.ID = nil
	}
	if wrong != nil {
		m = message{ID: json.RawMessage("null")}
	}
	return m, p, wrong
}

// send writes a message. An error needs no treatment: the next read fails too.
func (s *server) send(m message) {
	m.Version = "2.0"
	body := marshal(m)
	fmt.Fprintf(s.out, "Content-Length: %d\r\n\r\n%s", len(body), body)
}

// reply answers a request with a result or an error.
func (s *server) reply(id json.RawMessage, result any, err *rpcError) {
	m := message{ID: id, Error: err}
	if err == nil {
		m.Result = marshal(result)
	}
	s.send(m)
}

func marshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types of this package can be marshalled
	}
	return b
}
