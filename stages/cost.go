package stages

import (
	"fmt"

	"rcgrpo/bfcl"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/endpoint"
	"rcgrpo/stages/internal/provider"
	"rcgrpo/stages/tasks"
)

// CallCost estimates the dollars of the calls of a node, before its inputs exist. ok is false for a node without calls
// or with unknown tasks; the error is that of an unknown price.
func CallCost(n *lang.Node, site *lang.Site) (dollars float64, ok bool, err error) {
	if n.Outputs["calls"] == "" || site.BFCL == "" { // the policy is no endpoint, or the tasks are unknown
		return 0, false, nil
	}
	var model *provider.Settings
	var list []*bfcl.Task
	for _, in := range n.Inputs {
		if e, is := endpoint.Endpoint(in.From.Stage); is {
			model = e
		} else if set, err := tasks.Preview(in.From, in.Ref.Port, site); err == nil {
			list = append(list, set...)
		}
	}
	if model == nil || len(list) == 0 {
		return 0, false, nil
	}
	price, err := model.PriceOf(site.APIs[model.Key].Prices)
	if err != nil {
		return 0, false, err
	}
	data, err := bfcl.LoadData(site.BFCL)
	if err != nil {
		return 0, false, nil
	}
	episodes := 1
	if s, is := n.Stage.(lang.EpisodeSampler); is {
		episodes = s.EpisodesPerTask()
	}
	return float64(episodes) * price.Expect(data, list), true, nil
}

// CallPrice returns the price of the model that a stage describes, as part of a sentence; "" for other stages.
func CallPrice(stage lang.Stage, site *lang.Site) string {
	model, is := endpoint.Endpoint(stage)
	if !is {
		return ""
	}
	price, err := model.PriceOf(site.APIs[model.Key].Prices)
	if err != nil {
		return "at an unknown price, so no call is made"
	}
	return fmt.Sprintf("at $%v and $%v for a million tokens of input and output", price.Input, price.Output)
}

// CallsResult is the result of a stage that sampled from an endpoint. Its method Replay plays the episodes again.
type CallsResult = provider.Result

// RecordedCost returns the dollars of the record in a port calls, of which read decodes a file.
func RecordedCost(read func(name string, into any) error) (float64, bool) {
	var cost provider.Cost
	err := read(provider.CostFile, &cost)
	return cost.Dollars, err == nil
}
