// Package ranks divides the work of one stage among partial gradients and processes.
//
//	Parts   items of a batch to partial gradients
//
// It uses no tensors. Neighbour: train, the loop over parts.
package ranks
