// Package ranks divides the work of one stage among partial gradients and among ranks, processes of the same stage
// with one device each.
//
//	Rank    this process among those of its stage: dealt items, rounds of parts, shards; start here
//	Parts   items of a batch to partial gradients
//	Point   what the ranks compare before they exchange tensors
//	Wire    messages between ranks
//
// Every division depends on numbers of items and ranks only, so all ranks compute the same one. It uses no tensors.
// Neighbours: torch (Group, the Wire of processes), lm (shards of tensors), train (the loop over parts).
package ranks
