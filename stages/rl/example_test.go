package rl_test

import (
	"fmt"

	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// One group of two episodes of one task, from tokens to the derivative of the loss. A letter is a token.
//
// In the first episode the user asks (u), the policy's header follows (h), and the policy samples a call (c) and the
// end of its reply (e). The environment executes the call. Its result (r) and a header are given, and the policy
// samples an answer (a) and an end. The second episode samples an answer without a call.
//
// The mask is true where the policy sampled the token, so that only these tokens have logprobs and a derivative. The
// rewards are 1 and 0, their mean 1/2 and their population deviation 1/2, so the advantages are 1 and -1: each token of
// the first mask becomes likelier, each token of the second one less likely. The paper's loss has one ratio for each
// trajectory, which is 1 in the only step of an update, and divides by the two rows: -(1·1 - 1·1)/2 = 0, with
// derivative -1/2 and 1/2 in the logprob of each token of a mask.
func ExampleTrajectory() {
	good := &rl.Trajectory{
		Reward: 1,
		IDs:    []int32{'u', 'h', 'c', 'e', 'r', 'h', 'a', 'e'},
		Mask:   []bool{false, false, true, true, false, false, true, true},
		Logp:   []float32{0, 0, -1.5, -0.25, 0, 0, -0.5, -0.25},
		Messages: []rl.Message{ // From and To bound the ids of a message, headers included
			{Role: rl.RoleUser, From: 0, To: 1}, {Role: rl.RoleAssistant, From: 1, To: 4, Calls: []string{"ls()"}},
			{Role: rl.RoleTool, From: 4, To: 5}, {Role: rl.RoleAssistant, From: 5, To: 8},
		},
	}
	bad := &rl.Trajectory{
		Reward:   0,
		IDs:      []int32{'u', 'h', 'a', 'e'},
		Mask:     []bool{false, false, true, true},
		Logp:     []float32{0, 0, -0.5, -0.25},
		Messages: []rl.Message{{Role: rl.RoleUser, From: 0, To: 1}, {Role: rl.RoleAssistant, From: 1, To: 4}},
	}
	group := []*rl.Trajectory{good, bad}

	o := objective.PaperObjective()
	o.KL.Beta = 0 // no reference policy in this example
	advantages, _ := o.Advantages(group, 2, nil)
	rows, owner := objective.Rows(group)
	batch := objective.NewBatch(rows)
	batch.Advantage = rl.Select(advantages, owner)
	out, err := o.Evaluate(batch, o.Totals(batch))
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, t := range group {
		fmt.Printf("reward %v, advantage %.2f, %d tokens of the mask\n", t.Reward, advantages[i], batch.Length[i])
	}
	fmt.Println("logprobs ", batch.Logp)
	fmt.Printf("loss      %.2f\n", out.Loss+0)
	fmt.Printf("d/d logp  %.2f\n", out.DLogp)

	// Output:
	// reward 1, advantage 1.00, 4 tokens of the mask
	// reward 0, advantage -1.00, 2 tokens of the mask
	// logprobs  [-1.5 -0.25 -0.5 -0.25 -0.5 -0.25]
	// loss      0.00
	// d/d logp  [-0.50 -0.50 -0.50 -0.50 0.50 0.50]
}
