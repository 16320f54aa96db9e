package stages

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
)

// connected returns a session with the tools of a task.
func connected(t *testing.T, url string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil)
	session := must.Get(client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, nil))(t)
	t.Cleanup(func() { session.Close() })
	return session
}

func called(t *testing.T, s *mcp.ClientSession, name string, arguments any) (text string, failed bool) {
	t.Helper()
	r := must.Get(s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments}))(t)
	return r.Content[0].(*mcp.TextContent).Text, r.IsError
}

// bench/mcp_clients.sh plays all tasks with the Python client.
func TestClientsOfTheProtocolGetOurResultsAndVerdicts(t *testing.T) {
	data := must.Get(bfcl.LoadData(fixtures.Benchmark(t)))(t)
	tools := httptest.NewServer(ToolServer{Data: data, Turns: true, Find: func(id string) (*bfcl.Task, error) {
		return data.Task(id), nil
	}}.handler())
	t.Cleanup(tools.Close) // after the sessions
	for i, task := range data.Tasks() {
		if i%37 != 0 { // in each category
			continue
		}
		e, outcomes, err := task.Play(bfcl.Settings{Data: data, Today: bfcl.ReleaseDate}, task.GroundTruthSteps())
		must.OK(t, err)
		s := connected(t, tools.URL+"/"+task.ID)
		for k, turn := range task.Turns {
			if text, _ := called(t, s, "next_request", nil); turn.User != "" && text != turn.User {
				t.Errorf("%s: turn %d has the request %q", task.ID, k, text)
			}
			for _, name := range turn.Revealed {
				list := must.Get(s.ListTools(t.Context(), nil))(t)
				if !slices.ContainsFunc(list.Tools, func(t *mcp.Tool) bool { return t.Name == name }) {
					t.Errorf("%s: turn %d does not reveal %s", task.ID, k, name)
				}
			}
			for j, call := range turn.GroundTruth {
				name, arguments, err := bfcl.CallJSON(call)
				must.OK(t, err)
				text, failed := called(t, s, name, arguments)
				if o := outcomes[k][0][j]; text != o.Text || failed != (o.Exception != "") {
					t.Errorf("%s: %s gives %q (error %v), want %q", task.ID, call, text, failed, o.Text)
				}
			}
		}
		text, _ := called(t, s, "next_request", nil)
		if want := string(must.Get(json.Marshal(e.Verdict()))(t)); text != want {
			t.Errorf("%s: verdict %s, want %s", task.ID, text, want)
		}
		if _, failed := called(t, s, "next_request", nil); failed {
			t.Errorf("%s: the verdict cannot be read again", task.ID)
		}
	}
}

// Each session has an episode of its own.
func TestSessionsDoNotShareStates(t *testing.T) {
	data := must.Get(bfcl.LoadData(fixtures.Benchmark(t)))(t)
	tools := httptest.NewServer(ToolServer{Data: data, Find: func(string) (*bfcl.Task, error) {
		return &bfcl.Task{ID: "classes", Classes: []string{"MathAPI", "TicketAPI"}, Turns: make([]bfcl.Turn, 1)}, nil
	}}.handler())
	t.Cleanup(tools.Close) // after the sessions
	a, b := connected(t, tools.URL), connected(t, tools.URL)
	login := map[string]string{"username": "u", "password": "p"}
	called(t, a, "ticket_login", login)
	for s, want := range map[*mcp.ClientSession]string{a: `{"login_status": true}`, b: `{"login_status": false}`} {
		if text, failed := called(t, s, "ticket_get_login_status", nil); text != want || failed {
			t.Errorf("got %s, want %s", text, want)
		}
	}
	for _, arguments := range []any{nil, map[string]any{"foo": 1}, []int{1}} {
		if text, failed := called(t, a, "mean", arguments); !failed {
			t.Errorf("mean(%v) gives %s without an error", arguments, text)
		}
	}
}
