package environment

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

// held is an environment whose calls wait for release.
type held struct {
	turns
	begun, release chan bool
}

func (h *held) Step(ctx context.Context, r rl.Reply) ([]string, int, error) {
	if len(r.Calls) == 0 {
		h.stop = rl.StopDone
		return nil, 0, nil
	}
	h.begun <- true
	<-h.release
	return []string{"ok"}, 0, ctx.Err()
}

func (h *held) Verdict(context.Context) (bfcl.Verdict, error) { return bfcl.Verdict{Reward: 1}, nil }
func (h *held) Close()                                        {}

// The error of a cancelled step was that of the policy, and ended the stage.
func TestACallThatItsClientCancelsEndsNoEpisode(t *testing.T) {
	env := &held{begun: make(chan bool), release: make(chan bool)}
	env.tools = []rl.Tool{{Name: "add", JSON: []byte(`{"type": "function", "function": {"name": "add"}}`)}}
	offer := must.Get(NewOffer(t.Context(), env, nil))(t)
	near, far := mcp.NewInMemoryTransports()
	must.Get(offer.Connect(t.Context(), near, nil))(t)
	client := must.Get(mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil).Connect(t.Context(), far, nil))(t)
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	called := make(chan error)
	go func() {
		_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "add"})
		called <- err
	}()
	<-env.begun
	cancel()
	if err := <-called; err == nil {
		t.Error("the client received the result of a call that it cancelled")
	}
	for range 20 { // the server reads the cancellation before, and cancels soon
		must.OK(t, client.Ping(t.Context(), nil))
	}
	env.release <- true
	if v, err := offer.Verdict(t.Context(), "Done."); err != nil || v.Reward != 1 {
		t.Errorf("got %v, %v, want the reward 1", v.Reward, err)
	}
}
