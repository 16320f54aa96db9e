package environment

import (
	"context"
	"fmt"
	"testing"
	"time"

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

// An agent that ends while its calls wait for one another had up to limits.steps of them executed after its end, in a
// process that had forgotten the episode and plays others.
func TestCallsThatWaitAtTheEndAreNotExecuted(t *testing.T) {
	offer := must.Get(NewOffer(t.Context(), &held{}, nil))(t)
	offer.mu.Lock() // as a call in progress
	counted := make(chan int)
	go func() {
		calls, _ := offer.Calls()
		counted <- calls
	}()
	for !offer.over.Load() {
		time.Sleep(time.Millisecond)
	}
	if err := offer.ended(); err != errEnded { // what the next call finds
		t.Errorf("got %v, want the end of the episode", err)
	}
	offer.mu.Unlock()
	if n := <-counted; n != 0 {
		t.Errorf("got %d calls, want none", n)
	}
}

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

// A cursor of 136 bytes held the SDK, and so the episode, for ever.
func TestListsOfToolsForAgentsHaveOnePage(t *testing.T) {
	env := &held{}
	for i := range 1500 {
		env.tools = append(env.tools, rl.Tool{Name: fmt.Sprint("add", i),
			JSON: fmt.Appendf(nil, `{"type": "function", "function": {"name": "add%d"}}`, i)})
	}
	offer := must.Get(NewOffer(t.Context(), env, nil))(t)
	near, far := mcp.NewInMemoryTransports()
	must.Get(offer.Connect(t.Context(), near, nil))(t)
	client := must.Get(mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil).Connect(t.Context(), far, nil))(t)
	all := must.Get(client.ListTools(t.Context(), nil))(t)
	if len(all.Tools) != 1500 || all.NextCursor != "" {
		t.Errorf("the list has %d tools and the cursor %q, want all and none", len(all.Tools), all.NextCursor)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := client.ListTools(ctx, &mcp.ListToolsParams{Cursor: "IX8DAQEBVAH_gAABAgEBTQH_hAABB0xhc3RVSUQBDAAAACP_" +
		"gwQBARFtYXBbbWFpbi5LXW1haW4uSwH_hAAB_4IB_4IAABL_gQMBAv-CAAEBAQFBAQQAAAAM_4AB-D__________"})
	must.Match(t, err, "this list has one page, and no cursor")
	client.Close()
}
